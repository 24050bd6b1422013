"""One process of `independent_check.py`: writes a module's candidates, judges and checks them.

The judge is Kernelwright's own, as a worker runs it (`Proof`), at the effort of a certification:
the task's values and every distribution that suits it, other weights, poisoned and guarded memory.
What it says is then held against `Float64Check`, which knows nothing of it. Candidates run in this
process, as it may die of them: each is announced before it is judged. Not covered: the walls,
timing, other shapes.
"""

import asyncio
import random
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

ROOT = Path(__file__).resolve().parents[2]
CODEGEN = ROOT / "benchmarks" / "codegen"
sys.path[:0] = [str(ROOT), str(CODEGEN), str(CODEGEN / "surfaces")]

from random_modules import Drawn, module
from surface_space import choices

from kernelwright.profiles.load import Hardware
from kernelwright.tools.candidates import ContractError, valid_settings
from kernelwright.tools.codegen.library.kernel_library import PlaybookRepertoire, repertoire_for
from kernelwright.tools.evaluate.verify.reasons import poisoned
from kernelwright.tools.languages import (
    Built,
    CompileFailure,
    compile_candidate,
    new_candidate,
    parse_kernel,
)
from kernelwright.tools.learning.writing.drafts import NOWHERE
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Candidate, Refusal, Task, TracePolicy, Value, Verdict

COMPILE_S = 60.0
# Settings that a choice is made from, and how often a kernel's own are taken.
_SETTINGS, _DEFAULT_SHARE = 160, 0.35
# Compilers that one process keeps busy while it judges.
_COMPILERS = 2


class Outcome(Value):
    """One candidate: what it is, what the judge said, and what the check says.

    Attributes:
        verdict: the judge's; "compiled" where nothing was judged.
        error_ratio: the judge's worst.
        check: "right", "refused", or "" where it was not checked.
        worst_draw: of the check, with the largest ratio; `rms_ratio` and `worst_ratio` are over
            PyTorch's own error, over all draws.
        draws: how many draws said something.
        at_edge: places at the edge of overflow, over all draws; the check leaves them out.
    """

    module: int
    name: str
    family: str
    dtype: str
    candidate: str
    strategies: tuple[str, ...] = ()
    settings: str = ""
    verdict: str = ""
    reason: str = ""
    error_ratio: float | None = None
    compile_s: float = 0.0
    judge_s: float = 0.0
    check_s: float = 0.0
    check: str = ""
    words: str = ""
    worst_draw: str = ""
    rms_ratio: float = 0.0
    worst_ratio: float = 0.0
    draws: int = 0
    at_edge: int = 0


class Report(Protocol):
    """What the process says of a candidate: before it is judged, and afterwards."""

    def begins(self, outcome: Outcome) -> None:
        """It is judged from now on."""
        ...

    def ended(self, outcome: Outcome) -> None:
        """It was judged and checked."""
        ...


@dataclass(frozen=True)
class Plan:
    """What every process is told.

    Attributes:
        seed: of modules, choices and all values.
        most: candidates of a module.
        compile_only: nothing is run, as the device is not there.
    """

    hardware: Hardware
    seed: int
    most: int
    compile_only: bool

    @property
    def device(self) -> str:
        """As torch names it."""
        return "cuda:0" if self.hardware.kind == "cuda" else "cpu"


def work(plan: Plan, number: int, done: frozenset[str], report: Report) -> None:
    """Judge and check one module's candidates, but for those that are done."""
    drawn = module(plan.seed, number)
    task = trace(drawn.source, f"{NOWHERE}/{drawn.name}.py", TracePolicy(device=plan.hardware.kind))
    if isinstance(task, Refusal):
        return
    dice = random.Random(f"candidates {plan.seed} {number}")
    made = [one for one in _candidates(task, plan, dice) if one.id not in done]
    with ThreadPoolExecutor(_COMPILERS) as pool:
        builds = [pool.submit(_build, one, plan.hardware.architecture) for one in made]
        bench = None
        for candidate, building in zip(made, builds, strict=True):
            outcome = _described(number, drawn, candidate)
            report.begins(outcome)
            outcome = _built(outcome, building)
            if not outcome.verdict and not plan.compile_only:
                bench = bench or _Bench(plan, drawn, task)
                outcome = bench.judged(outcome, candidate, building.result())
            report.ended(outcome)
            if bench is not None and bench.is_lost:
                raise DeviceLostError("the device's context is gone")


class DeviceLostError(RuntimeError):
    """Nothing can run on the device from this process any more."""


def _build(candidate: Candidate, architecture: str | None) -> Built | CompileFailure:
    return asyncio.run(compile_candidate(candidate, architecture=architecture, timeout_s=COMPILE_S))


def _described(number: int, drawn: Drawn, candidate: Candidate) -> Outcome:
    return Outcome(
        module=number,
        name=drawn.name,
        family=drawn.family,
        dtype=drawn.dtype,
        candidate=candidate.id,
        strategies=candidate.strategies,
        settings=" ".join(f"{item.name}={item.value}" for item in candidate.settings),
    )


def _built(outcome: Outcome, building: "Future[Built | CompileFailure]") -> Outcome:
    found = building.result()
    outcome = outcome.model_copy(update={"compile_s": found.seconds})
    if isinstance(found, CompileFailure):
        return outcome.model_copy(update={"verdict": found.verdict.value, "reason": found.message})
    return outcome


