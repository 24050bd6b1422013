"""Makes a person's words comparable: one spelling, no contractions, no courtesy.

Not here: typing errors (`agents.assistant.reading.spelling`) and other languages
(`agents.assistant.reading.german`).
"""

import re
import unicodedata

# A message longer than this is no sentence; what stands behind it is not read as words.
LONGEST = 1_000
_SAME = str.maketrans(
    {
        "\N{RIGHT SINGLE QUOTATION MARK}": "'",
        "\N{LEFT SINGLE QUOTATION MARK}": "'",
        "\N{ACUTE ACCENT}": "'",
        "\N{LEFT DOUBLE QUOTATION MARK}": '"',
        "\N{RIGHT DOUBLE QUOTATION MARK}": '"',
        "\N{MULTIPLICATION SIGN}": "x",
        "`": "'",
    }
)
_SHORT = (
    (r"\b(do|does|did|is|are|was|should|could|would|have|has)n'?t\b", r"\1 not"),
    (r"\bwhy do not (you|we)\b", "why not"),
    (r"\b(can't|cant|cannot)\b", "can not"),
    (r"\bwon'?t\b", "will not"),
    (r"\b(what|where|who|how|that|it|when|why|there)(?:'s|s(?=\s(?:the|it|this|that|going|up)\b))",
     r"\1 is"),
    (r"\b(what|how|why|where)'re\b", r"\1 are"),
    (r"\b(i)'d\b", r"\1 would"),
    (r"\b(i|you|we|they)'ve\b", r"\1 have"),
    (r"\b(you|we|they)'re\b", r"\1 are"),
    (r"\bi'?m\b", "i am"),
    (r"\b(i|you|it|we)'ll\b", r"\1 will"),
    (r"\blet'?s\b", "let us"),
    (r"\b(wanna)\b", "want to"),
    (r"\b(gimme)\b", "give me"),
    (r"\b(lemme)\b", "let me"),
    (r"\bu\b", "you"),
    (r"\bisation\b", "ization"),
    (r"\b(prioriti|vectori|optimi|parameteri|summari|minimi|maximi|utili)s(e|ed|es|ing|ation)\b",
     r"\1z\2"),
)  # fmt: skip
_SHORTENINGS = tuple((re.compile(pattern), whole) for pattern, whole in _SHORT)
# Said for courtesy, wherever it stands.
_COURTESY = re.compile(
    r"\b(?:please|pls|plz|kindly|thanks|thank you|thx|if you (?:can|could|like|want|do not mind)"
    r"|if possible|would you mind|for me|real quick|quickly|maybe|perhaps|actually|simply"
    r"|right now|right away|immediately|for now|at once|kernelwright|a (?:little )?bit|still"
    r"|i think|i guess|by the way|btw)\b"
)
# Said before what is wanted.
_LEAD = re.compile(
    r"^(?:(?:hey|hi|hello|ok(?:ay)?|alright|all right|well|so|now|and|but|then|also|great|good|nice"
    r"|cool|perfect|yes|yeah|sure|hm+|um+|oh|actually|just|first|next|finally|additionally)"
    r"[ ,.!:;-]+"
    r"|(?:no |oh )?wait[,.!:;-]+ "
    r"|(?:can|could|would|will|may|might) (?:you|we|i) (?:also |then )?(?!be\b)"
    r"|(?:i|we) (?:would|d) (?:like|love|prefer)(?: it if)? (?:you to |to have |you |to )?"
    r"|(?:i|we) (?:want|need|wish)(?: you)? to |i want you |let us |let me |you (?:should|can|could"
    r"|may|must|need to) |go ahead and |feel free to |try and |be so kind (?:as )?to |"
    r"help me (?:to )?"
    r"|do me a favou?r and |it would be (?:nice|great) (?:to|if you (?:could )?))"
)
_TRAIL = re.compile(
    r"[ ,.!;:]+(?:then|(?<!not )now|already|too|as well|instead|so far|again please)$|"
    r"[,.!;:]+ ?ok(?:ay)?$"
)


def plain(text: str) -> str:
    """Words in lower case on one line, as people would say them slowly."""
    words = unicodedata.normalize("NFKC", text[:LONGEST].translate(_SAME)).lower()
    words = " ".join(words.split())
    for pattern, whole in _SHORTENINGS:
        words = pattern.sub(whole, words)
    return words.strip()


def bare(words: str) -> str:
    """Plain words without courtesy and without marks around them; may be empty."""
    found = " ".join(_COURTESY.sub(" ", words.rstrip(" ?!.")).split())
    found = re.sub(r"\s+([,.!?;:])", r"\1", found).strip(" ,.!;:-")
    before = None
    while found != before:
        before = found
        found = _TRAIL.sub("", _LEAD.sub("", found, count=1)).strip(" ,.!;:-")
    return found


def is_question(words: str) -> bool:
    """Whether words begin as a question does."""
    asks = (
        r"(?:why|what|which|who|when|where|how|is|are|was|were|does|do (?:you|we|i|they|these)|did"
        r"|has|have (?:you|we|i|they)|am|am i)\b"
    )
    return bool(re.match(asks, words))
