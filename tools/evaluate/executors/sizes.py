"""A task at the other sizes that it shall serve, and a candidate judged at each of them.

Tasks are really traced at the ends of a range and where kernels are written for it; between these
a task is like the nearest that was traced, with results of the sizes that follow. Every check is
the judge's own, on every distribution and with guarded memory; only times are left out.
"""

from collections.abc import Callable, Iterator, Sequence

from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.tasks.inputs.shapes import (
    as_texts,
    at,
    at_sizes,
    checked_sizes,
    combinations,
    linear_outputs,
    ranged,
    telling_sizes,
)
from kernelwright.tools.types import Candidate, Refusal, Task, TracePolicy, Verdict, refuse
from kernelwright.tools.types.shapes import Dimension, LinearSize, SizeCheck

Sizes = tuple[int, ...]
Keep = Callable[[SizeCheck], None]


def _forget(check: SizeCheck) -> None:
    """For whoever looks once."""


class SizedTasks:
    """The tasks by their sizes, in the order of the task's dimensions.

    Args:
        executor: reads and judges.
        task: at its example's sizes, with dimensions.
        policy: by which it was read.
        seed: of the sizes that are drawn.
    """

    def __init__(self, executor: Executor, task: Task, policy: TracePolicy, seed: int) -> None:
        self._executor, self._task, self._policy, self._seed = executor, task, policy, seed
        self.dimensions: tuple[Dimension, ...] = task.dimensions
        self.example: Sizes = tuple(item.example for item in task.dimensions)
        self.ranged = ranged(task.dimensions)
        self.traced: dict[Sizes, Task] = {self.example: task}
        self.outputs: tuple[tuple[LinearSize, ...], ...] = ()

    async def read(self, wanted: Sequence[Sizes]) -> None:
        """Trace the task at these sizes; RefusedError where it does not run or fits no rule."""
        for sizes in wanted:
            if sizes not in self.traced:
                self.traced[sizes] = await self._read(sizes)
        self.outputs = linear_outputs(tuple(self.traced.items()))

    def at(self, sizes: Sizes) -> Task:
        """The task at sizes that were traced, or like the nearest that was."""
        if sizes in self.traced:
            return self.traced[sizes]
        inputs = at(self._task, self.dimensions, sizes)
        like = self.traced[min(self.traced, key=lambda known: _apart(known, sizes))]
        update = {
            "inputs": inputs,
            "input_override": as_texts(inputs),
            "outputs": at_sizes(self.outputs, like.outputs, sizes),
        }
        return like.model_copy(update=update)

    @property
    def telling(self) -> tuple[Sizes, ...]:
        """What kernels are written at, so that they hold for every size."""
        number = self.ranged
        of_range = () if number is None else telling_sizes(self.dimensions[number])
        return tuple(self._choices(of_range))

    @property
    def ends(self) -> tuple[Sizes, ...]:
        """The ends of the range; every combination where there is none."""
        number = self.ranged
        item = None if number is None else self.dimensions[number]
        return tuple(self._choices((item.least, item.most) if item else ()))

    @property
    def looked_at(self) -> tuple[Sizes, ...]:
        """What a candidate is judged at."""
        number = self.ranged
        item = None if number is None else self.dimensions[number]
        return tuple(self._choices(checked_sizes(item, self._seed) if item else ()))

    def words(self, sizes: Sizes) -> str:
        """The sizes as a person would say them."""
        pairs = zip(self.dimensions, sizes, strict=True)
        return ", ".join(f"{item.name}={size}" for item, size in pairs)

    async def checked(
        self, candidate: Candidate, known: Sequence[SizeCheck] = (), keep: Keep = _forget
    ) -> tuple[list[SizeCheck], str]:
        """What was found at each size up to the first where something is wrong, and what that is.

        Args:
            candidate: which one.
            known: what an earlier session found of it, which is not looked at again.
            keep: is given what is found, for the next.

        Raises:
            RefusedError: nobody can verify other sizes here.
        """
        before = {check.sizes: check for check in known}
        checks: list[SizeCheck] = []
        for sizes in self.looked_at:
            if (made := before.get(sizes)) is None:
                made = await self._looked_at(sizes, candidate)
                keep(made)
            checks.append(made)
            if made.verdict is not Verdict.CORRECT:
                return checks, f"at {self.words(sizes)}: {made.verdict}: {made.reason}"
        return checks, ""

    async def _looked_at(self, sizes: Sizes, candidate: Candidate) -> SizeCheck:
        found = await self._executor.prove(self.at(sizes), candidate)
        if found is None:
            raise refuse("Other sizes cannot be verified where the device is somewhere else.")
        checked = found.verification
        return SizeCheck(
            sizes=sizes,
            verdict=checked.verdict,
            reason=checked.reason,
            error_ratio=checked.error_ratio,
            distributions=checked.distributions,
        )

    async def beside_eager(self, check: SizeCheck, candidate: Candidate) -> SizeCheck:
        """The check with times, the candidate's and eager PyTorch's, where both have one."""
        task = self.at(check.sizes)
        baselines = await self._executor.baselines(task, eager_only=True)
        if isinstance(baselines, Refusal):
            return check
        eager = next((item.measurement for item in baselines.items if item.name == "eager"), None)
        found = await self._executor.evaluate(task, candidate, "screen")
        if found.screen is None or eager is None:
            return check
        update = {"candidate_ms": found.screen.median_ms, "eager_ms": eager.median_ms}
        return check.model_copy(update=update)

    def _choices(self, of_range: Sequence[int]) -> Iterator[Sizes]:
        """Every combination of single sizes with each of these sizes of the range."""
        for points in combinations(self.dimensions):
            sizes = [points.get(number, size) for number, size in enumerate(self.example)]
            if self.ranged is None:
                yield tuple(sizes)
                continue
            for size in of_range:
                sizes[self.ranged] = size
                yield tuple(sizes)

    async def _read(self, sizes: Sizes) -> Task:
        """The task as the file gives it at those sizes, with values drawn as at the example's."""
        inputs = at(self._task, self.dimensions, sizes)
        texts = {"inputs": as_texts(inputs), "shapes": "", "entry": self._task.entry}
        found = await self._executor.retrace(self._task, self._policy.model_copy(update=texts))
        if isinstance(found, Refusal):
            raise refuse(f"at {self.words(sizes)}: {found.sentence}")
        return found.model_copy(update={"inputs": inputs, "name": self._task.name})


def _apart(one: Sizes, other: Sizes) -> int:
    return sum(abs(a - b) for a, b in zip(one, other, strict=True))
