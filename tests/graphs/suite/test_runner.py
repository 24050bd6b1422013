import asyncio
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.graphs.suite import Ground, Outcome, Terms, figures, run_suite, runner
from kernelwright.profiles.load import Hardware, SearchProfile, hardware_profile
from kernelwright.tools.archive import Archive
from kernelwright.tools.evaluate.executors.base.executor import Capabilities, Executor
from kernelwright.tools.evaluate.rules import Depth, Rules
from kernelwright.tools.types import (
    Comparison,
    EnvironmentLacksError,
    Evaluation,
    Phase,
    Refusal,
    Task,
    TracePolicy,
    Verdict,
)
from kernelwright.ui.terminal.suite_tables import row_cells


def ground(toy: ModuleType, home: Path, executor: Executor, besides_s: float = 60.0) -> Ground:
    return Ground(
        "cpu", home, make_agents=lambda around: toy.toy_agents(toy.LOOPS), executor=executor,
        besides_s=besides_s,
    )  # fmt: skip


async def outcomes(
    files: tuple[Path, ...], profile: SearchProfile | None, terms: Terms, where: Ground
) -> list[Outcome]:
    return [item async for item in run_suite(files, profile, terms, where)]


async def test_every_figure_of_an_outcome_is_that_of_its_run(
    files: tuple[Path, ...], toy: ModuleType, terms: Terms, tmp_path: Path
) -> None:
    found = await outcomes(files[:1], toy.PROFILE, terms, ground(toy, tmp_path, toy.ToyExecutor()))
    (item,) = found
    assert item.ended == "searched"
    assert item.summary is not None
    assert item.summary.best is not None
    archive = Archive.open(item.run, tmp_path)
    best = next(s for s in archive.standings() if s.candidate.id == item.summary.best.candidate)
    archive.close()
    assert [(a.baseline, a.ratio) for a in item.against] == [
        (c.baseline, c.ratio) for c in best.evaluation.comparisons
    ]
    assert item.over_best == min(c.ratio for c in best.evaluation.comparisons)
    assert len(item.sha256) == len(item.kernel_sha256) == 64


async def test_what_one_task_breaks_costs_only_that_task(
    files: tuple[Path, ...], toy: ModuleType, terms: Terms, tmp_path: Path
) -> None:
    @dataclass
    class Fragile(toy.ToyExecutor):  # type: ignore[misc, name-defined]
        async def trace(self, path: Path, policy: TracePolicy) -> object:
            if path.name.startswith("1"):
                raise RuntimeError("we are broken\nby this file")
            if path.name.startswith("2"):
                return Refusal(sentence="It has no module.")
            return await super().trace(path, policy)

    found = await outcomes(files, toy.PROFILE, terms, ground(toy, tmp_path, Fragile()))
    assert [item.ended for item in found] == ["failed", "refused", "searched"]
    assert found[0].words == "RuntimeError: we are broken"
    assert found[1].words == "It has no module."


async def test_what_was_wrong_with_rejected_candidates_stands_in_the_line(
    files: tuple[Path, ...], toy: ModuleType, terms: Terms, tmp_path: Path
) -> None:
    executor = toy.ToyExecutor(wrong=lambda candidate, effort: Verdict.WRONG_RESULT)
    found = await outcomes(files[:1], toy.PROFILE, terms, ground(toy, tmp_path, executor))
    (item,) = found
    assert item.summary is not None
    assert item.summary.status == "nothing_correct"
    assert item.rejected == ("wrong_result: the toy says so",)


async def test_candidates_that_were_right_but_less_exact_are_told_from_wrong_ones(
    files: tuple[Path, ...], toy: ModuleType, terms: Terms, tmp_path: Path
) -> None:
    @dataclass
    class Rounding(toy.ToyExecutor):  # type: ignore[misc, name-defined]
        async def evaluate(self, *asked: object) -> Evaluation:
            found: Evaluation = await super().evaluate(*asked)
            less = found.verification.model_copy(update={"apart": "is computed in fp16"})
            return found.model_copy(update={"verification": less})

    (item,) = await outcomes(files[:1], toy.PROFILE, terms, ground(toy, tmp_path, Rounding()))
    assert item.summary is not None
    assert item.summary.status == "nothing_correct"
    assert item.rejected == ("less exact: is computed in fp16",)


