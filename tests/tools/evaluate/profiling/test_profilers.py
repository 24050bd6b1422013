"""Profiling with whatever is here: clocks on a CPU, and an ncu that is a script of the test's.

The script is really found, started, waited for and killed, and what it says is really read; only
the counters in it were recorded elsewhere. A real one is asked in `test_profiling_gpu`.
"""

import asyncio
import os
import shutil
import stat
from pathlib import Path

import pytest

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.evaluate.executors.local.certification import Profiles
from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.executors.local.workshop import Workshop
from kernelwright.tools.evaluate.messages import ProfileRequest
from kernelwright.tools.evaluate.profiling.local import Standby
from kernelwright.tools.evaluate.profiling.nsight import VARIABLE, count, find_ncu
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.sandbox.keeper import Keeper
from kernelwright.tools.languages import compile_candidate, new_candidate
from kernelwright.tools.profile import measured_evidence
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Missing, Task, TracePolicy

RECORDED = Path(__file__).parents[2] / "profile" / "recorded"
EXAMPLE = Path(__file__).parents[4] / "examples" / "softmax.py"
TWICE = 'extern "C" void twice(const float* x, float* y, long n) { for (long i = 0; i < n; ++i) y[i] = 2 * x[i]; }'  # noqa: E501
PLAN = """
def forward(x):
    y = empty_like(x)
    launch("twice", args=(x, y, x.numel()))
    return aten.softmax(y, -1)
"""
CUDA = 'extern "C" __global__ void row_sums(const float* x, float* y) { y[0] = x[0]; }'
CUDA_PLAN = """
def forward(x):
    y = empty_like(x)
    launch("row_sums", grid=1, block=1, args=(x, y))
    return y
"""
# Writes a report where it is told to, and prints the recorded pages of it, which lie beside it.
GOOD = """
for word in "$@"; do
  case "$before" in --export) echo report > "$word";; --page) page=$word;; esac
  before=$word
done
here=$(dirname "$0")
case "$page" in raw) cat $here/ncu_raw.csv;; details) cat $here/ncu_details.csv;; esac
"""


@pytest.fixture(scope="module")
def task() -> Task:
    found = trace(EXAMPLE.read_text(encoding="utf-8"), str(EXAMPLE), TracePolicy())
    assert isinstance(found, Task)
    return found


@pytest.fixture
def ncu(tmp_path, monkeypatch):
    """Make a script the ncu of this machine."""

    def make(script: str) -> Path:
        path = tmp_path / "ncu"
        for page in ("ncu_raw.csv", "ncu_details.csv"):  # behind the wall the tests are not there
            shutil.copy(RECORDED / page, tmp_path)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv(VARIABLE, str(path))
        return path

    return make


@pytest.fixture
async def request_(task):
    candidate = new_candidate("cuda", CUDA, CUDA_PLAN)
    built = await compile_candidate(candidate, architecture="sm_90a", timeout_s=60)
    return ProfileRequest(
        task=task,
        hardware=hardware_profile("h200"),
        rules=Rules(profile_s=5),
        candidate=candidate,
        built=built,
        seed=1,
    )


@pytest.mark.exhaustive
async def test_on_a_cpu_each_launch_is_timed_and_the_rest_is_the_plans(task, tmp_path):
    executor = LocalExecutor.create("cpu", tmp_path)
    try:
        candidate = new_candidate("cpp", TWICE, PLAN)
        profile = await executor.profile(task, candidate)
    finally:
        await executor.aclose()
    times = {item.kernel: item for item in profile.times}
    assert set(times) == {"twice", "aten_softmax", "plan"}
    assert [times[name].own for name in ("twice", "aten_softmax", "plan")] == [True, False, False]
    assert sum(item.share for item in profile.times) == pytest.approx(1.0)
    assert all(item.time_ms > 0 for item in profile.times)
    host = profile.host
    assert host is not None
    assert host.time_ms > 0
    assert host.fault_us > 0
    if host.cycles is None:
        (missing,) = profile.missing
        assert missing.step == "counters"
        assert missing.remedy
    else:
        assert profile.missing == ()
        assert 0 < host.instructions / host.cycles < 10
    readings = {item.name: item.value for item in measured_evidence(profile)}
    assert readings["page_faults"] == host.faults
    assert {"vectorised_loops", "packed_share"} <= {item.name for item in profile.code}
    assert profile.seconds > 0


@pytest.mark.exhaustive
async def test_a_candidate_that_crashes_its_profiler_costs_only_its_times(task, tmp_path):
    executor = LocalExecutor.create("cpu", tmp_path)
    wild = TWICE.replace("i < n", "i < n * 1000")
    try:
        broken = await executor.profile(task, new_candidate("cpp", wild, PLAN))
        again = await executor.profile(task, new_candidate("cpp", TWICE, PLAN))
        refused = new_candidate("cpp", TWICE, PLAN.replace("y, -1)", "y.view(3, 5), -1)"))
        unplanned = await executor.profile(task, refused)
        unbuilt = await executor.profile(
            task, new_candidate("cpp", TWICE.replace("2 *", "2 * *"), PLAN)
        )
    finally:
        await executor.aclose()
    assert "segmentation fault" in broken.missing[0].why
    assert again.times
    assert "plan line 5" in unplanned.missing[0].why
    assert {item.step for item in unbuilt.missing} == {"counters", "times"}


