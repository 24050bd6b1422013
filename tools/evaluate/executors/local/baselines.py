"""What is known of a task before it is judged: PyTorch's own times, and compiled candidates.

`KnownBaselines` measures what PyTorch itself does with a task on this machine, once a task, and
remembers it. `Compiling` compiles candidates outside the device's lease, some before they are asked
about.
"""

import asyncio
from collections.abc import Sequence

from kernelwright.tools.evaluate.executors.local.builder import COMPILED, Builder, Making
from kernelwright.tools.evaluate.executors.local.workshop import (
    Workshop,
    expect,
    fell,
    is_spent,
    readable,
    task_key,
)
from kernelwright.tools.evaluate.messages import (
    BaselineMeasured,
    BaselineRequest,
    RehearseRequest,
)
from kernelwright.tools.evaluate.rules import (
    AUTOTUNED,
    CERTIFY,
    FAST,
    GRAPHS,
    LIBRARY,
    WIDER,
    Defence,
)
from kernelwright.tools.evaluate.sandbox.ending import Ended
from kernelwright.tools.languages import Built, CompileFailure, compile_candidate
from kernelwright.tools.languages.base.compile import cache_folder
from kernelwright.tools.types import (
    Baseline,
    Baselines,
    CallMode,
    Candidate,
    DType,
    Effort,
    Refusal,
    Task,
)

_Compiled = Built | CompileFailure


class Compiling:
    """Objects of candidates; what was begun beforehand is waited for and not compiled twice."""

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        self._begun: dict[str, asyncio.Task[_Compiled]] = {}

    def begin(self, candidates: Sequence[Candidate]) -> None:
        """Compile these side by side; on a CPU none is timed before all of them are done."""
        for candidate in candidates:
            if candidate.id not in self._begun:
                self._begun[candidate.id] = asyncio.create_task(self._compile(candidate))

    async def of(self, candidate: Candidate) -> _Compiled:
        """The object of a candidate, or why there is none."""
        if self._shop.device == "cpu" and self._begun:
            await asyncio.wait(self._begun.values())
        begun = self._begun.pop(candidate.id, None)
        return await (begun or self._compile(candidate))

    async def aclose(self) -> None:
        """End what nobody waits for."""
        for begun in self._begun.values():
            begun.cancel()
        await asyncio.gather(*self._begun.values(), return_exceptions=True)
        self._begun = {}

    async def _compile(self, candidate: Candidate) -> _Compiled:
        rules = self._shop.rules
        return await compile_candidate(
            candidate,
            architecture=(await self._shop.hardware()).architecture,
            timeout_s=rules.compile_s,
            contract=rules.has(Defence.ALLOW_LIST),
        )


STANDARD = {
    "cpu": ("eager", "compile"),
    "cuda": ("eager", "compile", "graph", "compile-graph"),
}
# With evidence of timing alone max-autotune costs more than all the rest of a certification. And a
# graph takes away only the gaps between launches, of which there is little in a long forward.
_LAUNCHES_MATTER_MS = 1.0