async def test_a_task_that_hangs_is_ended(
    files: tuple[Path, ...], toy: ModuleType, terms: Terms, tmp_path: Path
) -> None:
    @dataclass
    class Hanging(toy.ToyExecutor):  # type: ignore[misc, name-defined]
        async def trace(self, path: Path, policy: TracePolicy) -> object:
            if path.name.startswith("1"):
                await asyncio.sleep(3600)
            return await super().trace(path, policy)

    where = ground(toy, tmp_path, Hanging(), besides_s=0.3)
    quick = toy.PROFILE.model_copy(update={"seconds": 0.01})
    (first,) = await outcomes(files[:1], quick, terms, where)
    assert first.ended == "timed_out"
    assert "not done after" in first.words


async def test_a_machine_that_lacks_something_ends_the_suite(
    files: tuple[Path, ...], toy: ModuleType, terms: Terms, tmp_path: Path
) -> None:
    @dataclass
    class Lacking(toy.ToyExecutor):  # type: ignore[misc, name-defined]
        async def trace(self, path: Path, policy: TracePolicy) -> object:
            raise EnvironmentLacksError("no compiler")

    with pytest.raises(EnvironmentLacksError):
        await outcomes(files, toy.PROFILE, terms, ground(toy, tmp_path, Lacking()))


async def test_baselines_alone_write_no_candidate(
    files: tuple[Path, ...], toy: ModuleType, terms: Terms, tmp_path: Path
) -> None:
    executor = toy.ToyExecutor()
    found = await outcomes(files, None, terms, ground(toy, tmp_path, executor))
    assert [item.ended for item in found] == ["baselines"] * 3
    assert dict(found[0].baselines_ms) == {"eager": 2.5, "compile": 2.0}
    assert not (tmp_path / "runs").exists()


async def test_a_line_names_the_baseline_that_was_asked_for_and_is_not_there(
    files: tuple[Path, ...], toy: ModuleType, terms: Terms, tmp_path: Path
) -> None:
    @dataclass
    class OnGpu(toy.ToyExecutor):  # type: ignore[misc, name-defined]
        async def hardware(self) -> Hardware:
            return hardware_profile("H200")

    for evidence, absent in (("autotune", ("max-autotune",)), ("timing", ())):
        asked = terms.model_copy(update={"evidence": evidence})
        place = tmp_path / evidence
        (item,) = await outcomes(files[:1], toy.PROFILE, asked, ground(toy, place, OnGpu()))
        assert item.against, item.words
        assert item.absent == absent
        assert figures([item]).absent == tuple((name, 1) for name in absent)
        (said,) = (str(cell) for cell in row_cells(item)[-1:])
        assert ("without max-autotune" in said) is bool(absent)


@pytest.mark.parametrize(("evidence", "certified"), [("full", 2), ("timing", 1), ("counters", 1)])
async def test_only_full_evidence_certifies_the_first_finalists_rivals(
    files: tuple[Path, ...], toy: ModuleType, terms: Terms, tmp_path: Path,
    evidence: Depth, certified: int,
) -> None:  # fmt: skip
    @dataclass
    class Alike(toy.ToyExecutor):  # type: ignore[misc, name-defined]
        rules: Rules = field(default_factory=Rules)

        def _comparisons(self, ms: float) -> tuple[Comparison, ...]:
            apart = {"ci95_low": 1.05, "ci95_high": 9.0}  # from PyTorch, and not from each other
            return tuple(item.model_copy(update=apart) for item in super()._comparisons(ms))

    judge = Alike(rules=Rules(evidence=evidence))
    profile = toy.PROFILE.model_copy(update={"finalists": 2})
    (item,) = await outcomes(files[:1], profile, terms, ground(toy, tmp_path, judge))
    assert item.ended == "searched", item.words
    assert sum(effort == "certify" for _, effort in judge.asked) == certified