async def test_counters_are_read_from_what_ncu_prints(ncu, request_, tmp_path):
    ncu(GOOD)
    found = await count(request_, tmp_path)
    assert found.missing is None
    assert [item.kernel for item in found.counters if item.own] == ["row_sums"]
    assert found.rules


async def test_ncu_runs_the_candidate_and_nothing_else_is_profiled(ncu, request_, tmp_path):
    ncu(f'echo "$@" >> {tmp_path}/said\n{GOOD}')
    await count(request_, tmp_path)
    collected = (tmp_path / "said").read_text().splitlines()[0]
    assert "--profile-from-start off" in collected
    assert "--clock-control none" in collected
    assert "--launch-count 8" in collected
    assert "-m kernelwright.tools.evaluate.profiling.child" in collected
    asked = ProfileRequest.model_validate_json((tmp_path / "request.json").read_text())
    assert asked == request_


@pytest.mark.parametrize(
    ("script", "why", "remedy"),
    [
        (
            "echo '==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access "
            "NVIDIA GPU Performance Counters on the target device 0.'; exit 1",
            "may not read",
            "NVreg_RestrictProfilingToAdminUsers=0",
        ),
        ("echo '==WARNING== No kernels were profiled.'", "launched no kernel", "none"),
        ("exit 0", "said nothing", "by hand"),
        ("kill -SEGV $$", "said nothing", "by hand"),
        (GOOD.replace("ncu_raw.csv", "ncu_details.csv"), None, None),
        (GOOD.split("case", maxsplit=2)[0] + "case $before in --export) echo x > $word;; esac; "
         "before=$word; done; echo what is this", "no table", "2025.3"),
    ],
)  # fmt: skip
async def test_what_keeps_counters_away_is_said(ncu, request_, tmp_path, script, why, remedy):
    ncu(script)
    found = await count(request_, tmp_path)
    if why is None:  # a page without a metric is a table all the same
        assert all(item.counted_time_ms is None for item in found.counters)
        return
    assert found.counters == ()
    assert found.missing is not None
    assert why in found.missing.why
    assert remedy in found.missing.remedy


async def test_an_ncu_that_hangs_is_killed_with_all_that_it_started(ncu, request_, tmp_path):
    long = f"300.{os.getpid()}25"  # as nobody else on this machine sleeps
    ncu(f"sleep {long} & sleep {long}")
    quick = request_.model_copy(update={"rules": Rules(profile_s=1)})
    found = await count(quick, tmp_path)
    assert "within 1 s" in found.missing.why
    assert not _running("sleep", long)


async def test_what_stood_ready_and_took_too_long_is_not_tried_again(ncu, request_, tmp_path):
    ncu(f"echo started >> {tmp_path}/starts; sleep 300.75")
    quick = request_.model_copy(update={"rules": Rules(profile_s=1)})
    standby = Standby(tmp_path / "profiles")
    standby.prepare(quick.task, quick.rules)
    found = await standby.count(quick)
    assert "within 1 s" in found.missing.why
    assert (tmp_path / "starts").read_text().split() == ["started"]
    assert not _running("sleep", "300.75")


def test_on_a_gpu_what_profiles_is_started_before_anybody_asks(task, tmp_path, monkeypatch):
    began: list[str] = []
    monkeypatch.setattr(Standby, "prepare", lambda *_: began.append("counters"))
    monkeypatch.setattr(Keeper, "prepare", lambda *_, compiler: began.append(f"times {compiler}"))

    def prepared(device: str, evidence: str) -> Profiles:
        shop = Workshop(
            hardware_profile(device), tmp_path, seed=0, rules=Rules(evidence=evidence), lease=None,
            spares=None,
        )  # fmt: skip
        profiles = Profiles(shop)
        profiles.prepare(task)
        return profiles

    profiles = prepared("h200", "full")
    assert began == ["counters", "times False"]
    monkeypatch.setattr(profiles._aside, "questions", 1)  # its worker stands already
    profiles.prepare(task)
    assert began == ["counters", "times False", "counters"]
    prepared("h200", "timing")
    assert len(began) == 3


async def test_a_question_that_is_given_up_ends_ncu(ncu, request_, tmp_path):
    long = f"300.{os.getpid()}5"
    ncu(f"sleep {long}")
    asking = asyncio.create_task(count(request_, tmp_path))
    for _ in range(1500):
        await asyncio.sleep(0.02)
        if _running("sleep", long):
            break
    else:
        pytest.fail("ncu never started")
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert not _running("sleep", long)


def test_the_named_ncu_must_be_a_program():
    missing = find_ncu({VARIABLE: "/no/such/ncu", "PATH": os.environ["PATH"]})
    assert isinstance(missing, Missing)
    assert "/no/such/ncu" in missing.why


def test_ncu_is_found_on_the_path_and_in_the_toolkits_folder(ncu, tmp_path):
    path = ncu("exit 0")
    assert find_ncu({"PATH": str(path.parent)}) == path
    home = tmp_path / "cuda"
    (home / "bin").mkdir(parents=True)
    path.rename(home / "bin" / "ncu")
    assert find_ncu({"PATH": "/nowhere", "CUDA_HOME": str(home)}) == home / "bin" / "ncu"


def _running(*words: str) -> list[int]:
    """Processes of this machine that were started with just these words."""
    wanted = "".join(f"{word}\0" for word in words).encode()
    return [
        int(place.name)
        for place in Path("/proc").iterdir()
        if place.name.isdigit() and _bytes(place / "cmdline") == wanted
    ]


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
