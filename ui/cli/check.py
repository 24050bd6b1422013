"""Verify and time one candidate that a person wrote."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from rich.text import Text

from kernelwright.graphs.run_view.events import one_line, plain
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.evaluate.executors.sizes import SizedTasks
from kernelwright.tools.evaluate.findings import findings
from kernelwright.tools.evaluate.foreign.intake import is_foreign, read_foreign
from kernelwright.tools.evaluate.messages import Foreign
from kernelwright.tools.evaluate.timing.statistics import percentile
from kernelwright.tools.tasks.sources import find
from kernelwright.tools.types import (
    Baseline,
    Baselines,
    Candidate,
    Clocks,
    Conditions,
    Evaluation,
    Isolation,
    Measurement,
    ModeTiming,
    Refusal,
    RefusedError,
    Task,
    TracePolicy,
    Value,
    Verdict,
)
from kernelwright.tools.types.measurement import Clock, Mode, Outcome, Paired
from kernelwright.tools.types.run import BaselineSummary
from kernelwright.tools.types.speed_words import claim_words
from kernelwright.tools.types.verdict import SpeedOutcome
from kernelwright.ui.cli.judge import baselines_of, export_at, judge, read_candidate, traced
from kernelwright.ui.complaints import Complaint, allowed_precisions, existing_target, refused
from kernelwright.ui.terminal.cards import comparison_words
from kernelwright.ui.terminal.output import STDOUT, check_json, console, remarks, write_json

REFERENCE = "reference.py"
LOUD, QUIET = ("ranked apart",), ("isolation", "not verified", "noise", "timed by")


class ModeFigures(Value):
    """A comparison under another load than the headline's."""

    mode: Mode
    baseline: str
    candidate_ms: float
    baseline_ms: float
    ratio: float
    ci95: tuple[float, float]
    outcome: Outcome

    @classmethod
    def of(cls, timing: ModeTiming) -> "ModeFigures":
        """Without the samples."""
        found = timing.comparison
        return cls(
            mode=timing.mode,
            baseline=found.baseline,
            candidate_ms=found.candidate_ms,
            baseline_ms=found.baseline_ms,
            ratio=found.ratio,
            ci95=(found.ci95_low, found.ci95_high),
            outcome=found.outcome,
        )


class CheckResult(Value):
    """What `check --json` prints. Times in milliseconds, ratios as reference over candidate.

    `outcome` is what may be said of its speed, by the rule for all headlines, and `claim` why not
    more; times are of `clock`, and `latency` is of single calls beside the same baseline, which is
    the hardest to beat; `apart` is "" for a candidate that is ranked with those of the task's own
    precision; `modes` are without samples.
    """

    verdict: str
    reason: str
    method: str
    precision: str
    effective_bits: float | None
    apart: str
    shapes: str
    distributions: tuple[str, ...]
    coverage: float | None
    error_ratio: float | None
    allclose_1e4: bool | None
    allclose_1e2: bool | None
    speedup_vs_eager: float | None
    speedup_vs_best_baseline: float | None
    ci95: tuple[float, float] | None
    outcome: SpeedOutcome | None
    claim: str
    clock: Clock | None
    latency: Paired | None
    noise: float | None
    conditions: Conditions | None
    modes: tuple[ModeFigures, ...]
    launch_ms: float | None
    prepare_ms: float | None
    baselines: dict[str, BaselineSummary]
    clocks: Clocks | None
    not_verified: tuple[str, ...]
    isolation: Isolation


@dataclass(frozen=True)
class OwnTask:
    """What an export's candidate implements, as its folder has it; `inputs` as they were given."""

    file: Path
    entry: str
    inputs: tuple[str, ...]


def task_of(candidate: Path) -> OwnTask | None:
    """The task of an export; None for every other candidate."""
    found = export_at(candidate)
    if found is None:
        return None
    return OwnTask(candidate / REFERENCE, found.task.entry, found.task.input_override)