class KnownBaselines:
    """The baselines of every task that was asked about, and which of them cannot be made.

    Attributes:
        eager_alone: Whether no other one is wanted for now, as of a model's regions.
    """

    def __init__(self, shop: Workshop, builder: Builder) -> None:
        self._shop = shop
        self._builder = builder
        self.eager_alone = False
        self._known: dict[str, Baselines] = {}
        self._unmakeable: set[tuple[str, str]] = set()

    def of(self, task: Task) -> Baselines | None:
        """The known baselines of a task."""
        return self._known.get(task_key(task))

    def remember(self, task: Task, baselines: Baselines) -> None:
        """Take baselines that an earlier session measured as known; they are made when needed."""
        self._known[task_key(task)] = baselines

    async def measured(self, task: Task, *, eager_only: bool) -> Baselines | Refusal:
        """Measure those that are not known yet; a Refusal where not even eager runs."""
        names, eager_only = self._standard(task), eager_only or self.eager_alone
        await self._shop.hardware()
        # Waiting for a compiler is a cost of that baseline, and not of the search beside it.
        waited_s = 0.0 if eager_only else await self._settled(task)
        async with self._shop.undisturbed():
            for name in names[:1] if eager_only else names:
                known = self.of(task) or Baselines(items=())
                if known.named(name) is not None or self._is_left_out(known, name):
                    continue
                item = await self._measure(task, name)
                if name == "compile":
                    item = item.model_copy(update={"setup_s": item.setup_s + waited_s})
                if name == "eager" and item.measurement is None:
                    return Refusal(sentence=f"{task.name} does not run: {item.failure}.")
                self.remember(task, Baselines(items=(*known.items, item)))
                taken = item.measurement
                await self._shop.near_the_floor(task, taken.median_ms if taken else None)
            if not eager_only:
                await self._shop.confirm()
        return self._known[task_key(task)]

    async def _settled(self, task: Task) -> float:
        """Wait for what is built beside the search.

        On a CPU nothing can be timed meanwhile: who will run it imports the compiler, and the
        finalist's process starts.
        """
        if self._shop.device != "cpu" or not self._builder.at_work(task):
            return await self._builder.settled(task)
        keeper, reads = self._shop.keeper, readable(task)
        async with self._shop.lease:
            keeper.prepare((*reads, cache_folder()))
            waited_s, _, _ = await asyncio.gather(
                self._builder.settled(task),
                keeper.ask(RehearseRequest(compiler=True), self._shop.rules.start_s, reads),
                keeper.prepared(),
            )
        return waited_s

    def to_compare(self, task: Task, effort: Effort, mode: CallMode = "eager") -> tuple[str, ...]:
        """Those that a candidate is timed beside at that effort.

        What is a graph itself competes with torch.compile's as well, however long a call takes.
        """
        known = self.of(task)
        if effort == "screen" or known is None:
            return ()
        names = tuple(item.name for item in known.items if item.measurement is not None)
        if effort == "certify" and self._shop.rules.evidence in AUTOTUNED:
            # One that was remembered without a time was left out, or could not be made.
            others = (*CERTIFY[self._shop.device], *(GRAPHS if mode == "graph" else ()))
            names += tuple(n for n in others if known.named(n) is None)
        return tuple(name for name in names if (task_key(task), name) not in self._unmakeable)

    def left_out(self, task: Task) -> tuple[str, ...]:
        """Those that nobody compares with at this depth of evidence, though they could be made."""
        if self._shop.rules.evidence == "full":
            return ()
        device, known = self._shop.device, self.of(task) or Baselines(items=())
        graphs = [name for name in self._standard(task) if self._is_left_out(known, name)]
        return (*graphs, *(() if self._shop.rules.evidence in AUTOTUNED else CERTIFY[device]))

    def _is_left_out(self, known: Baselines, name: str) -> bool:
        eager = known.named("eager")
        full = self._shop.rules.evidence == "full"
        if name not in GRAPHS or eager is None or (full and name == "graph"):
            return False
        return eager.measurement is not None and eager.measurement.median_ms > _LAUNCHES_MATTER_MS

    def _standard(self, task: Task) -> tuple[str, ...]:
        """What is measured for a task at this depth of evidence."""
        if self._shop.rules.evidence == "library":
            wider = () if task.graph.sums is DType.FLOAT32 else WIDER
            given = {spec.tensor.dtype for spec in task.tensor_inputs if spec.tensor}
            fast = (FAST,) if DType.FLOAT8_E4M3FN in given else ()
            return ("eager", *LIBRARY, *wider, *fast)
        return STANDARD[self._shop.device]

    def failures(self, task: Task) -> tuple[str, ...]:
        """What nobody can be said to be faster than, as it could not be made, with the reason."""
        known = self.of(task) or Baselines(items=())
        return tuple(
            f"faster than {item.name}, which could not be made here: {item.failure[:160]}"
            for item in known.items
            if item.measurement is None and item.failure
        )

    def give_up(self, task: Task, name: str) -> None:
        """One that costs its worker is not tried again."""
        self._unmakeable.add((task_key(task), name))

    async def _measure(self, task: Task, name: str) -> Baseline:
        shop, making = self._shop, Making()
        if name in COMPILED:
            making = await self._builder.build(task, name, readable(task))
            if making.ended:
                return Baseline(name=name, failure=making.ended)
        request = BaselineRequest(
            task=task,
            hardware=await shop.hardware(),
            rules=shop.rules,
            name=name,
            seed=shop.fresh_seed(task, name),
            compiled=self._builder.lying(task),
        )
        reply = await shop.ask(task, request, shop.rules.baseline_s, readable(task))
        lost = ""
        if isinstance(reply, Ended) and request.compiled:
            # What another process built may not run here, which is no fault of the module's.
            lost = f"compiled again: with what another process had compiled it {_end(reply)}"
            self._builder.discard(task)
            request = request.model_copy(update={"compiled": ()})
            reply = await shop.ask(task, request, shop.rules.baseline_s, readable(task))
        elif name == "eager" and isinstance(reply, Ended) and fell(reply):
            # A process that earlier tasks spoiled may fall over the first call of PyTorch's own,
            # and without eager there is no search: a new one tells whether it is the module.
            lost = f"asked again: the process before it {_end(reply)}"
            reply = await shop.ask(task, request, shop.rules.baseline_s, readable(task))
        if is_spent(reply) and not expect(reply, BaselineMeasured).baseline.measurement:
            # A new process has what earlier tasks may have left no room for.
            reply = await shop.ask(task, request, shop.rules.baseline_s, readable(task))
        if isinstance(reply, Ended):
            return Baseline(name=name, failure=f"{name} {_end(reply)}")
        found = _noted(expect(reply, BaselineMeasured).baseline, lost)
        return found.model_copy(update={"setup_s": found.setup_s + making.seconds})


def _end(ended: Ended) -> str:
    where = f" ({ended.place})" if ended.place else ""
    return f"{ended.words}{where}"


def _noted(item: Baseline, words: str) -> Baseline:
    """The same, with the words among its conditions; a failure has none."""
    if item.measurement is None or not words:
        return item
    conditions = item.measurement.conditions.noted(words)
    measurement = item.measurement.model_copy(update={"conditions": conditions})
    return item.model_copy(update={"measurement": measurement})
