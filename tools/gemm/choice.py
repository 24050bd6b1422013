"""What runs where: the measured shapes' choices, what they come to, and shapes between.

The rule for a measured shape: a kernel of ours is chosen where it is certainly faster than every
way of the library that was timed beside it, calls queued, and certainly slower than none in server
mode. Else the library keeps the shape, ties included, so the choice never loses what was measured.

For a shape between measured ones the nearest is asked, by sizes and by what the cost model says of
both. What it says is a setting to try first; a kernel that was never judged is never dispatched to.
"""

from collections.abc import Iterable, Sequence
from math import exp, inf, log, log2

from kernelwright.tools.evaluate.rules import FAST, LIBRARY, WIDER
from kernelwright.tools.gemm.record import GemmRecord, ModelView, beside
from kernelwright.tools.gemm.shapes import SIZE_CLASSES, GemmShape, SizeClass
from kernelwright.tools.types import Comparison, Setting, Value
from kernelwright.tools.types.measurement import Mode

EAGER, HEURISTIC, AUTOTUNED = "eager", *LIBRARY
# Whichever is hardest to beat for a shape, where the library may keep sums in fp16 or in float32.
FASTEST = "fastest"
# What people call the library's ways.
TITLES = {
    EAGER: "cuBLAS (PyTorch)",
    HEURISTIC: "cuBLASLt, heuristic",
    AUTOTUNED: "cuBLASLt, autotuned",
    WIDER[0]: "cuBLAS (PyTorch), sums in fp32",
    WIDER[1]: "cuBLASLt, autotuned, sums in fp32",
    FASTEST: "the fastest way of the library",
    FAST: "PyTorch with sums that are not promoted (use_fast_accum), another class",
}
# How much the cost model's view weighs beside the sizes, both in powers of two.
_MODEL_WEIGHT = 0.5


def is_ours(record: GemmRecord) -> bool:
    """Whether the dispatch runs our kernel for that shape."""
    offline = [one for one in record.offline if one.baseline != FAST]
    server = [one for one in record.server if one.baseline != FAST]
    ahead = bool(offline) and all(one.settled_outcome == "faster" for one in offline)
    return ahead and all(one.outcome != "slower" for one in server)


class Mean(Value):
    """Geometric means over shapes of the library's time over ours.

    `bare` are our kernels wherever there is a right one, `dispatched` with the library's own time
    where it keeps the shape. `won` and `lost` count the bare ones that are certainly faster and
    certainly slower, `least` is the lowest of their ratios; `chosen` counts what the dispatch gives
    to us.
    """

    mode: Mode
    baseline: str
    size_class: SizeClass | None
    shapes: int
    bare: float
    dispatched: float
    won: int
    lost: int
    chosen: int
    least: float
    without: int


def means(records: Sequence[GemmRecord], baseline: str) -> tuple[Mean, ...]:
    """Offline and server, of all shapes and by size class; none where nothing was compared.

    Args:
        records: What was measured.
        baseline: The way of the library that ours are held against.
    """
    found = []
    modes: tuple[Mode, ...] = ("offline", "server")
    for mode in modes:
        for size_class in (None, *SIZE_CLASSES):
            of = [r for r in records if size_class in (None, r.shape.size_class)]
            mean = _mean(of, baseline, mode, size_class)
            found += [mean] if mean is not None else []
    return tuple(found)


def _mean(
    records: Sequence[GemmRecord], baseline: str, mode: Mode, size_class: SizeClass | None
) -> Mean | None:
    pairs = [(record, compared(record, baseline, mode)) for record in records]
    timed = [(record, one) for record, one in pairs if one is not None]
    if not timed:
        return None
    # A shape for which no kernel is right is the library's, and no ratio without the dispatch.
    without = sum(_is_librarys(record, baseline) for record, one in pairs if one is None)
    ratios = [one.ratio for _, one in timed]
    chosen = [one.ratio if is_ours(record) else 1.0 for record, one in timed] + [1.0] * without
    return Mean(
        mode=mode,
        baseline=baseline,
        size_class=size_class,
        shapes=len(timed) + without,
        bare=geometric(ratios),
        dispatched=geometric(chosen),
        won=sum(one.outcome == "faster" for _, one in timed),
        lost=sum(one.outcome == "slower" for _, one in timed),
        chosen=sum(is_ours(record) for record, _ in timed),
        least=min(ratios),
        without=without,
    )


