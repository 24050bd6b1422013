"""Who gets which job, and what a lost device costs; without Ray, on devices that only answer."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.executors.cluster.lease import FileLease
from kernelwright.tools.evaluate.executors.cluster.messages import Answer, Greeting, Job, JobKind
from kernelwright.tools.evaluate.executors.cluster.results import Results
from kernelwright.tools.evaluate.executors.cluster.scheduler import (
    FAILURES,
    LOSSES,
    DeviceLostError,
    Scheduler,
    Wanted,
)
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.types import EnvironmentLacksError

RULES = Rules()
ANY = Wanted("L40S")


def greeting(name: str = "NVIDIA L40S") -> Greeting:
    hardware = Hardware(
        name=name, kind="cpu", source="test", cores=2, cache_mib=8, memory_gib=8,
        bandwidth_gb_s=20, fp32_tflops=0.1,
    )  # fmt: skip
    return Greeting(hardware=hardware, node="n", unit="u", software="s", pid=1)


def job(id: str, task: str = "t", kind: JobKind = "screen") -> Job:
    return Job(id=id, kind=kind, task="", task_key=task, rules=RULES, seed=0)


@dataclass
class Lines:
    """Devices that answer at once, but for those that are to be lost or fail."""

    lost: Counter[str] = field(default_factory=Counter)
    broken_on: set[str] = field(default_factory=set)
    asked: list[tuple[str, str]] = field(default_factory=list)
    at_once: Counter[str] = field(default_factory=Counter)
    most: int = 0
    scheduler: Scheduler | None = None

    async def run(self, device: str, text: str) -> str:
        asked = Job.model_validate_json(text)
        self.asked.append((device, asked.id))
        self.at_once[device] += 1
        self.most = max(self.most, self.at_once[device])
        await asyncio.sleep(0)
        self.at_once[device] -= 1
        if self.lost[asked.id]:
            self.lost[asked.id] -= 1
            asyncio.get_running_loop().call_soon(self._back, device)
            raise DeviceLostError("killed")
        broken = "no judge" if device in self.broken_on else ""
        return Answer(job=asked.id, device=device, broken=broken).model_dump_json()

    def end(self, device: str) -> None:
        raise AssertionError("nothing hangs here")

    def _back(self, device: str) -> None:
        assert self.scheduler is not None
        self.scheduler.up(device, "L40S", greeting())


def scheduler_of(fleet: Lines, devices: int, patience_s: float = 9.0) -> Scheduler:
    fleet.scheduler = Scheduler(fleet, patience_s=patience_s)
    for number in range(devices):
        fleet.scheduler.up(f"d{number}", "L40S", greeting())
    return fleet.scheduler


async def test_every_job_is_done_once_and_no_device_has_two() -> None:
    fleet = Lines()
    scheduler = scheduler_of(fleet, 3)
    jobs = [job(f"j{number}", f"t{number % 5}") for number in range(40)]
    answers = await asyncio.gather(*(scheduler.do(item, ANY) for item in jobs))
    assert [item.job for item in answers] == [item.id for item in jobs]
    assert sorted(id for _, id in fleet.asked) == sorted(item.id for item in jobs)
    assert fleet.most == 1
    assert {device for device, _ in fleet.asked} == {"d0", "d1", "d2"}


async def test_what_is_compared_goes_where_its_baselines_are_built() -> None:
    fleet = Lines()
    scheduler = scheduler_of(fleet, 2)
    kinds: tuple[JobKind, ...] = ("probe", "precise", "certify")
    for kind in kinds:
        asked = (scheduler.do(job(f"{task}-{kind}", task, kind), ANY) for task in ("a", "b"))
        await asyncio.gather(*asked)
    on = {device: {id[0] for at, id in fleet.asked if at == device} for device in ("d0", "d1")}
    assert sorted(map(sorted, on.values())) == [["a"], ["b"]]


async def test_it_does_not_wait_for_a_device_that_is_gone() -> None:
    fleet = Lines()
    scheduler = scheduler_of(fleet, 1)
    await scheduler.do(job("a-probe", "a", "probe"), ANY)
    scheduler.down("d0")
    scheduler.up("d1", "L40S", greeting())
    assert (await scheduler.do(job("a-precise", "a", "precise"), ANY)).device == "d1"


async def test_a_lost_device_costs_time_and_no_answer() -> None:
    fleet, told = Lines(lost=Counter(j1=2, j3=1)), list[str]()
    scheduler = scheduler_of(fleet, 2)
    asked = (
        scheduler.do(job(f"j{n}"), ANY, lambda job, device, words: told.append(job.id))
        for n in range(5)
    )
    answers = await asyncio.gather(*asked)
    assert not any(item.broken for item in answers)
    assert sorted(told) == ["j1", "j1", "j3"]


async def test_a_job_that_takes_devices_along_is_given_up() -> None:
    fleet = Lines(lost=Counter(bad=99))
    answer = await scheduler_of(fleet, 2).do(job("bad"), ANY)
    assert len(fleet.asked) == LOSSES
    assert answer.broken == f"{LOSSES} devices were lost over it, the last one as killed"


async def test_a_device_whose_judge_fails_is_not_asked_again_for_that_job() -> None:
    fleet = Lines(broken_on={"d0"})
    answer = await scheduler_of(fleet, 2).do(job("j"), ANY)
    assert [device for device, _ in fleet.asked] == ["d0", "d1"]
    assert not answer.broken
    everywhere = Lines(broken_on={f"d{number}" for number in range(9)})
    answer = await scheduler_of(everywhere, 9).do(job("j"), ANY)
    assert (answer.broken, len(everywhere.asked)) == ("no judge", FAILURES)


async def test_devices_of_another_kind_or_name_are_left_alone() -> None:
    fleet = Lines()
    scheduler = scheduler_of(fleet, 1)
    scheduler.up("h", "H200", greeting("NVIDIA H200"))
    scheduler.up("other", "L40S", greeting("NVIDIA L40"))
    answers = [
        await scheduler.do(job(f"j{n}"), wanted)
        for n, wanted in enumerate((Wanted("H200"), Wanted("L40S", "NVIDIA L40"), ANY))
    ]
    assert [item.device for item in answers] == ["h", "other", "d0"]


async def test_where_no_device_comes_the_sentence_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("kernelwright.tools.evaluate.executors.cluster.scheduler._POLL_S", 0.01)
    with pytest.raises(EnvironmentLacksError, match=r"had no L40S .* can be resumed"):
        await scheduler_of(Lines(), 0, patience_s=0.02).do(job("j"), ANY)
    with pytest.raises(EnvironmentLacksError, match="had no L40S"):
        await scheduler_of(Lines(), 0).some("L40S", 0.02)


async def test_who_goes_away_leaves_no_job_behind() -> None:
    scheduler = scheduler_of(Lines(), 0)
    asking = asyncio.create_task(scheduler.do(job("j"), ANY))
    await asyncio.sleep(0)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    scheduler.up("d0", "L40S", greeting())
    assert not scheduler.devices["d0"].busy
    await scheduler.aclose()


def test_an_answer_is_kept_once_and_found_by_a_later_session(tmp_path: Path) -> None:
    results = Results(tmp_path / "run" / "cluster.sqlite")
    first = Answer(job="j", device="one", seconds=1.0)
    assert results.put(first, "screen", "c")
    assert not results.put(first.model_copy(update={"device": "two"}), "screen", "c")
    results.lose("j", "one", "killed")
    results.close()
    later = Results(tmp_path / "run" / "cluster.sqlite")
    assert later.get("j") == first
    assert later.get("k") is None
    assert [(row.job, row.device) for row in later.rows()] == [("j", "one")]
    assert [loss.words for loss in later.losses()] == ["killed"]
    later.close()


async def test_a_lease_has_one_holder_at_a_time(tmp_path: Path) -> None:
    one, other = FileLease(tmp_path, "GPU 0/a"), FileLease(tmp_path, "GPU 0/a")
    held = list[str]()

    async def hold(lease: FileLease, name: str) -> None:
        async with lease:
            held.append(name)
            await asyncio.sleep(0.02)
            held.append(name)

    await asyncio.gather(hold(one, "a"), hold(other, "b"), hold(one, "c"))
    assert [held[at] == held[at + 1] for at in (0, 2, 4)] == [True] * 3
    elsewhere = FileLease(tmp_path, "GPU 1")
    async with one, elsewhere:
        pass