def check(
    path: Path,
    file: Path,
    entry: str | None,
    inputs: tuple[str, ...],
    target: str,
    json: str | None,
    allow: str | None = None,
    record: str | None = None,
    *,
    load_seconds: float = 60.0,
    makes: bool = False,
    eval_mode: bool = False,
    shapes: str = "",
) -> None:
    """Judge a candidate, ours or foreign, as finalists of a search are judged."""
    check_json(json)
    evaluation, baselines = asyncio.run(
        judged(
            path,
            file,
            entry,
            inputs,
            target,
            allow,
            record,
            load_seconds=load_seconds,
            makes=makes,
            eval_mode=eval_mode,
            shapes=shapes,
        )
    )
    result = result_of(evaluation, baselines)
    if json is not None:
        write_json(result, json)
    if json != STDOUT:
        tell(result, evaluation)


def read(path: Path, task: Path, policy: TracePolicy, record: str | None) -> Candidate | Foreign:
    """The candidate at a path; Complaint or ContractError when there is none."""
    if not is_foreign(path):
        if record is not None:
            raise Complaint(f"{path} holds no records, so there is none to choose")
        return read_candidate(path)
    text = find(task, policy)
    found = text if isinstance(text, Refusal) else read_foreign(path, text.source, record)
    if isinstance(found, Refusal):
        raise refused(found)
    return found


async def judged(
    path: Path,
    file: Path,
    entry: str | None,
    inputs: tuple[str, ...],
    target: str,
    allow: str | None = None,
    record: str | None = None,
    *,
    quiet: bool = False,
    load_seconds: float = 60.0,
    makes: bool = False,
    eval_mode: bool = False,
    shapes: str = "",
) -> tuple[Evaluation, Baselines]:
    """What the judge finds; Complaint where candidate or file cannot be used."""
    file = existing_target(file)
    policy = TracePolicy(
        entry=entry,
        makes=makes,
        evaluation=eval_mode,
        shapes=shapes,
        inputs=inputs,
        allow=allowed_precisions(allow),
        load_seconds=load_seconds,
    )
    candidate = read(path, file, policy, record)
    say = remarks()
    say.quiet = quiet
    async with judge(target) as executor:
        say.print(f"tracing {file}", style="dim", markup=False)
        task = await traced(executor, file, policy, quiet=quiet)
        if isinstance(candidate, Foreign):
            if shapes:
                raise Complaint("foreign code is checked at one shape; leave --shapes out")
            if task.call is not None:
                raise Complaint(
                    f"{task.name} takes named or nested arguments, with which foreign code cannot "
                    "be called yet; write it as a kernel with a plan"
                )
            say.print(f"judging {candidate.name}", style="dim", markup=False)
            try:
                evaluation = await executor.check_foreign(task, candidate)
            except RefusedError as refused_here:
                raise Complaint(refused_here.refusal.sentence) from None
            return evaluation, compared(evaluation)
        say.print("timing PyTorch", style="dim")
        baselines = await baselines_of(executor, task)
        say.print(f"judging candidate {candidate.id}", style="dim")
        found = await executor.evaluate(task, candidate, "certify")
        if task.dimensions and found.verdict is Verdict.CORRECT:
            say.print(f"judging it at other sizes: {shapes}", style="dim", markup=False)
            found = await at_other_sizes(executor, task, policy, candidate, found)
        return found, baselines


async def at_other_sizes(
    executor: Executor, task: Task, policy: TracePolicy, candidate: Candidate, found: Evaluation
) -> Evaluation:
    """The evaluation with what the judge found at the sizes that the policy names.

    A candidate that is wrong at one of them has the verdict that it has there.
    """
    sizes = SizedTasks(executor, task, policy, 1)
    try:
        await sizes.read(sizes.ends)
        checks, wrong = await sizes.checked(candidate)
    except RefusedError as refused:
        raise Complaint(refused.refusal.sentence) from None
    looked = ", ".join(sizes.words(check.sizes) for check in checks if not wrong)
    update: dict[str, object] = {"shapes": f"{policy.shapes}, verified at {looked}"}
    if wrong:
        last = checks[-1]
        update = {"verdict": last.verdict, "reason": wrong, "shapes": f"not {policy.shapes}"}
    return found.model_copy(update={"verification": found.verification.model_copy(update=update)})


