"""Mends typing errors towards the words that mean something here.

Only asked when a clause was not understood as it stands, so a right word is never made a wrong
one that changes what was meant.
"""

import re
from functools import cache

_TABLE = """
    pause stop continue resume start begin search export download report explain compare
    profile ledger progress status show code source kernel candidate version best fastest
    round rounds ideas help doctor machine runs history reopen audit cancel focus avoid
    forget prefer pinned banned shared memory vectorized loads warp shuffle registers tensor
    cores precision half roofline faster slower optimize softmax module result results
    deeper quick minutes seconds steering budget between difference bottleneck allow without
    trying latest please working leaderboard everything tried device why what does download
    kernelbench compile compiled compare
"""
_KNOWN = frozenset(_TABLE.split())
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
