"""`learn sft`, `sample` and `rl`: a model trained on a data set, and data sampled from a model."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from kernelwright.graphs.run_view.events import count
from kernelwright.tools.learning.data import dataset as files
from kernelwright.tools.learning.data.dataset import write
from kernelwright.tools.learning.data.records import Attempt, Problem, Row
from kernelwright.tools.learning.evaluation import sampled
from kernelwright.tools.learning.training.adapter import with_adapter
from kernelwright.tools.learning.training.course import Course, OtherRunError
from kernelwright.tools.learning.training.policy import (
    ModelAnswerer,
    Policy,
    Sampling,
)
from kernelwright.tools.learning.training.rl import (
    POOL,
    Pool,
    Reinforcement,
    RlSettings,
    RlStep,
)
from kernelwright.tools.learning.training.sampling import judged_attempts
from kernelwright.tools.learning.training.sft import SftSettings, SftStep, examples, fine_tune
from kernelwright.tools.learning.writing.drafts import problems_of
from kernelwright.tools.learning.writing.families import HELD_OUT, LEARNT, modules
from kernelwright.ui.cli.learn.curves import rl_curves, sft_curves
from kernelwright.ui.cli.learn.evaluate import ValueT, askable, readable
from kernelwright.ui.cli.learn.judges import done, judging
from kernelwright.ui.cli.learn.models import model_of
from kernelwright.ui.complaints import Complaint
from kernelwright.ui.terminal.output import console, remarks

# Far from the seeds that data sets are written with, so that modules are others.
_OWN_SEED = 1 << 20


@dataclass(frozen=True)
class Place:
    """Where a training reads and writes, and who judges.

    Attributes:
        data: The data set.
        model: The model's folder.
        adapter: An adapter to begin with.
        out: The folder to write.
        target: Which kind of device judges.
        executor: Who judges.
    """

    data: Path
    model: Path
    adapter: Path | None
    out: Path
    target: str
    executor: str


def sft(place: Place, settings: SftSettings) -> None:
    """Fine-tune and draw the curves."""
    rows = [row for name in (files.INSTRUCTIONS, files.REPAIRS, files.CONTRASTIVE)
            for row in rows_of(place.data / name, Row) if row.contract == "short"]  # fmt: skip
    policy = _begun(place, settings.rank)
    course = _course(place.out, settings)
    known = examples(policy, rows, settings.longest)
    remarks().print(f"{count(len(known), 'row')} of {len(rows)} are short enough", style="dim")
    if not known:
        raise Complaint(f"{place.data} holds no row to imitate of {settings.longest} tokens")
    fine_tune(policy, known, settings, course, _tell_sft)
    picture = sft_curves(place.out, course.steps(SftStep))
    _tell_end(course, picture)


def rl(place: Place, settings: RlSettings, tasks: int | None) -> None:
    """Reinforce and draw the curves."""
    path = place.data / files.PROBLEMS
    problems = rows_of(path, Problem)
    known = rows_of(place.data / files.ATTEMPTS, Attempt)
    if settings.written:
        held = rows_of(place.data / files.HELD_OUT, Problem)
        seen = {problem.key for problem in (*problems, *held)}
        problems = done(own_tasks(settings, seen))
    problems = askable(problems, path)[:tasks]
    policy = _begun(place, settings.rank)
    course = _course(place.out, settings)
    done(_reinforced(place, settings, policy, problems, known, course))
    picture = rl_curves(place.out, course.steps(RlStep))
    _tell_end(course, picture)


async def own_tasks(settings: RlSettings, seen: Collection[str]) -> list[Problem]:
    """Tasks that the data set does not have, of the families that it learns from."""
    drawn = modules(settings.written, settings.seed + _OWN_SEED)
    found = {problem.key: problem for problem in await problems_of(drawn, settings.seed)}
    return [problem for key, problem in found.items() if key not in seen]


async def _reinforced(
    place: Place,
    settings: RlSettings,
    policy: Policy,
    problems: list[Problem],
    known: list[Attempt],
    course: Course,
) -> None:
    verdicts = place.out / "verdicts.jsonl"
    async with judging(place.executor, place.target, verdicts, place.data, settings.seed) as seat:
        pool = Pool(place.out / POOL, known)
        await Reinforcement(policy, problems, seat.judge, pool, settings, course).run(_tell_rl)


def sample(place: Place, sampling: Sampling, *, samples: int, tasks: int | None, seed: int) -> None:
    """Sample answers to the tasks of training and write a data set with what was right."""
    problems = rows_of(place.data / files.PROBLEMS, Problem)
    held = rows_of(place.data / files.HELD_OUT, Problem)
    known = rows_of(place.data / files.ATTEMPTS, Attempt)
    asked = askable(problems, place.data / files.PROBLEMS)[:tasks]
    new = done(_sampled(place, sampling, asked, samples, seed))
    right = sum(one.speedup is not None and not one.repairs for one in new)
    summary = write(
        place.out,
        [*known, *new],
        [*problems, *held],
        share=0.0,
        always={*HELD_OUT, *(problem.family for problem in held)},
        never=LEARNT,
        seed=seed,
    )
    console().print(f"{right} of {samples * len(asked)} answers are right", markup=False)
    words = count(summary.instructions, "instruction")
    console().print(f"{words} in {place.out}", markup=False, soft_wrap=True)


async def _sampled(
    place: Place, sampling: Sampling, asked: list[Problem], samples: int, seed: int
) -> list[Attempt]:
    policy = model_of(place.model, place.adapter)
    verdicts = place.out / "verdicts.jsonl"
    async with judging(place.executor, place.target, verdicts, place.data, seed) as seat:
        answerer = ModelAnswerer(policy, sampling, seat.judge.language)
        batch = max(1, sampling.batch // samples)
        answers = await sampled(
            asked, answerer, seat.judge, place.out, count=samples, seed=seed, batch=batch
        )
        return await judged_attempts(
            asked, answers, seat.judge, model=policy.name, device=seat.device
        )


def rows_of(path: Path, kind: type[ValueT]) -> list[ValueT]:
    """The values of a data set's file; Complaint where there is no such data set."""
    if not path.is_file():
        raise Complaint(
            f"there is no {path.name} in {path.parent}; write a data set first: "
            f"kernelwright learn dataset --out {path.parent}"
        )
    return readable(path, kind)


def _begun(place: Place, rank: int) -> Policy:
    """The model with the adapter that is trained on: the one given, or a new one."""
    policy = model_of(place.model, place.adapter, trains=True)
    return policy if place.adapter is not None else with_adapter(policy, rank)


def _course(out: Path, settings: SftSettings | RlSettings) -> Course:
    try:
        return Course(out, settings)
    except OtherRunError as error:
        raise Complaint(str(error)) from None


def _tell_sft(step: SftStep) -> None:
    words = f"step {step.step} of {step.of}: loss {step.loss:.4f}, {step.seconds:.1f} s"
    remarks().print(words, style="dim")


def _tell_rl(step: RlStep) -> None:
    seconds = step.sampled_s + step.judged_s + step.updated_s
    remarks().print(
        f"step {step.step} of {step.of}: reward {step.reward:.3f}, correct {step.correct:.1%}, "
        f"fast {step.fast:.1%}, {seconds:.0f} s",
        style="dim",
    )


def _tell_end(course: Course, picture: Path) -> None:
    console().print(f"adapter: {course.adapter}", markup=False, soft_wrap=True)
    console().print(f"curves: {picture}", markup=False, soft_wrap=True)