def compared(evaluation: Evaluation) -> Baselines:
    """The baselines as they were timed beside a candidate, where nothing else timed them."""
    return Baselines(
        items=tuple(
            Baseline(
                name=item.baseline,
                measurement=Measurement(
                    median_ms=item.baseline_ms,
                    p10_ms=percentile(item.baseline_samples_ms, 10),
                    p90_ms=percentile(item.baseline_samples_ms, 90),
                    samples_ms=item.baseline_samples_ms,
                    conditions=item.conditions,
                ),
            )
            for item in evaluation.comparisons
        )
    )


def result_of(evaluation: Evaluation, baselines: Baselines) -> CheckResult:
    """The judge's findings in the shape that machines read."""
    found = evaluation.verification
    hardest, claim = evaluation.hardest, evaluation.claim
    eager = next((item for item in evaluation.comparisons if item.baseline == "eager"), None)
    return CheckResult(
        verdict=found.verdict.value,
        reason=found.reason,
        method=found.method,
        precision=found.precision,
        effective_bits=found.effective_bits,
        apart=found.apart,
        shapes=found.shapes,
        distributions=found.distributions,
        coverage=found.coverage,
        error_ratio=found.error_ratio,
        allclose_1e4=found.allclose_1e4,
        allclose_1e2=found.allclose_1e2,
        speedup_vs_eager=eager.ratio if eager else None,
        speedup_vs_best_baseline=hardest.ratio if hardest else None,
        ci95=(hardest.ci95_low, hardest.ci95_high) if hardest else None,
        outcome=claim.outcome if claim else None,
        claim=claim.words if claim else "",
        clock=hardest.clock if hardest else None,
        latency=hardest.latency if hardest else None,
        noise=hardest.noise if hardest else None,
        conditions=hardest.conditions if hardest else None,
        modes=tuple(map(ModeFigures.of, evaluation.modes)),
        launch_ms=evaluation.launch_ms,
        prepare_ms=evaluation.prepare_ms,
        baselines={
            item.name: BaselineSummary(
                median_ms=item.measurement.median_ms if item.measurement else None,
                latency_ms=item.latency_ms,
                failure=item.failure,
            )
            for item in baselines.items
        },
        clocks=evaluation.clocks,
        not_verified=found.not_verified,
        isolation=found.isolation,
    )


def tell(result: CheckResult, evaluation: Evaluation) -> None:
    """Print the findings."""
    out = console()
    good = evaluation.verdict is Verdict.CORRECT
    head = Text(evaluation.verdict.words, style="bold green" if good else "bold red")
    if good and "a baseline, not a kernel" in result.method:
        head.append(" (no kernel of its own)", style="bold")
    elif good and result.method.startswith("library rearrangement"):
        head.append(" (library rearrangement)", style="bold")
    head.append(f": {plain(result.reason)}", style="default")
    out.print(head)
    for name, baseline in result.baselines.items():
        if baseline.median_ms is None:
            out.print(Text(f"{name} could not run: {one_line(baseline.failure, 200)}"))
    for item in evaluation.comparisons:
        out.print(Text(f"vs {item.baseline:<10} {comparison_words(item)}"))
    if good:
        out.print(Text(f"speed: {claim_words(evaluation.claim)}"))
    for name, words in findings(evaluation):
        style = "bold yellow" if name in LOUD else "dim" if name in QUIET else ""
        out.print(Text(f"{name}: {plain(words)}", style=style))
