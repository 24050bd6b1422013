"""How people tell a search where to look, and what that must be understood as."""

import pytest

from kernelwright.agents.assistant.rules import read
from kernelwright.agents.assistant.types import Steer, Turn


def hint(*what: str) -> Steer:
    return Steer(hints=what)


def pin(*what: str) -> Steer:
    return Steer(pins=what)


def ban(*what: str) -> Steer:
    return Steer(bans=what)


def forget(*what: str) -> Steer:
    return Steer(forget=what)


TABLE: tuple[tuple[str, Steer], ...] = (
    ("focus on vectorised loads", hint("vectorized loads")),
    ("Please focus on vectorized loads.", hint("vectorized loads")),
    ("could you focus more on vectorised loads?", hint("vectorized loads")),
    ("concentrate on the memory accesses", hint("memory accesses")),
    ("try shared memory", hint("shared memory")),
    ("try using warp shuffles", hint("warp shuffles")),
    ("maybe try warp shuffles?", hint("warp shuffles")),
    ("can you try warp shuffles", hint("warp shuffles")),
    ("what about warp shuffles?", hint("warp shuffles")),
    ("how about using tensor cores?", hint("tensor cores")),
    ("what if you used cp.async?", hint("cp.async")),
    ("explore persistent kernels", hint("persistent kernels")),
    ("look into loop unrolling", hint("loop unrolling")),
    ("I'd try larger tiles", hint("larger tiles")),
    ("prefer one pass", hint("one pass")),
    ("go for larger tiles", hint("larger tiles")),
    ("warp shuffles look promising", hint("warp shuffles")),
    ("spend more time on coalescing", hint("coalescing")),
    ("build on v17", hint("v17")),
    ("focus on shared memory and vectorised loads", hint("shared memory", "vectorized loads")),
    ("use float4 loads", hint("float4 loads")),
    ("konzentriere dich auf vektorisierte Zugriffe", hint("vectorized loads")),
    ("foucs on vectorized loads", hint("vectorized loads")),
    ("no half precision", ban("half precision")),
    ("No half precision, please!", ban("half precision")),
    ("don't use half precision", ban("half precision")),
    ("dont use fp16", ban("fp16")),
    ("do not use any atomics", ban("atomics")),
    ("never use tensor cores", ban("tensor cores")),
    ("avoid shared memory", ban("shared memory")),
    ("stop trying shared memory", ban("shared memory")),
    ("stop using shared memory please", ban("shared memory")),
    ("please stop exploring split rows", ban("split rows")),
    ("stop wasting time on shared memory", ban("shared memory")),
    ("skip idea 2", ban("idea 2")),
    ("drop the second idea", ban("idea 2")),
    ("ban atomics", ban("atomics")),
    ("no more shared memory stuff", ban("shared memory")),
    ("without atomics", ban("atomics")),
    ("stay away from atomics", ban("atomics")),
    ("shared memory is a dead end", ban("shared memory")),
    ("no shared memory, no atomics", ban("shared memory", "atomics")),
    ("no half precision and no tensor cores", ban("half precision", "tensor cores")),
    ("keine halbe Genauigkeit", ban("half precision")),
    ("give idea 3 more budget", pin("idea 3")),
    ("give more budget to idea 3", pin("idea 3")),
    ("Give the third idea more time", pin("idea 3")),
    ("pin idea 3", pin("idea 3")),
    ("prioritise idea #3", pin("idea 3")),
    ("idea 3 first", pin("idea 3")),
    ("only use one pass", pin("one pass")),
    ("stick to vectorised loads", pin("vectorized loads")),
    ("always use vectorized loads", pin("vectorized loads")),
    ("allow shared memory again", forget("shared memory")),
    ("you may use shared memory again", forget("shared memory")),
    ("unban shared memory", forget("shared memory")),
    ("lift the ban on shared memory", forget("shared memory")),
    ("remove the pin on idea 3", forget("idea 3")),
    ("unpin idea 3", forget("idea 3")),
    ("forget what I said about atomics", forget("atomics")),
    ("shared memory is fine again", forget("shared memory")),
    ("forget everything I said", forget("everything")),
    ("clear all hints", forget("everything")),
    ("remove all bans", forget("everything")),
    ("reset the steering", forget("everything")),
    ("focus on vectorised loads, but no half precision",
     Steer(hints=("vectorized loads",), bans=("half precision",))),
    ("avoid atomics. Try warp shuffles instead and give idea 1 more budget",
     Steer(hints=("warp shuffles",), pins=("idea 1",), bans=("atomics",))),
)  # fmt: skip


@pytest.mark.parametrize(("text", "command"), TABLE, ids=lambda value: str(value)[:50])
def test_steering_is_understood(situations: dict[str, Turn], text: str, command: Steer) -> None:
    turn = situations["running"].model_copy(update={"text": text})
    reading = read(turn)
    assert reading.understanding.commands == (command,)
