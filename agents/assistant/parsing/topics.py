"""Understands the usual questions about a result, in English and German.

How it works, whether it still trains, how it is used, how it compares with torch.compile, whether
it is safe, on what it was verified, why it is not faster, where the code goes. The words are plain
and not translated. A clause has to ask: `use fewer registers` and `try torch.compile's trick` do
not. A question about one candidate by its name is none of these.
"""

import re

from kernelwright.agents.assistant.parsing.names import spoken_of
from kernelwright.agents.assistant.types import AskAbout, Topic, Turn

_BEFORE = (
    r"(?:(?:and|so|but|ok|okay|also|hey|hi|hello|well|then|now|please|just|und|aber|hallo|bitte|na"
    r"|gut|sag mal|tell me|do you know|i wonder|i want to know|i would like to know|quick question"
    r"|one question|eine frage)[ ,:.!-]+)*"
)
_ASKS = re.compile(
    rf"{_BEFORE}(?:will|would|can|could|does|do|is|are|how|what|which|where|why|may|should|did|has"
    r"|have|must|am|on (?:what|which)|for (?:what|which)|in (?:what|which)|against|who|explain"
    r"|if|whether"
    r"|kann|können|könnte|ist|sind|wie|was|welche\w*|wo|wohin|wozu|warum|wieso|weshalb|wird|werden"
    r"|darf|muss|soll\w*|geht|gibt|hat|hast|läuft|funktioniert\w*|trainiert|lohnt|brauch\w*"
    r"|auf welche\w*"
    r"|für welche\w*|mit welche\w*|erklär\w*|bleib\w*|verlässt|wer|ob|unterstützt)\b"
)
_COMPARES = re.compile(rf"{_BEFORE}(?:please )?(?:compare|vergleich\w*|contrast|benchmark)\b")
_IT = r"(?:it|this|that|the (?:result|export|module|kernel|code|thing|optimi[sz]ed \w+|new \w+))"
_ES = r"(?:es|das|dies|ihn|sie|das ergebnis|der kernel|das modul|der code|der export)"
_HOW = re.compile(
    r"\bhow (?:does|do|did) (?:it|this|that|all this|all of this|the (?:search|tool|process"
    r"|optimi[sz]ation|whole thing|program)|kernelwright|you|these agents|the agents)(?: all)?"
    r"(?: actually| really| even)? (?:work|do (?:it|this|that)|search|optimi[sz]e|function"
    r"|find \w+|make (?:it|things|my \w+|code) faster)\b"
    r"|\bhow (?:it|this|all this|kernelwright|the search) (?:all )?works\b"
    r"|^(?:so |and )?what (?:exactly )?(?:do you|does (?:this|kernelwright|this (?:tool|page"
    r"|chat)))"
    r"(?: actually| exactly)? do$"
    r"|\bwhat happens (?:next|when i (?:start|press|click|say)|during|in a search|behind|if i)\b"
    r"|\bwie (?:funktioniert|geht|arbeitet)(?: denn| eigentlich)? (?:das|es|dies|die suche"
    r"|kernelwright|der ablauf|das hier|das alles)(?: alles| hier| denn| eigentlich)*$"
    r"|\bwie läuft (?:das|es|die suche) (?:hier )?ab\b"
    r"|\bwie (?:das|es|die suche) (?:hier )?(?:alles )?(?:funktioniert|geht|abläuft)\b"
    r"|\bwie (?:arbeitest|machst|suchst) du\b|\bwas machst du (?:eigentlich|genau|hier|da)\b"
    r"|\bwas (?:passiert|geschieht) (?:jetzt|hier|dabei|wenn|bei|als nächstes)\b"
)
_GRADIENTS = re.compile(
    r"\b(?:gradients?|backwards?|back.?prop\w*|autograd|differentiable|fine.?tun\w*|train"
    r"|trains|trained|trainable|training|trainier\w*|trainiert|gradienten?|rückwärts\w*"
    r"|ableitung\w*|differenzierbar|requires.?grad)\b"
)
_SAFETY = re.compile(
    rf"\b(?:is|are) {_IT} (?:really |actually |even |still |100 ?% )?(?:safe|risky|dangerous"
    r"|reliable|production|robust|stable|trustworthy|sound|ready for (?:production|prod"
    r"|deployment))"
    rf"|\b(?:can|could|should|may) (?:i|we|one) (?:really |safely |actually |just )?(?:trust"
    rf"|rely on"
    rf"|deploy|ship|count on) {_IT}"
    r"|\b(?:in|for|into|to) (?:production|prod)\b|\bproduction.?ready\b"
    r"|\bsafe to (?:use|deploy|ship|run)\b"
    rf"|\bwhat (?:can|could|might|may) (?:go wrong|break|fail)|\b(?:can|could|will|might) {_IT} "
    r"(?:break|go wrong|give wrong|be wrong|return wrong|crash)\b|\bwhat are the risks\b"
    r"|\b(?:im|in den|in der|für den|für die) (?:betrieb|produktion|produktivbetrieb|einsatz"
    r"|produktiven? \w+)\b|\bproduktiv\b"
    rf"|\bist {_ES} (?:wirklich |auch |überhaupt )?(?:sicher|zuverlässig|stabil|gefährlich|riskant)"
    rf"|\b(?:verlassen|vertrauen|trauen)\b|\bwas kann (?:da |dabei )?schief"
)
_NO_SAFETY = re.compile(r"\bsafe to (?:stop|close|leave|pause|quit|exit|shut|turn|kill)\b")
_WHERE = (
    r"(?:devices?|gpus?|cards?|hardware|machines?|precisions?|shapes?|sizes?|dtypes?|types?|inputs?"
    r"|batch ?sizes?|tolerances?|bounds?|seeds?|distributions?|gerät\w*|karten?|rechner|maschinen?"
    r"|genauigkeit\w*|formen?|form|größen?|batchgrößen?|eingaben?|eingabegrößen?|toleranz\w*"
    r"|datentyp\w*|shape|hardware)"
)
_VERIFIED_ON = re.compile(
    rf"\b(?:what|which|welche\w*|was für)(?: \w+)? {_WHERE}\b.*\b(?:verif\w+|check\w*|test\w*"
    r"|valid|hold|holds|work|works|geprüft|verifiziert|getestet|gültig|gilt|funktioniert)"
    r"|\b(?:what|which)(?: exactly)? (?:was|were|is|did you|have you|has been) (?:it )?(?:verif\w+"
    r"|checked|tested)(?: exactly)?(?: on| for| with| against)?$"
    r"|\bwas (?:genau )?(?:wurde|hast du|ist) (?:genau )?(?:geprüft|verifiziert|getestet)"
    rf"|\b(?:other|different|dynamic|variable|arbitrary|another|any|all|bigger|larger|smaller"
    rf"|andere\w*"
    rf"|beliebige\w*|dynamische\w*|größere\w*|kleinere\w*|eine\w* andere\w*)(?: \w+)? {_WHERE}\b"
    r"|\b(?:run|runs|work|works|use|läuft|funktioniert|geht)\b.* (?:on|auf) (?:a |an |my |the "
    r"|einer? "
    r"|meine\w* )?(?:\w+ )?(?:cpu|gpu|a100|h100|h200|l40s?|rtx ?\d+|[345]0[5-9]0|t4|v100|laptop|mac"
    r"|amd|intel|nvidia|windows)\b"
)
_CHANGES = re.compile(
    r"^(?:\W|please|can|could|would|you|we|i|want|to|let us|bitte)*\b(?:use|try|take|change|set"
    r"|make|switch|with|start|what about|how about"
    r"|what if|nimm|ändere|probiere?|versuche?)\b"
)
_USE_WORDS = (
    r"(?:use|import|integrate|install|load|call|drop|plug|put|apply|include|add|get|bring|swap"
    r"|adopt"
    r"|benutz\w*|nutz\w*|verwend\w*|importier\w*|einbau\w*|einbind\w*|einsetz\w*|integrier\w*"
    r"|installier\w*|übernehm\w*|lade\w*|anwend\w*|einfüg\w*|baue?|binde?|setze?)"
)
_OWN = (
    r"(?:project|code ?base|own code|my code|our code|my model|our model|my app\w*|my script"
    r"|my repo\w*"
    r"|my pipeline|elsewhere|pytorch|projekt\w*|eigene\w* code|meine\w* (?:code|modell|skript"
    r"|programm|anwendung|netz\w*)|training loop)"
)
_USE = re.compile(
    rf"\b(?:how|where|what do i (?:have|need) to do) .*\b{_USE_WORDS}\b.*\b(?:{_IT}|{_OWN})"
    rf"|\b(?:how|can|could|may) (?:do |can |would |should )?(?:i|we|one) {_USE_WORDS} {_IT}"
    rf"(?: (?:now|then|later|myself|again|too|directly|in|into|inside|from|with|for) ?.*)?$"
    rf"|\b(?:wie|wo|kann|könnte|darf) .*\b(?:{_ES}|resultat|ergebnis)\b.*\b{_USE_WORDS}"
    rf"|\b(?:wie|wo|kann|könnte|darf) .*\b{_USE_WORDS}\b.*\b(?:{_ES}|resultat|ergebnis)\b"
    rf"|\b(?:use|using|import|importing|benutz\w*|nutz\w*|verwend\w*|einbau\w*"
    rf"|einbind\w*)\b.*\b{_OWN}"
    r"|\b(?:what do i|how do i|was) (?:do|mache? ich)(?: jetzt)? (?:with|mit) (?:it|the (?:result"
    r"|zip|export|file|download)|dem ergebnis|der (?:zip|datei)|dem (?:zip|export|download))"
    r"|\b(?:do|does|brauch\w*|must|muss)\b.*\b(?:need|need to have|brauch\w*|installier\w*"
    r"|install)\b.*"
    r"\b(?:kernelwright|nvcc|cuda(?: toolkit)?|a compiler|einen compiler|triton)\b"
    r"|\bbrauche? (?:ich|man|es) (?:dafür |dann |noch )*(?:kernelwright|nvcc|cuda|einen compiler)\b"
)
_BASELINES = re.compile(
    r"\b(?:torch\.? ?compile\w*|torchcompile|inductor|max.autotune|cuda graphs?)\b"
)
_TO_PYTORCH = re.compile(
    r"\b(?:compare|vergleich\w*|contrast)\b.*\b(?:eager|py ?torch|torch|baselines?|original"
    r"|meine\w*"
    r"|my (?:own|module|code|version)|triton|cudnn|cublas)\b"
)
_NOT_FASTER = re.compile(
    r"\bwhy (?:is|was|are|did|does|do|can|could)(?:n't)? (?:not )?(?:it|this|that|there|you"
    r"|the \w+|my \w+"
    r"|we)(?: still)?(?: not| no)?(?: (?:get|find|make|be|become|run|have|gain|see|reach))?(?: it"
    r"| any\w*"
    r"| something| much| a)*(?<! the)(?: not| no)?(?: any| much| a lot| really)*"
    r" (?:faster|quicker|improvement|speed.?up|gain|better|improved)(?! than v?\d)(?! than best)"
    r"|\bwhy (?:no|so little|only (?:a |such a )?(?:small|little)?) ?(?:improvement|speed.?up|gain"
    r"|faster)"
    r"|\bwhy (?:was|is|were) nothing faster|\bwhy not faster"
    r"|\b(?:warum|wieso|weshalb) (?:ist|wird|war|geht|wurde|läuft) (?:es|das|nichts|der kernel)?"
    r"(?: \w+)?(?: nicht| nichts| kaum)?(?: \w+)? schneller"
    r"|\b(?:warum|wieso|weshalb) (?:nicht|kein\w*|kaum|gibt es kein\w*|so wenig) ?(?:schneller"
    r"|verbesserung|beschleunigung|gewinn)"
)
_NEGATES = re.compile(r"\b(?:not|no|nothing|only|little|nicht|nichts|kaum|kein\w*|wenig)\b|n't\b")
_PRIVACY = re.compile(
    r"\b(?:code|data|file|files|module|model|source|daten|datei|quelltext|modell"
    r"|modul)\b.*\b(?:leaves?"
    r"|upload\w*|sent|send|store[ds]?|saved?|shared?|private|confidential|cloud|internet|online"
    r"|kept"
    r"|seen|go|goes|verlässt|hochgeladen|gesendet|geschickt|gespeichert|privat|vertraulich)\b"
    r"|\b(?:is|are) (?:it|this|my code|that) (?:private|confidential)\b|\bdatenschutz\b|\bprivacy\b"
    r"|\b(?:who|wer) (?:can |kann )?(?:see|sees|read|reads|sieht|liest|sehen|lesen)\b.*\b(?:code"
    r"|file"
    r"|daten|datei)\b"
)
_CANDIDATE = re.compile(r"\bv\d+\b|\bcandidate \d|\bversion \d|#\d|\b(?:best|fastest|leader) ")
_ABOUT_TRAINING = re.compile(
    r"(?:and )?(?:what|how) about (?:the )?(?:gradients?|backward\w*|training|autograd)\b"
)
_LONGEST = 160


