"""Which of the machine's GPUs a suite is spread over, as a person names them."""

import os
import re
from collections.abc import Mapping

from tools.hardware.visible import visible_gpus
from tools.nouns import Value
from ui.complaints import LACKING, Complaint

VISIBLE = "CUDA_VISIBLE_DEVICES"
ALL = "all"


class Place(Value):
    """One GPU: its name for people, and what a process that is to use it alone is told."""

    name: str
    visible: str


def chosen_places(words: str, environment: Mapping[str, str] | None = None) -> tuple[Place, ...]:
    """The GPUs of `all` or `0,2`, numbered as CUDA numbers those that are visible; () for "".

    Raises:
        Complaint: These are no numbers, or there is no such GPU.
    """
    if not words:
        return ()
    count = visible_gpus()
    if count == 0:
        raise Complaint("--gpus spreads a suite over GPUs, and none can be used here", LACKING)
    numbers = range(count) if words == ALL else _numbers(words)
    if beyond := next((number for number in numbers if number >= count), None):
        raise Complaint(f"there is no GPU {beyond}: {count} can be used here, from 0 on", LACKING)
    given = os.environ if environment is None else environment
    named = [name.strip() for name in given.get(VISIBLE, "").split(",") if name.strip()]
    return tuple(
        Place(name=f"GPU {number}", visible=named[number] if named else str(number))
        for number in numbers
    )


def _numbers(words: str) -> tuple[int, ...]:
    parts = [part.strip() for part in words.split(",")]
    if not all(re.fullmatch(r"\d{1,4}", part) for part in parts):
        raise Complaint(f"--gpus takes {ALL} or numbers as in 0,1, not {words!r}")
    return tuple(dict.fromkeys(map(int, parts)))
