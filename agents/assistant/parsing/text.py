"""Prepares a person's text for parsing: code apart, one spelling, no contractions, no courtesy.

Code is found in fenced blocks, or pasted bare if it is Python. The usual German for short orders
and questions goes word by word into English; longer German is for a model. Typing errors are
corrected towards words that mean something here, only where a clause was not understood as it
stands, so a right word is never made a wrong one. Not covered: bare code in other languages than
Python.
"""

import ast
import re
import unicodedata
from collections.abc import Sequence
from functools import cache

from kernelwright.agents.assistant.types import Attachment
from kernelwright.agents.llm.json_text import blocks
from kernelwright.tools.types import Value

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


_MARKS = re.compile(
    r"\b(?:ist|der|die|das|den|dem|und|bitte|warum|wieso|zeig\w*|mach\w*|schneller|"
    r"pausier\w*|anhalten|weiter\w*|beende\w*|"
    r"starte\w*|los|vergleich\w*|erklär\w*|erklaer\w*|hilfe|exportier\w*|kein\w*|ohne|"
    r"nicht|auf|meine\w*|welche\w*|wie|was|"
    r"konzentrier\w*|versuch\w*|stopp\w*|halt|lauf|läufe|bericht|abbrechen|abbruch|"
    r"wünsche?|nur|vergiss|vermeide\w*|benutze\w*|verwende\w*|nutze\w*|nimm|erlaube\w*|verbiete\w*|"
    r"brich|lösche\w*|lade|kostet|dauert|korrekt|wer|bist|geht|lohnt|halbe[nr]?|lass|fertig|kann|"
    r"höchstens|gibt)\b"
)
_PHRASES = (
    (r"\bmach(?:e|en)? (.+?) schneller\b", r"make \1 faster"),
    (r"\b(?:halte?|halten sie) (?:\w+ ){0,3}an\b|\banhalten\b|\bpausier(?:e|"
     r"en)?(?: sie)?\b|\bmach(?:e)? (?:eine )?pause\b", "pause"),
    (r"\b(?:mach(?:e)? )?weiter(?:machen|suchen)?\b|\bsetz(?:e)? (?:\w+ )?fort\b|"
     r"\bfortsetzen\b", "continue"),
    (r"\bhör(?:e)? (?:\w+ )?auf\b|\baufhören\b|\bbeende(?:n|t)?\b|\bstopp(?:e|en)?\b|"
     r"\bbrich(?: \w+)? ab\b", "stop"),
    (r"\bkonzentrier(?:e|en)? (?:dich|sie sich) auf\b|\bfokussier(?:e|"
     r"en)?(?: dich)? auf\b", "focus on"),
    (r"\bwie (?:läuft|laeuft|steht) (?:es|die suche|sie)\b|\bwie weit\b|"
     r"\bwas machst du(?: gerade)?\b", "how is it going"),
    (r"\bwas (?:hast du|wurde)(?: schon| alles| bisher)* (?:versucht|probiert|"
     r"ausprobiert)\b", "what have you tried"),
    (r"\bwas kannst du\b|\bwas kann ich (?:tun|fragen|machen)\b", "what can i do"),
    (r"\bkein(?:e|en|er)? halbe(?:n|r)? genauigkeit\b", "no half precision"),
    (r"\bhalbe(?:n|r)? genauigkeit\b", "half precision"),
    (r"\b(?:zeig\w*|nenn\w*|liste?)(?: mir)?(?: bitte)? (?:alle |meine |die )*wünsche\b|"
     r"\bwelche wünsche\b.*|\bwas (?:sind|waren) meine wünsche\b", "show all wishes"),
    (r"\bwas (?:habe|hab) ich (?:dir |alles |bisher |bis jetzt )*(?:gesagt|verlangt|gewünscht|"
     r"gefordert|verboten|vorgegeben|gebeten)\b", "what did i ask"),
    (r"\bnimm (?:bitte )?(?:alles|alle wünsche) zurück\b", "forget everything"),
    (r"\bnimm (?:bitte )?(?:das|es) zurück\b", "take that back"),
    (r"\bnimm (.{1,60}?) zurück\b", r"forget \1"),
    (r"\bvergiss\b", "forget"),
    (r"\blass(?:e)? (.{1,60}?) weg\b|\bverzichte auf (.{1,60})", r"avoid \1\2"),
    (r"\b(?:vermeide|verbiete)n?\b", "avoid"),
    (r"\b(?:benutz|nutz|verwend)en? kein(?:e|en)?\b", "do not use"),
    (r"\b(?:benutz|nutz|verwend)e\b", "use"),
    (r"\berlaube? (.{1,60}?) wieder\b", r"allow \1"),
    (r"\berlaube\b", "allow"),
    (r" zu (?:benutzen|nutzen|verwenden)\b", ""),
    (r"\blade (.{1,60}?) herunter\b", r"download \1"),
    (r"\blösche (?:den |diesen )?lauf\b", "delete this run"),
    (r"\bwie lange (?:dauert|braucht|geht) (?:es|das|die suche|sie)\b", "how long does it take"),
    (r"\bwie (?:schnell|viel schneller) ist (?:es|das)\b", "how fast is it"),
    (r"\bwas kostet (?:das|es|die suche)\b", "what does it cost"),
    (r"\bwie genau ist (?:es|das)\b", "how accurate is it"),
    (r"\bist (?:es|das)(?: ergebnis)? (?:korrekt|richtig)\b|\bstimmt (?:es|das)(?: ergebnis)?\b",
     "is it correct"),
    (r"\bgeht (?:es|das)(?: auch)?(?: noch)? schneller\b", "can it get faster"),
    (r"\blohnt (?:es|das|sich) (?:das|es|sich)\b", "is it worth it"),
    (r"\bwer bist du\b", "who are you"),
    (r"\b(?:bist du|ist (?:es|das|die suche)) (?:schon |bald )?fertig\b", "are you done"),
    (r"\b(?:kann|darf) ich (?:die seite|den tab|den browser|das fenster) (?:schließen|zumachen)\b",
     "can i close the page"),
    (r"\bgemeinsame(?:n|r|s)? speicher\b", "shared memory"),
    (r"\bvektorisierte(?:n|r)? (?:ladezugriffe|zugriffe|loads)\b", "vectorized loads"),
    (r"\blauf(?:e)? los\b|\bleg(?:e)? los\b|\bfang(?:e)? an\b|\blos geht'?s\b", "start"),
)  # fmt: skip
# Word for word; an underscore stands for a space.
_GERMAN = """
    zeig=show zeige=show zeigen=show mir=me uns=us den=the die=the das=the der=the dem=the
    des=of_the vom=of_the von=of besten=best beste=best bester=best schnellsten=fastest
    schnellste=fastest letzten=last letzte=last warum=why wieso=why weshalb=why ist=is
    sind=are schneller=faster langsamer=slower als=than vergleiche=compare vergleich=compare
    mit=with und=and oder=or erkläre=explain erklär=explain erklaere=explain runde=round
    hilfe=help exportiere=export exportieren=export ergebnis=result herunterladen=download
    starte=start starten=start suche=search bericht=report läufe=runs meine=my meinen=my
    quelltext=source quellcode=source profil=profile ideen=ideas idee=idea kein=no keine=no
    keinen=no ohne=without nicht=not versuche=try versuch=try probiere=try abbrechen=cancel
    abbruch=cancel auf=on meiner=my meinem=my stand=status fortschritt=progress wie=how
    was=what welche=which bitte=please minuten=minutes sekunden=seconds stunde=hour
    stunden=hours runden=rounds mehr=more noch=more für=for jetzt=now es=it dieses=this
    diese=this dies=this ein=a eine=a einen=a nur=only weniger=fewer alle=all wünsche=wishes
"""
_WORDS = dict(pair.replace("_", " ").split("=") for pair in _GERMAN.split())