async def test_counters_of_the_best_stand_in_the_line_where_they_were_asked_for(
    files: tuple[Path, ...], toy: ModuleType, terms: Terms, tmp_path: Path
) -> None:
    judge = toy.ToyExecutor(rules=Rules(evidence="counters"))
    asked = terms.model_copy(update={"evidence": "counters"})
    silent = toy.PROFILE.model_copy(update={"profiling_seconds": 0.0})
    (plain,) = await outcomes(files[:1], silent, terms, ground(toy, tmp_path / "a", judge))
    (item,) = await outcomes(files[:1], toy.PROFILE, asked, ground(toy, tmp_path / "b", judge))
    assert plain.counted == ()
    assert "run.time" in {reading.name for reading in item.counted}
    assert item.bounds


@pytest.mark.parametrize(("ahead", "standing"), [(None, []), (True, [3])])
async def test_processes_stand_by_where_their_starts_disturb_no_times(
    files: tuple[Path, ...], toy: ModuleType, terms: Terms, tmp_path: Path,
    ahead: bool | None, standing: list[int],
) -> None:  # fmt: skip
    @dataclass
    class Standing(toy.ToyExecutor):  # type: ignore[misc, name-defined]
        capabilities = Capabilities(stands_ready=True)

        stood: list[int] = field(default_factory=list)

        def stand_by(self, workers: int) -> None:
            self.stood.append(workers)

    judge = Standing()
    where = replace(ground(toy, tmp_path, judge), ahead=ahead)
    found = await outcomes(files, None, terms, where)
    assert [item.ended for item in found] == ["baselines"] * 3
    assert judge.stood == standing


async def test_a_reading_beside_the_file_before_is_accounted_for_as_such(
    files: tuple[Path, ...], toy: ModuleType, terms: Terms, tmp_path: Path
) -> None:
    @dataclass
    class Metered(toy.ToyExecutor):  # type: ignore[misc, name-defined]
        capabilities = Capabilities(metered=True)

        def spent(self, path: str) -> tuple[Phase, ...]:
            return (Phase(name="read: file", seconds=7.0), Phase(name="audit", seconds=0.5))

    where = replace(ground(toy, tmp_path, Metered()), ahead=True)
    (item,) = await outcomes(files[:1], None, terms, where)
    spent = {phase.name: phase.seconds for phase in item.phases}
    assert list(spent) == ["beside: read", "read: file", "audit"]
    assert spent["read: file"] < 1.0
    assert spent["beside: read"] + spent["read: file"] == pytest.approx(7.0)


async def test_what_a_search_imports_is_imported_while_the_first_file_is_read(
    files: tuple[Path, ...], toy: ModuleType, terms: Terms, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    done: list[str] = []
    reading = threading.Event()

    def importing(*what: object) -> None:
        assert reading.wait(60), "the file is read meanwhile"
        done.append("imported")

    @dataclass
    class Patient(toy.ToyExecutor):  # type: ignore[misc, name-defined]
        capabilities = Capabilities(reads_apart=True)

        def warm(self) -> None:
            done.append("warmed")

        async def read(self, path: Path, policy: TracePolicy) -> Task | Refusal:
            reading.set()
            return Refusal(sentence="It has no module.")

        async def audit(self, task: Task) -> Task | Refusal:
            return task

    monkeypatch.setattr(runner, "import_beforehand", importing)
    where = Ground("cpu", tmp_path, executor=Patient())
    found = [item async for item in run_suite(files, toy.PROFILE, terms, where)]
    assert [item.ended for item in found] == ["refused"] * 3
    assert done == ["warmed", "imported"]