def topic_in(said: str, turn: Turn) -> AskAbout | None:
    """The usual question that plain words ask; None when they ask none of these."""
    words = said.strip(" ?!.,;:").removesuffix(" please").removesuffix(" bitte")
    if len(words) > _LONGEST or _CANDIDATE.search(words):
        return None
    asks = said.rstrip(" !").endswith("?") or bool(_ASKS.match(words))
    compares = bool(_COMPARES.match(words))
    topic = _topic(words, turn) if asks else None
    if topic is None and compares and (_BASELINES.search(words) or _TO_PYTORCH.search(words)):
        topic = "baselines"
    return AskAbout(topic=topic) if topic else None


def _topic(words: str, turn: Turn) -> Topic | None:
    about_one = bool(spoken_of(turn)) and bool(re.search(r"\b(?:it|es)\b", words))
    if _HOW.search(words):
        return None if about_one else "how_it_works"
    if _PRIVACY.search(words) and not _USE.search(words):
        return "privacy"
    if _NOT_FASTER.search(words) and _NEGATES.search(words):
        return "not_faster"
    if _ABOUT_TRAINING.match(words):
        return "gradients"
    if _CHANGES.match(words):
        return None
    if _BASELINES.search(words):
        return "baselines"
    if _SAFETY.search(words) and not _NO_SAFETY.search(words):
        return "safety"
    if _GRADIENTS.search(words):
        return "gradients"
    if _VERIFIED_ON.search(words) and (turn.run or re.search(r"verif|geprüft|test", words)):
        return "verified_on"
    return "use" if _USE.search(words) and (turn.run or _RESULT.search(words)) else None


_RESULT = re.compile(
    r"\b(?:result|export|ergebnis|resultat|project|projekt|kernelwright|nvcc|compiler)\b"
)
