"""What is tried for a product: kernels of every family that takes it, with settings in an order.

First the tiles that the cost model puts first, of the family that it puts first and then of the
others; and, where other shapes were measured before, what won the nearest of them. After these
`around` proposes what differs from the fastest in one setting. Nothing is known of any one shape.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from kernelwright.profiles.load import Hardware
from kernelwright.tools.candidates import ContractError, complete_settings
from kernelwright.tools.candidates.kernel_source import KernelSource
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.ir import Loop, Program, Strategy
from kernelwright.tools.codegen.library.assemble import assemble
from kernelwright.tools.codegen.lower import Lowering, lower
from kernelwright.tools.languages import new_candidate, parse_kernel, with_settings
from kernelwright.tools.types import Candidate, Graph, Setting, Value

# Of the family predicted fastest so many tiles are looked at first, of each other one so many.
_TILES_OF_FIRST, _TILES_OF_OTHERS = 3, 2
# Where a family says itself which settings come first, so many of them.
_SETTINGS_OF_FIRST, _SETTINGS_OF_OTHERS = 6, 2
# A family this much slower by the cost model is not looked at; of short products it tells less.
_FAR_BEHIND, _SHORT_MS = 1.5, 0.004
TILE = "TILE"
# Settings in the order in which changing one was seen to matter, of halves and of float32
# (benchmarks/results/h200/products.jsonl); those that are not named come last. Of halves tiles,
# parts and turns differ among the first anyway, and of clusters and boxes the model is wrong by
# what they matter (up to 4 %, gemm_ways.jsonl there).
_WEIGHTY = (
    "CLUSTER", "BOXES", "SPLIT", "SPLITS", "TURNS", TILE, "WARPS", "DEPTH", "GROUP", "LATE",
    "STAGES", "THREADS",
)  # fmt: skip


class Proposal(Value):
    """A candidate with its strategy and settings, names without the kernel's prefix."""

    strategy: str
    settings: tuple[Setting, ...]
    candidate: Candidate

    @property
    def words(self) -> str:
        """As one line."""
        return f"{self.strategy} {' '.join(f'{s.name}={s.value}' for s in self.settings)}"


