"""A local cluster of CPU workers, with Ray: behind which wall, kept how, and what a loss costs."""

import asyncio
import importlib.util
import json
import os
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import pytest
import pytest_asyncio

from kernelwright.tools.evaluate.executors.base.kind import ExecutorChoice, Options
from kernelwright.tools.evaluate.executors.cluster import KIND, kind_of
from kernelwright.tools.evaluate.executors.cluster.actor import without_ray
from kernelwright.tools.evaluate.executors.cluster.broker import kinds_of, networks
from kernelwright.tools.evaluate.executors.cluster.executor import Cluster, RayExecutor
from kernelwright.tools.evaluate.executors.cluster.messages import Ground
from kernelwright.tools.evaluate.executors.cluster.ray_fleet import check, environment_of, has_token
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.types import EnvironmentLacksError, Refusal, Task, TracePolicy

SCRIPT = Path(__file__).resolve().parents[5] / "benchmarks" / "cluster" / "lost_workers.py"
# A module that runs behind the wall of a device tells what it could reach, where it is audited.
PRYING = """
import glob, json, os, socket, torch

def reached():
    sessions = glob.glob("/tmp/kw-ray-*") + glob.glob("/tmp/ray*") + glob.glob(HOME + "/.ray*")
    rays = [name for name in os.environ if "RAY" in name]
    others = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = open(f"/proc/{pid}/cmdline", "rb").read()
            others += [pid for one in (b"raylet", b"ray::", b"gcs_server") if one in words]
        except OSError:
            pass
    return {"sessions": sessions, "rays": rays, "others": others,
            "networks": [line.split(":")[0].strip() for line in open("/proc/net/dev") if ":" in line
                         and not line.split(":")[1].split()[0] == "0"]}

class Model(torch.nn.Module):
    def forward(self, x):
        if os.environ.get("HOME", "").startswith(DEVICE):
            raise ValueError("reached " + json.dumps(reached()))
        return x * 2.0

def get_inputs():
    return [torch.randn(4, 4)]
"""


def test_nothing_of_ray_is_in_a_judges_environment() -> None:
    given = {"RAY_AUTH_TOKEN": "t", "RAY_ADDRESS": "a", "PATH": "/bin", "OMP_NUM_THREADS": "1"}
    assert without_ray(given).keys() == {"PATH", "PYTHONPATH"}
    assert without_ray(given, threads="4")["OMP_NUM_THREADS"] == "4"


def test_devices_are_counted_by_kind() -> None:
    nodes: list[dict[str, object]] = [
        {"Alive": True, "Resources": {"GPU": 8.0, "accelerator_type:H200": 1.0, "CPU": 64.0}},
        {"Alive": True, "Resources": {"GPU": 2.0, "accelerator_type:L40S": 1.0}},
        {"Alive": False, "Resources": {"GPU": 8.0, "accelerator_type:H200": 1.0}},
        {"Alive": True, "Resources": {"CPU": 4.0, "kernelwright_cpu": 1.0}},
    ]
    assert kinds_of(nodes) == {"H200": 8, "L40S": 2, "gpu": 10, "cpu": 1}


def test_joining_is_explicit_and_needs_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    joined = Ground(address="head:6379")
    assert not has_token({})
    with pytest.raises(EnvironmentLacksError, match="head:6379 needs the cluster's token"):
        check(joined)
    check(joined, {"RAY_AUTH_TOKEN": "secret"})
    told = [environment_of(ground) for ground in (joined, Ground(), Ground())]
    assert all(item["RAY_AUTH_MODE"] == "token" and "RAY_ADDRESS" not in item for item in told)
    assert "RAY_AUTH_TOKEN" not in told[0]
    assert told[1]["RAY_AUTH_TOKEN"] != told[2]["RAY_AUTH_TOKEN"]


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    path = "kernelwright.tools.evaluate.executors.cluster.ray_fleet"
    monkeypatch.setattr(f"{path}.bubblewrap", lambda: None)
    with pytest.raises(EnvironmentLacksError, match="apt-get install bubblewrap"):
        check(Ground())
    monkeypatch.setattr(f"{path}.installed", lambda: False)
    with pytest.raises(EnvironmentLacksError, match=r"pip install .*\[cluster\]"):
        check(Ground())


