"""Reads the usual German for the same wishes, word by word into English.

Enough for short orders and questions; longer German is for a model.
"""

import re

_MARKS = re.compile(
    r"\b(?:ist|der|die|das|den|dem|und|bitte|warum|wieso|zeig\w*|mach\w*|schneller|"
    r"pausier\w*|anhalten|weiter\w*|beende\w*|"
    r"starte\w*|los|vergleich\w*|erklär\w*|erklaer\w*|hilfe|exportier\w*|kein\w*|ohne|"
    r"nicht|auf|meine\w*|welche\w*|wie|was|"
    r"konzentrier\w*|versuch\w*|stopp\w*|halt|lauf|läufe|bericht|abbrechen|abbruch)\b"
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
    (r"\bgemeinsame(?:n|r|s)? speicher\b", "shared memory"),
    (r"\bvektorisierte(?:n|r)? (?:ladezugriffe|zugriffe|loads)\b", "vectorized loads"),
    (r"\blauf(?:e)? los\b|\bleg(?:e)? los\b|\bfang(?:e)? an\b|\blos geht'?s\b", "start"),
)  # fmt: skip
# Word for word; an underscore stands for a space.
_TABLE = """
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
    diese=this dies=this ein=a eine=a einen=a
"""
_WORDS = dict(pair.replace("_", " ").split("=") for pair in _TABLE.split())


def translated(words: str) -> str:
    """Plain English words; what is not German stays as it is."""
    if not _MARKS.search(words):
        return words
    for pattern, english in _PHRASES:
        words = re.sub(pattern, english, words)
    return re.sub(r"[a-zäöüß]+", lambda match: _WORDS.get(match[0], match[0]), words)