class ProductKernels:
    """Every kernel for one product on one device.

    Args:
        graph: The task's.
        hardware: What they are for.
    """

    def __init__(self, graph: Graph, hardware: Hardware) -> None:
        self._program: Program = lower(graph, lowering=Lowering(products=True))
        self._hardware, self._emitter = hardware, CudaEmitter()
        loops = self._program.loops
        self._loop: Loop | None = loops[0] if len(loops) == 1 else None
        self._bases: dict[str, tuple[Candidate, KernelSource]] = {}

    @cached_property
    def strategies(self) -> tuple[Strategy, ...]:
        """Those that keep up, the one predicted fastest first; none for what is no product."""
        if self._loop is None:
            return ()
        found = sorted(self._emitter.strategies(self._loop, self._hardware), key=self.predicted_ms)
        limit = _FAR_BEHIND * self.predicted_ms(found[0]) + _SHORT_MS if found else 0.0
        return tuple(one for one in found if self.predicted_ms(one) <= limit)

    def predicted_ms(self, strategy: Strategy) -> float:
        """By the cost model, for the settings that it puts first."""
        assert self._loop is not None
        return self._emitter.predicted_ms(self._loop, strategy, self._hardware)

    def tiles(self, strategy: Strategy) -> tuple[int, ...]:
        """The tiles that a strategy may have, the one predicted fastest first."""
        _, source = self._base(strategy)
        return next((one.values for one in source.tunables if _bare(one.name) == TILE), ())

    def first(self, known: Iterable[tuple[str, Sequence[Setting]]] = ()) -> list[Proposal]:
        """What to try first, in this order.

        Args:
            known: Strategies and settings that won near shapes, the nearest first.
        """
        by_name = {one.name: one for one in self.strategies}
        found = [
            self.proposal(by_name[name], {s.name: s.value for s in settings})
            for name, settings in known
            if name in by_name
        ]
        for place, strategy in enumerate(self.strategies):
            wanted = self._wanted(strategy, is_first=place == 0)
            found += [self.proposal(strategy, one) for one in wanted]
        return list(_each_once(one for one in found if one is not None))

    def _wanted(self, strategy: Strategy, *, is_first: bool) -> list[dict[str, int]]:
        """What the cost model asks of a strategy's settings, the best first."""
        assert self._loop is not None
        told = self._emitter.first_settings(self._loop, strategy, self._hardware)
        count = _SETTINGS_OF_FIRST if is_first else _SETTINGS_OF_OTHERS
        if told:
            return [{one.name: one.value for one in settings} for settings in told[:count]]
        count = _TILES_OF_FIRST if is_first else _TILES_OF_OTHERS
        # A matrix times a vector has no tiles: its settings are as they come.
        return [{TILE: tile} for tile in self.tiles(strategy)[:count]] or [{}]

    def around(self, fastest: Proposal) -> Iterator[Proposal]:
        """What differs from the fastest so far in one setting, the settings in turns."""
        strategy = next(one for one in self.strategies if one.name == fastest.strategy)
        _, source = self._base(strategy)
        base = {one.name: one.value for one in fastest.settings}
        tunables = sorted(source.tunables, key=lambda one: _weight(_bare(one.name)))
        queues = [
            [
                base | {_bare(one.name): value}
                for value in one.values
                if value != base[_bare(one.name)]
            ]
            for one in tunables
        ]
        for turn in range(max(map(len, queues), default=0)):
            for queue in queues:
                changed = self.proposal(strategy, queue[turn]) if turn < len(queue) else None
                if changed is not None and _distance(changed, fastest) == 1:
                    yield changed

    def proposal(self, strategy: Strategy, wanted: Mapping[str, int]) -> Proposal | None:
        """A candidate with as many of these settings as fit together, the tile above all.

        Returns:
            None where not even the tile is one of the kernel's.
        """
        base, source = self._base(strategy)
        kept: list[Setting] = []
        complete = complete_settings(source)
        for tunable in source.tunables:
            value = wanted.get(_bare(tunable.name))
            if value is None:
                continue
            try:
                trial = [*kept, Setting(name=tunable.name, value=value)]
                complete = complete_settings(source, trial)
                kept = trial
            except ContractError:
                if _bare(tunable.name) == TILE:
                    return None
        settings = tuple(Setting(name=_bare(s.name), value=s.value) for s in complete)
        candidate = with_settings(base, complete)
        return Proposal(strategy=strategy.name, settings=settings, candidate=candidate)

    def _base(self, strategy: Strategy) -> tuple[Candidate, KernelSource]:
        if strategy.name not in self._bases:
            assert self._loop is not None
            chosen = {self._loop.name: strategy}
            text = assemble(self._program, self._emitter, chosen, self._hardware)
            base = new_candidate("cuda", text.kernel, text.plan)
            self._bases[strategy.name] = base, parse_kernel(text.kernel, "cuda")
        return self._bases[strategy.name]


def _weight(name: str) -> int:
    return _WEIGHTY.index(name) if name in _WEIGHTY else len(_WEIGHTY)


def _bare(name: str) -> str:
    """A tunable's name without its kernel's prefix, which differs from loop to loop."""
    return name.rpartition("_")[2]


def _distance(one: Proposal, other: Proposal) -> int:
    pairs = zip(one.settings, other.settings, strict=True)
    return sum(first.value != second.value for first, second in pairs)


def _each_once(proposals: Iterable[Proposal]) -> Iterator[Proposal]:
    seen: set[str] = set()
    for one in proposals:
        if one.candidate.id not in seen:
            seen.add(one.candidate.id)
            yield one
