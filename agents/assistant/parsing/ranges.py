"""Understands that a result shall serve several sizes: `batch 1 to 64`, `any batch up to 64`.

Only the first dimension has a name that everybody uses; others are named on the command line. A
change from one size to another (`change the batch from 32 to 64`) is no range.
"""

import re

_LEAST, _MOST = r"(?P<least>\d{1,6})", r"(?P<most>\d{1,6}k?)(?![\w.])"
_BATCH = r"batch(?:es|[ -]?sizes?)?"
_RANGES = (
    rf"\b{_BATCH}(?:\s*(?:of|from|between|is|in|:|=))*\s*{_LEAST}"
    rf"\s*(?:to|up to|until|through|bis|\.\.+|-)\s*{_MOST}",
    rf"\b{_BATCH}(?:\s*(?:of|from|is|in))*\s+between\s+{_LEAST}\s+and\s+{_MOST}",
    rf"(?<![\w.]){_LEAST}\s*(?:to|\.\.+|-)\s*{_MOST}\s+(?:samples|batch(?:es)?)\b",
    rf"\b(?:any|every|all)\s+{_BATCH}\s+up to\s+{_MOST}",
)
_RANGE = tuple(map(re.compile, _RANGES))
_CHANGES = re.compile(r"\b(?:change|changed|switch|increase|raise|reduce|lower|grow|shrink)\b")
_AROUND = re.compile(
    r"\b(?:with|use|using|make|it|for|at|and|a|an|the|of|i|we|need|want|to|have|has|support|serve|"
    r"work|works|should|must|can|will|be|is|are|my|our|any|all|every|sizes?|please|now|but|varies|"
    r"vary|fast|on|in|what about|how about|that|this|also|as|well)\b"
)


def range_in(words: str) -> str:
    """`batch=1..64` where a range is spoken of, as `--shapes` takes it; else nothing."""
    if _CHANGES.search(words):
        return ""
    found = next((match for pattern in _RANGE if (match := pattern.search(words))), None)
    if found is None:
        return ""
    said = found.groupdict()
    most = said["most"]
    least, high = int(said.get("least") or 1), int(most.rstrip("k")) * (1024 if "k" in most else 1)
    return f"batch={least}..{high}" if 0 < least < high else ""


def only_range_in(words: str) -> str:
    """The range of words that say nothing else."""
    rest = without_range(words)
    return "" if re.search(r"\w", _AROUND.sub(" ", rest)) else range_in(words)


def without_range(words: str) -> str:
    """The words beside a range."""
    if not range_in(words):
        return words
    for pattern in _RANGE:
        words = pattern.sub(" ", words)
    return words