def translated(words: str) -> str:
    """Plain English words; what is not German stays as it is."""
    if not _MARKS.search(words):
        return words
    for pattern, english in _PHRASES:
        words = re.sub(pattern, english, words)
    return re.sub(r"[a-zäöüß]+", lambda match: _WORDS.get(match[0], match[0]), words)


_VOCABULARY = """
    pause stop continue resume start begin search export download report explain compare
    profile ledger progress status show code source kernel candidate version best fastest
    round rounds ideas help doctor machine runs history reopen audit cancel focus avoid
    forget prefer pinned banned shared memory vectorized loads warp shuffle registers tensor
    cores precision half roofline faster slower optimize softmax module result results
    deeper quick minutes seconds steering budget between difference bottleneck allow without
    trying latest please working leaderboard everything tried device why what does download
    kernelbench compile compiled compare
"""
_KNOWN = frozenset(_VOCABULARY.split())
_WORD = re.compile(r"[a-z]{4,}")


def mended(words: str) -> str:
    """The words with every unknown one replaced by the known one that was meant, if any."""
    return _WORD.sub(lambda match: _meant(match[0]), words)


@cache
def _meant(word: str) -> str:
    if word in _KNOWN:
        return word
    allowed = 1 if len(word) < 7 else 2
    near = [known for known in _KNOWN if abs(len(known) - len(word)) <= allowed]
    ranked = sorted((_distance(word, known, allowed), known) for known in near)
    return ranked[0][1] if ranked and ranked[0][0] <= allowed else word