def _is_librarys(record: GemmRecord, baseline: str) -> bool:
    items = record.baselines.items if record.baselines else ()
    known = [item for item in items if baseline in (item.name, FASTEST)]
    return any(item.measurement is not None for item in known) and not record.is_right


def compared(record: GemmRecord, baseline: str, mode: Mode) -> Comparison | None:
    """Our kernel beside that way of the library under that load; None where it was not timed."""
    found = record.offline if mode == "offline" else record.server
    if baseline == FASTEST:
        return min(found, key=lambda one: one.ratio, default=None)
    return beside(found, baseline)


def ways(records: Iterable[GemmRecord]) -> tuple[str, ...]:
    """The library's ways that something was held against, and where sums differ the fastest."""
    names = {one.baseline for record in records for one in record.offline}
    mixed = (FASTEST,) if names & {*WIDER} else ()
    return tuple(name for name in TITLES if name in (*names, *mixed))


def geometric(ratios: Sequence[float]) -> float:
    """The geometric mean; 1 of nothing."""
    return exp(sum(map(log, ratios)) / len(ratios)) if ratios else 1.0


def hardest(records: Iterable[GemmRecord]) -> str:
    """The way of the library that there is and that is hardest to beat: the autotuned one first.

    Where sums may be kept in fp16, which of two autotuned ones that is differs from shape to shape.
    """
    names = ways(records)
    return next((name for name in (FASTEST, AUTOTUNED, HEURISTIC) if name in names), EAGER)


def nearest(
    shape: GemmShape, model: ModelView | None, records: Iterable[GemmRecord]
) -> tuple[GemmRecord, ...]:
    """Measured shapes of the same layout with a right kernel, the nearest first."""
    usable = [
        record
        for record in records
        if record.shape.layout == shape.layout and record.best is not None and record.is_right
    ]
    return tuple(sorted(usable, key=lambda record: _distance(shape, model, record)))


def _distance(shape: GemmShape, model: ModelView | None, record: GemmRecord) -> float:
    other = record.shape
    sizes = zip(
        (shape.m, shape.n, shape.k, shape.batch), (other.m, other.n, other.k, other.batch),
        strict=True,
    )  # fmt: skip
    apart = sum(log2(one / two) ** 2 for one, two in sizes)
    if model is None or record.model is None:
        return apart
    return apart + _MODEL_WEIGHT * _model_distance(model, record.model)


def _model_distance(one: ModelView, two: ModelView) -> float:
    """Tiles of other sizes, and another family, are as far as a size that is twice another."""
    rows = log2((one.tile // 1000 or 1) / (two.tile // 1000 or 1))
    columns = log2((one.tile % 1000 or 1) / (two.tile % 1000 or 1))
    return rows**2 + columns**2 + (one.strategy != two.strategy)


class Guess(Value):
    """What is expected of a shape that was not measured, by the nearest that was."""

    shape: GemmShape
    of: GemmShape
    strategy: str
    settings: tuple[Setting, ...]
    ours: bool


def guess(shape: GemmShape, model: ModelView | None, records: Iterable[GemmRecord]) -> Guess | None:
    """The nearest shape's setting, and whether it won there; None where nothing was measured."""
    found = next(iter(nearest(shape, model, records)), None)
    if found is None or found.best is None:
        return None
    return Guess(
        shape=shape,
        of=found.shape,
        strategy=found.best.strategy,
        settings=found.best.settings,
        ours=is_ours(found),
    )


class GuessQuality(Value):
    """How good guesses are, each shape guessed from all others.

    Of `shapes` the guessed setting had been tried for `tried`; there it took `loss` times the time
    of the fastest that was tried (geometric mean, at worst `worst`). `agreed` counts the shapes at
    which the guess of who wins was right.
    """

    shapes: int
    tried: int
    loss: float
    worst: float
    agreed: int


def quality(records: Sequence[GemmRecord]) -> GuessQuality:
    """Guess every measured shape from the others."""
    losses, agreed, shapes = [], 0, 0
    for record in records:
        others = [other for other in records if other is not record]
        found = guess(record.shape, record.model, others)
        if found is None or not record.is_right:
            continue
        shapes += 1
        agreed += found.ours == is_ours(record)
        times = {(t.strategy, t.settings): t.ms for t in record.tried if t.ms is not None}
        taken = times.get((found.strategy, found.settings), inf)
        losses += [taken / min(times.values())] if taken < inf else []
    return GuessQuality(
        shapes=shapes,
        tried=len(losses),
        loss=geometric(losses),
        worst=max(losses, default=1.0),
        agreed=agreed,
    )