def test_devices_are_chosen_by_kind() -> None:
    chosen = KIND.chosen("ray", Options("cuda", gpu="H200", cluster="head:6379"))
    assert (chosen.kind, chosen.cluster, kind_of(chosen, "cuda")) == ("H200", "head:6379", "H200")
    assert kind_of(ExecutorChoice(name="ray"), "cpu") == "cpu"
    assert kind_of(ExecutorChoice(name="ray", cluster="head:6379"), "auto") == "gpu"
    with pytest.raises(ValueError, match="bench takes several"):
        KIND.chosen("ray", Options("cuda", gpu="L40S,H200"))
    with pytest.raises(ValueError, match="--target is cpu"):
        KIND.chosen("ray", Options("cpu", gpu="H200"))


def test_this_process_could_not_begin_a_cluster_of_its_own() -> None:
    assert networks() != set()


@pytest.fixture(scope="module")
def before(story: ModuleType) -> set[tuple[int, str]]:
    """What other files' tests left to stay as long as this process does, a fork server say."""
    return set(story.offspring())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def two(
    tmp_path_factory: pytest.TempPathFactory, before: set[tuple[int, str]]
) -> AsyncIterator[Cluster]:
    """A cluster of two workers, which takes ten seconds to start."""
    cluster = Cluster(Ground(kinds=("cpu",), cpus=2), tmp_path_factory.mktemp("scratch"))
    yield cluster
    await cluster.aclose()


@pytest.mark.exhaustive
@pytest.mark.asyncio(loop_scope="module")
async def test_a_module_on_a_device_reaches_nothing_of_the_cluster(
    two: Cluster, tmp_path: Path
) -> None:
    names = f"HOME = {str(Path.home())!r}\nDEVICE = '/tmp/kernelwright-device-'\n"
    path = tmp_path / "prying.py"
    path.write_text(names + PRYING, encoding="utf-8")
    executor = RayExecutor(two, "cpu", rules=Rules(compile_ahead=False), owned=False)
    task = await executor.trace(path, TracePolicy())
    assert isinstance(task, Task), task
    found = await executor.baselines(task)
    await executor.aclose()
    assert isinstance(found, Refusal)
    told = json.JSONDecoder().raw_decode((found.sentence + found.detail).split("reached ", 1)[1])
    assert told[0] == {"sessions": [], "rays": [], "others": [], "networks": []}


@pytest.mark.exhaustive
@pytest.mark.asyncio(loop_scope="module")
async def test_the_cluster_is_in_a_network_of_its_own_and_leaves_nothing(
    two: Cluster, story: ModuleType, before: set[tuple[int, str]]
) -> None:
    await two.some("cpu")
    (inside,) = [
        pid
        for pid, words in story.offspring()
        if words.startswith(sys.executable) and "cluster.broker" in words
    ]
    spaces = [os.readlink(f"/proc/{pid}/ns/net") for pid in (os.getpid(), inside)]
    assert spaces[0] != spaces[1]
    with pytest.raises(EnvironmentLacksError, match="the cluster has no H200; it has 2 cpu"):
        await two.some("H200")
    await two.aclose()
    await asyncio.sleep(1.0)
    assert set(story.offspring()) <= before


@pytest.fixture(scope="module")
def story() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lost_workers", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["lost_workers"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.exhaustive
@pytest.mark.slow
async def test_a_search_that_loses_workers_ends_with_the_same_jobs_and_verdicts(
    story: ModuleType,
    before: set[tuple[int, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")
    typical_s = {"probe": 6.0, "screen": 3.0, "precise": 1.0, "profile": 0.5, "certify": 8.0}
    murderer = story.Murderer(story.PHASES, random.Random(1), typical_s)
    found = await story.search(tmp_path, murderer)
    assert {phase for phase, _ in found.killed} == set(story.PHASES)
    assert found.losses
    assert Counter(job.split()[0] for job in found.jobs) == {
        "probe": 1, "screen": 3, "precise": 1, "profile": 1, "certify": 1,
    }  # fmt: skip
    assert found.answered_twice == 0
    said = Counter((line.split()[0], line.split()[-1]) for line in found.verdicts)
    assert said == {
        ("screen", "correct"): 2,
        ("screen", "wrong_result"): 1,
        ("precise", "correct"): 1,
        ("certify", "correct"): 1,
    }
    assert set(story.offspring()) <= before
