"""A search whose judge is far away: real bundles, worked off by the toy judge on the other side."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.graphs.replay import replay
from kernelwright.graphs.search.run import resume_search, start_search
from kernelwright.profiles.load import SearchProfile
from kernelwright.tools.archive import Archive
from kernelwright.tools.evaluate.executors.base.executor import BatchRequest
from kernelwright.tools.evaluate.executors.batch import executor as asking_side
from kernelwright.tools.evaluate.executors.batch import work as working_side
from kernelwright.tools.evaluate.executors.batch.bundle import Bundle, BundleError
from kernelwright.tools.evaluate.executors.batch.executor import BatchExecutor
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.languages import CompileFailure
from kernelwright.tools.types import Candidate, Task, TracePolicy, Verdict
from kernelwright.tools.types.run import Summary

Refuse = Callable[[Candidate], bool]


class Trips:
    """One run and its judge: sends bundles over, has them worked off, resumes until it ends."""

    def __init__(self, toy: ModuleType, home: Path, **profile: object) -> None:
        self.toy, self.home = toy, home
        self.profile = SearchProfile.model_validate(toy.PROFILE.model_dump() | profile)
        self.far = toy.ToyExecutor()
        self.far.rules = Rules()
        self.far.reseed = lambda seed: None
        self.far.audit = self._audit
        self.run = ""

    async def _audit(self, task: Task) -> Task:
        return task.model_copy(update={"warnings": ("zeros pass",)})

    async def session(self, patience_s: float = 0.0) -> Summary:
        """One session, until it waits or ends."""
        near = _Near(self.toy.HARDWARE.model_copy(update={"source": "data sheet"}), self.home)
        near.task = self.toy.TASK
        common = {
            "home": self.home,
            "executor": near,
            "make_agents": lambda around: self.toy.toy_agents(self.toy.LOOPS),
            "patience_s": patience_s,
        }
        if self.run:
            summary = await resume_search(self.run, **common)
        else:
            path = Path("toy.py")
            summary = await start_search(path, TracePolicy(), "cpu", self.profile, **common)
        await near.aclose()
        assert isinstance(summary, Summary)
        self.run = summary.run
        return summary

    def bundles(self) -> list[Bundle]:
        folders = sorted((self.home / "runs" / self.run / "bundles").iterdir())
        return [Bundle(folder) for folder in folders]

    @property
    def errands(self) -> list[BatchRequest]:
        return [bundle.manifest.errand for bundle in self.bundles()]

    async def work(self) -> None:
        for bundle in self.bundles():
            await working_side.work_bundle(bundle, self.far, lambda line: None)

    async def to_the_end(self) -> Summary:
        while (summary := await self.session()).status == "waiting":
            await self.work()
        return summary

    def archive(self) -> Archive:
        return Archive.open(self.run, self.home)


class _Near(BatchExecutor):
    """The toy's file is none that could be traced."""

    task: Task

    async def trace(self, path: Path, policy: TracePolicy) -> Task:
        return self.task


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> list[Refuse]:
    """Decides instead of a compiler, on both sides; what is appended says what does not build."""
    refuse: list[Refuse] = []

    async def compile_candidate(candidate: Candidate, **_: object) -> CompileFailure | None:
        if not any(rule(candidate) for rule in refuse):
            return None
        return CompileFailure(
            verdict=Verdict.COMPILE_ERROR, message="no such thing", log="error: no", seconds=0.0
        )

    for side in (asking_side, working_side):
        monkeypatch.setattr(side, "compile_candidate", compile_candidate)
    return refuse


@pytest.fixture
def trips(toy: ModuleType, tmp_path: Path, compiler: list[Refuse]) -> Callable[..., Trips]:
    return lambda **profile: Trips(toy, tmp_path, **profile)


async def test_a_round_takes_one_trip(
    trips: Callable[..., Trips], search: Callable[..., Awaitable[Summary]], tmp_path: Path
) -> None:
    here = await search(home=tmp_path / "here")
    away = trips()
    summary = await away.to_the_end()
    first, *rounds, last = away.errands
    assert first.probe
    assert last.certify
    assert len(rounds) == summary.rounds
    assert all(request.screen for request in rounds)
    assert summary.status == here.status == "improved"
    assert summary.best is not None
    assert summary.best.speedup_vs_eager is not None


async def test_device_and_audit_come_with_the_first_trip(trips: Callable[..., Trips]) -> None:
    away = trips(rounds=1)
    await away.session()
    await away.work()
    await away.session()
    record = away.archive().record()
    assert record.hardware == away.toy.HARDWARE
    assert record.task.warnings == ("zeros pass",)
    assert record.baselines is not None
    assert {item.name for item in record.baselines.items} == {"eager", "compile"}