def _candidates(task: Task, plan: Plan, dice: random.Random) -> Iterator[Candidate]:
    """Every strategy of every loop, with the kernels' own settings or with others."""
    repertoire = repertoire_for(task, plan.hardware)
    ways = covering(choices(repertoire.options()), plan.most, dice)
    seen: set[str] = set()
    for turn in range(2 * plan.most):
        if not ways or len(seen) == plan.most:
            return
        made = _candidate(repertoire, ways[turn % len(ways)], dice)
        if made is not None and made.id not in seen:
            seen.add(made.id)
            yield made


def covering(
    ways: Sequence[Mapping[str, str]], most: int, dice: random.Random
) -> list[Mapping[str, str]]:
    """The ways, those first that have a strategy which no earlier one has; so many at most."""
    first, *rest = ways or [{}]
    left, found = dice.sample(rest, len(rest)), [first]
    known = set(first.items())
    while left and len(found) < most:
        best = max(left, key=lambda way: len(set(way.items()) - known))
        left.remove(best)
        found.append(best)
        known |= set(best.items())
    return [way for way in found if way]


def _candidate(
    repertoire: PlaybookRepertoire, way: Mapping[str, str], dice: random.Random
) -> Candidate | None:
    """One candidate; None where all of it is the library's, or the choices do not fit together."""
    try:
        draft = repertoire.draft(way)
        default, *others = valid_settings(
            parse_kernel(draft.kernel, repertoire.language), _SETTINGS
        )
    except (ValueError, ContractError):
        return None
    settings = dice.choice(others) if others and dice.random() > _DEFAULT_SHARE else default
    return new_candidate(
        repertoire.language,
        draft.kernel,
        draft.plan,
        settings=settings,
        strategies=draft.strategies,
    )


class _Bench:
    """One module on its device, before the judge and before the check."""

    def __init__(self, plan: Plan, drawn: Drawn, task: Task) -> None:
        from float64_check import Float64Check

        from kernelwright.tools.evaluate.rules import Rules
        from kernelwright.tools.evaluate.worker.task_runtime import TaskRuntime
        from kernelwright.tools.tasks.graph.convert import constants_of

        self._plan, self._task, self._rules = plan, task, Rules()
        self._runtime = TaskRuntime(task, plan.hardware, self._rules, plan.seed)
        names: dict[str, object] = {}
        exec(drawn.source, names)  # a module of ours
        inputs = names["get_inputs"]()  # type: ignore[operator]
        self._check = Float64Check(names["Model"](), inputs, plan.device, plan.seed)  # type: ignore[operator]
        self._constants = constants_of(task.graph, plan.device)

    def judged(self, outcome: Outcome, candidate: Candidate, built: object) -> Outcome:
        """The outcome with the judge's verdict, and where a result was judged the check's."""
        assert isinstance(built, Built)
        start = time.perf_counter()
        found = self._verified(candidate, built)
        outcome = outcome.model_copy(
            update={
                "verdict": found.verdict.value,
                "reason": "" if found.verdict is Verdict.CORRECT else found.reason[:400],
                "error_ratio": found.error_ratio,
                "judge_s": time.perf_counter() - start,
            }
        )
        if found.verdict not in (Verdict.CORRECT, Verdict.WRONG_RESULT):
            return outcome
        start = time.perf_counter()
        try:
            update = self._checked(candidate, built)
        except Exception as error:
            update = {"check": "refused", "words": f"{type(error).__name__}: {error}"[:400]}
        return outcome.model_copy(update={**update, "check_s": time.perf_counter() - start})

    @property
    def is_lost(self) -> bool:
        """Whether a candidate took the device's context along."""
        return bool(poisoned(self._plan.hardware.kind))

    def _verified(self, candidate: Candidate, built: Built):
        from kernelwright.tools.evaluate.messages import JudgeRequest
        from kernelwright.tools.evaluate.process_setup import Meter
        from kernelwright.tools.evaluate.worker.ladder import Proof
        from kernelwright.tools.evaluate.worker.task_runtime import Steps

        request = JudgeRequest(
            task=self._task,
            hardware=self._plan.hardware,
            rules=self._rules,
            candidate=candidate,
            built=built,
            effort="certify",
            seed=self._plan.seed,
            timed=False,
        )
        steps = Steps(request, lambda stage: None, Meter())
        return Proof(self._runtime, request, steps).verify()

    def _checked(self, candidate: Candidate, built: Built) -> dict[str, object]:
        from kernelwright.tools.languages import load_candidate

        runner = load_candidate(candidate, built, self._plan.device)

        def call(inputs, weights):
            named = {**weights, **self._constants}
            runner.prepare(named)
            return runner(inputs, named)

        findings = [one for one in self._check.findings(call) if not one.skipped]
        refusals = [f"{one.draw}: {one.refused}" for one in findings if one.refused]
        worst = max(findings, key=lambda one: max(one.rms_ratio, one.worst_ratio), default=None)
        return {
            "check": "refused" if refusals else "right" if findings else "",
            "words": "; ".join(refusals),
            "draws": len(findings),
            "at_edge": sum(one.at_edge for one in findings),
            "worst_draw": worst.draw if worst else "",
            "rms_ratio": max((one.rms_ratio for one in findings), default=0.0),
            "worst_ratio": max((one.worst_ratio for one in findings), default=0.0),
        }
