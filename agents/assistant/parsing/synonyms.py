"""What people's words for techniques mean in the playbook's own words.

A wish works where its words occur in an idea; the playbook says `vectors` where people say
vectorised loads, SIMD or float4. Models read the person's words and need none of this.
"""

import re

from kernelwright.agents.shared.steering import Steering

_TOPICS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"vectori[sz]\w*|vector (?:loads?|access\w*|instructions?|width)|simd|avx\S*|float[24]|"
     r"128.?bit|wide(?:r)? (?:loads?|vectors?|access\w*)|sse\S*", ("vector", "vectors")),
    (r"shared mem\w*|smem|scratchpad|shmem", ("shared",)),
    (r"regist\w+", ("registers",)),
    (r"warps?|shuffles?|shfl\S*|warp.?level|lane\w*", ("warp",)),
    (r"one.?pass|single.?pass|online|streaming softmax|fewer passes", ("online", "one pass")),
    (r"re.?comput\w+|re.?read\w*|two.?pass", ("recomputing", "re-read")),
    (r"cach(?:e|ed|ing)|row.?buffers?|blocking", ("cache",)),
    (r"l2\b.*", ("l2",)),
    (r"cp\.?async|async\w*|double.?buffer\w*|pipelin\w+|prefetch\w*|tma", ("asynchronous",)),
    (r"persistent\b.*|resident\b.*", ("persistent", "resident")),
    (r"split\w*|more (?:parallelism|blocks|threads)|occupancy|parallelism",
     ("split", "parallelism")),
    (r"fus(?:e|ed|ing|ion)\b.*", ("fused", "fusion")),
    (r"coalesc\w*|contiguous\b.*", ("consecutive", "contiguous")),
    (r"til(?:e|es|ed|ing)\b.*", ("tile", "tiles")),
    (r"stream\w*", ("streamed", "streaming")),
)  # fmt: skip
_AROUND = r"(?:\w+ ){0,4}?(?:%s)(?: \w+){0,2}"


def in_playbook_words(wish: str) -> tuple[str, ...]:
    """The wish, and what else says the same in the playbook's ideas."""
    said = wish.strip().lower()
    for pattern, words in _TOPICS:
        if re.fullmatch(_AROUND % pattern, said):
            return tuple(dict.fromkeys((wish, *words)))
    return (wish,)


def widened(steering: Steering) -> Steering:
    """The same wishes in the person's words and in the playbook's."""
    return Steering(hints=_all(steering.hints), pins=_all(steering.pins), bans=_all(steering.bans))


def _all(wishes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(word for wish in wishes for word in in_playbook_words(wish)))