async def test_settings_tried_far_away_are_the_tuners(trips: Callable[..., Trips]) -> None:
    away = trips(rounds=1, tuning_trials=8)
    await away.to_the_end()
    archive = away.archive()
    tuned = [item for item in archive.standings() if item.author == "tuner"]
    assert tuned
    assert all(item.candidate.parents for item in tuned)


@pytest.mark.exhaustive
async def test_no_setting_is_sent_twice_in_a_bundle(trips: Callable[..., Trips]) -> None:
    away = trips(rounds=2, tuning_trials=8)
    await away.to_the_end()
    rounds = [request for request in away.errands if request.screen]
    assert len(rounds) == 2
    for request in rounds:
        sent = [item.id for item in request.candidates()]
        assert len(sent) > 8
        assert len(sent) == len(set(sent))


async def test_what_does_not_compile_is_repaired_before_the_trip(
    trips: Callable[..., Trips], compiler: list[Refuse]
) -> None:
    compiler.append(lambda candidate: not candidate.note)  # all but repairs
    away = trips(rounds=1, candidates_per_idea=1, tuning_trials=0)
    await away.to_the_end()
    _, sent, _ = away.errands
    assert all(item.note for item in sent.screen)
    repairs = [item for item in away.archive().candidates() if item.author == "repair"]
    assert repairs
    assert {item.candidate.id for item in repairs} & {item.id for item in sent.screen}


async def test_what_failed_far_away_is_repaired_with_the_next_round(
    trips: Callable[..., Trips],
) -> None:
    away = trips(rounds=2, candidates_per_idea=1)
    away.far.wrong = lambda candidate, effort: (
        Verdict.LAUNCH_ERROR if "rows=once" in candidate.strategies else None
    )
    await away.to_the_end()
    assert len([request for request in away.errands if request.screen]) == 2
    repairs = [item for item in away.archive().candidates() if item.author == "repair"]
    assert repairs
    assert {item.round for item in repairs} == {2}


async def test_resuming_without_results_asks_for_the_same_bundle(
    trips: Callable[..., Trips],
) -> None:
    away = trips(rounds=1)
    for _ in range(3):
        summary = await away.session()
        assert summary.status == "waiting"
        assert str(away.bundles()[0].folder) in summary.stopped_because
    assert len(away.bundles()) == 1


@pytest.mark.exhaustive
async def test_a_patient_session_goes_on_when_results_arrive(trips: Callable[..., Trips]) -> None:
    away = trips(rounds=1)
    await away.session()
    waiting = asyncio.create_task(away.session(patience_s=60.0))
    while not waiting.done():
        await asyncio.sleep(0.05)
        await away.work()
    assert (await waiting).status in ("improved", "faster_than_eager")


@pytest.mark.exhaustive
async def test_a_far_search_replays(trips: Callable[..., Trips], toy: ModuleType) -> None:
    away = trips(rounds=2)
    await away.to_the_end()
    agents = toy.toy_agents(toy.LOOPS)
    again = await replay(away.run, home=away.home, make_agents=lambda around: agents)
    assert again.difference is None
    assert again.same > 10


async def test_counters_come_home_with_the_times(trips: Callable[..., Trips]) -> None:
    away = trips(rounds=2)
    await away.to_the_end()
    probe, *rounds, last = away.errands
    assert (probe.profiled, last.profiled) == (0, 0)
    assert all(request.profiled for request in rounds)
    archive = away.archive()
    try:
        known = [archive.measured(id) for id in dict.fromkeys(away.far.profiled)]
    finally:
        archive.close()
    read = [profile for profile in known if profile is not None and profile.times]
    assert read
    assert read[0].times[0].kernel == "run"


async def test_a_far_host_profiles_within_the_seconds_it_was_given(
    trips: Callable[..., Trips],
) -> None:
    away = trips(rounds=1, profiling_seconds=5.0)
    away.far.profiling_s = 9.0
    await away.to_the_end()
    assert len(away.far.profiled) == 1
    none = trips(rounds=1, profiling_seconds=0.0)
    none.home = away.home / "other"
    await none.to_the_end()
    assert none.far.profiled == []


async def test_a_profile_that_was_changed_is_refused(trips: Callable[..., Trips]) -> None:
    away = trips(rounds=1)
    await away.to_the_end()
    bundle = next(item for item in away.bundles() if item.manifest.errand.profiled)
    done = bundle.done
    assert done is not None
    assert {*bundle.profiles(done)} == {*away.far.profiled}
    (file,) = list((bundle.folder / "results").glob("profile-*.json"))[:1]
    file.write_text(file.read_text().replace("wall", "cupti"))
    with pytest.raises(BundleError, match="changed"):
        bundle.profiles(done)