def _distance(one: str, other: str, most: int) -> int:
    """Letters to change, add, take out or swap with their neighbour; above `most`, any number."""
    if one[0] != other[0] and sorted(one[:2]) != sorted(other[:2]):
        return most + 1  # the first letter is rarely wrong
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, left in enumerate(one, 1):
        last, before, row = before, row, [i]
        for j, right in enumerate(other, 1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (left != right))
            if i > 1 and j > 1 and left == other[j - 2] and one[i - 2] == right:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
        if min(row) > most:
            return most + 1
    return row[-1]


_PYTHON = frozenset({"", "python", "py", "python3", "pytorch", "torch"})
_BEGINS = re.compile(r"^(?:import |from \S+ import |class |def |async def |@|\"\"\"|#!|# )")
_IN_CODE = re.compile(
    r"^(?:\s|$|import |from \S+ import |class |def |async def |@|[)\]}]|#|\"\"\"|return\b|if |for "
    r"|with |[A-Za-z_][\w.\[\], ]*\s*(?:=|\+=|\()|[A-Za-z_]\w*:\s*\w)"
)
_MODULE = re.compile(r"^(?:class|def|async def) \w+|^\w+ = ", re.MULTILINE)
_FENCE = re.compile(r"(?:`{3,}|~{3,}).*?(?:`{3,}|~{3,}|\Z)", re.DOTALL)


class Pasted(Value):
    """What a message says besides the code in it, and the code."""

    words: str
    source: str = ""


def take_apart(text: str) -> Pasted:
    """Part words and code; without code, all of it is words."""
    fenced = [block for block in blocks(text) if block.language in _PYTHON]
    sources = [block.text for block in fenced if is_module(block.text)]
    if sources:
        return Pasted(words=_FENCE.sub("\n", text).strip(), source="\n\n".join(sources))
    return _bare(text)


def is_module(text: str) -> bool:
    """Whether a text defines something that could be a task."""
    return bool(_MODULE.search(text)) and bool(
        re.search(r"\btorch\b|\bnn\.|\bF\.|def \w+\(|class \w+", text)
    )


def python_files(attachments: Sequence[Attachment]) -> tuple[Attachment, ...]:
    """Those that can hold Python, by name or, where that says nothing, by content.

    The one that says its inputs comes first.
    """
    found = (
        item
        for item in attachments
        if item.name.lower().endswith((".py", ".ipynb", ".zip"))
        or ("." not in item.name.rsplit("/", 1)[-1] and is_module(item.text))
        or (item.name.lower().endswith((".txt", ".md")) and is_module(item.text))
    )
    return tuple(sorted(found, key=lambda item: "def get_inputs" not in item.text))


def _bare(text: str) -> Pasted:
    """The longest stretch of lines from the first that begins code to the last that can be it."""
    lines = text.splitlines()
    begin = next((n for n, line in enumerate(lines) if _BEGINS.match(line)), None)
    if begin is None:
        return Pasted(words=text)
    end = begin
    while end < len(lines) and _IN_CODE.match(lines[end]):
        end += 1
    source = "\n".join(lines[begin:end]).strip("\n")
    if not is_module(source) or not _is_code(source):
        return Pasted(words=text)
    return Pasted(words="\n".join(lines[:begin] + lines[end:]).strip(), source=source + "\n")


def _is_code(text: str) -> bool:
    """Python, or so much like it that its reader should say what is wrong with it."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return text.count("\n") >= 2 and bool(re.search(r"^(?:class|def|import|from) ", text, re.M))
    return True
