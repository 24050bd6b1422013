"""What a search of a recorded loop would find in a library of the other recorded loops' kernels.

Leave one out: the library holds the fastest recorded kernel of every other loop, as searches that
found the optimum there would have left it. What a search begins with is then taken by the code that
takes it out of a person's library. Loops of the same operators in other shapes come first, nearest
shapes before others; then loops whose fastest strategies can be written for this one too, which a
person's library does not offer: whether it should is judged here as well.

Not covered: kernels of the very same task, which a search takes as they are.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from math import log

from kernelwright.agents.roles.remembered import Memories, memories
from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.library.kernel_library import Repertoire
from kernelwright.tools.evaluate.surfaces import Surface
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.memory import Kept, Proof, TaskKey, device_of, key_of
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Refusal, Setting, TracePolicy


def memories_for(
    surface: Surface,
    others: Sequence[Surface],
    hardware: Hardware,
    repertoire: Callable[[], Repertoire],
) -> Memories:
    """What the search of one loop begins with out of the others' best; empty where none fits."""
    own = _key(surface.space.module)
    if own is None:
        return Memories()
    kept = [
        (item, other.space.floor_ms)
        for other in others
        if other.space.name != surface.space.name
        and other.space.language == surface.space.language
        and (item := _kept(other, hardware)) is not None
    ]

    def unlike(pair: tuple[Kept, float]) -> tuple[bool, float]:
        item, floor_ms = pair
        return item.key.structure != own.structure, abs(log(floor_ms / surface.space.floor_ms))

    like = [item for item, _ in sorted(kept, key=unlike)]
    return memories((), like, own, repertoire, device=device_of(hardware), seconds=0.0)


@cache
def _key(module: str) -> TaskKey | None:
    task = trace(module, "loop.py", TracePolicy(device="cpu"))
    return None if isinstance(task, Refusal) else key_of(task)


def _kept(surface: Surface, hardware: Hardware) -> Kept | None:
    """A loop's fastest recorded kernel, as a library would hold it."""
    key = _key(surface.space.module)
    timed = [point for point in surface.points if point.median_ms is not None]
    best = min(timed, key=lambda point: point.median_ms or 0.0)
    if key is None or not best.median_ms:
        return None
    way = surface.space.ways[best.way]
    pairs = zip(way.tunables, best.values, strict=True)
    candidate = new_candidate(
        surface.space.language,
        way.draft.kernel,
        way.draft.plan,
        settings=tuple(Setting(name=name, value=value) for name, value in pairs),
        strategies=way.draft.strategies,
    )
    ratio = surface.eager_ms / best.median_ms
    proof = Proof(
        median_ms=best.median_ms,
        baseline="eager",
        ratio=ratio,
        ci95=(ratio, ratio),
        floor_fraction=surface.space.floor_ms / best.median_ms,
        method="recorded",
    )
    return Kept.of(
        candidate,
        key,
        inputs=(),
        device=device_of(hardware),
        kind=hardware.kind,
        architecture=hardware.architecture or "",
        proof=proof,
        at=datetime(2000, 1, 1, tzinfo=UTC),
        task=surface.space.name,
    )
