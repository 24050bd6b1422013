"""Where NVIDIA's tools run: real processes behind the real wall, each a stand-in for the tool.

What a stand-in does with processes, files and sockets is what ncu does: it starts the program to
be watched, talks to itself over the loopback, writes a report and reads it again. Whether the real
ones work there is asked in `test_profiling_gpu` and `test_sanitizing`.
"""

import json
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.evaluate.messages import ProfileRequest
from kernelwright.tools.evaluate.profiling.local import Standby
from kernelwright.tools.evaluate.profiling.nsight import VARIABLE, child_command, count
from kernelwright.tools.evaluate.profiling.sanitizers import look
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.sandbox.walls import CHOICE, wall
from kernelwright.tools.languages import Built, new_candidate
from kernelwright.tools.languages.base.compile import cache_folder
from kernelwright.tools.profile import measured_evidence
from kernelwright.tools.types import DType, Graph, InputSpec, Profile, Task, TensorSpec, WallKind

RECORDED = Path(__file__).parents[2] / "profile" / "recorded"
KERNEL = 'extern "C" __global__ void row_sums(const float* x) { }'
PLAN = 'def forward(x):\n    launch("row_sums", grid=1, block=1, args=(x,))\n    return x\n'

# Collects or prints, as ncu does; what it could reach stands in its report.
STAND_IN = """#!{python} -S
import json, os, socket, subprocess, sys
from pathlib import Path
here, words = Path(__file__).parent, sys.argv[1:]

def reached(what):
    try:
        what()
    except OSError:
        return False
    return True

def outside():
    socket.create_connection(("127.0.0.1", {port}), 2).close()

def loopback():
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), 2).close()

if "--import" in words:
    page = words[words.index("--page") + 1]
    sys.stdout.write((here / ("ncu_" + page + ".csv")).read_text())
    sys.exit()
watched = words[words.index(sys.executable):]
candidate = "kernelwright.tools.evaluate.profiling.child" in watched
free = reached(outside)
if {fails}:
    sys.exit("==ERROR== it does not work here")
ran = subprocess.run(
    [sys.executable, "-P", "-m", "kernelwright.tools.evaluate.profiling.trial", "30"],
    capture_output=True, text=True,
)
told = dict(
    free=free, loopback=reached(loopback), marker=reached(lambda: open({marker!r}).close()),
    trial=ran.returncode, said=ran.stderr[-300:], folder=os.getcwd(),
    writes=reached(lambda: open({marker!r}, "r+").close()),
)
if "--export" in words:
    Path(words[words.index("--export") + 1]).write_text(json.dumps(told))
print("========= ERROR SUMMARY: 0 errors")
"""


class Door:
    """A port of this machine's; how often somebody came in tells how often he was outside."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.visits = 0
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        while True:
            try:
                came, _ = self._server.accept()
            except OSError:
                return
            came.close()
            self.visits += 1

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def door() -> Iterator[Door]:
    made = Door()
    yield made
    made.close()


@pytest.fixture
def tool(tmp_path, monkeypatch, door):
    """Make a stand-in, which fails where an expression over `free` and `candidate` holds."""
    if not wall().isolation.is_a_wall:
        pytest.skip(wall().isolation.words)
    # Without a device no wall lets its driver start; the one for the CPU is the same otherwise.
    for module in ("nsight", "local", "sanitizers"):
        monkeypatch.setattr(
            f"kernelwright.tools.evaluate.profiling.{module}.standing", lambda rules, device: wall()
        )
    folder = tmp_path / "toolkit"
    folder.mkdir()
    (tmp_path / "marker").touch()
    for page in ("ncu_raw.csv", "ncu_details.csv"):
        shutil.copy(RECORDED / page, folder)

    def make(name: str, fails: str = "False") -> Path:
        path = folder / name
        text = STAND_IN.format(
            python=sys.executable,
            port=door.port,
            fails=fails,
            marker=str(tmp_path / "marker"),
        )
        path.write_text(text)
        path.chmod(0o755)
        monkeypatch.setenv(VARIABLE, str(path))
        return path

    return make


@pytest.fixture
def request_(tmp_path) -> ProfileRequest:
    """A candidate that nobody compiled: the stand-ins do not run it."""
    spec = TensorSpec(shape=(8, 8), dtype=DType.FLOAT32)
    artifact = tmp_path / "kernel.cubin"
    artifact.touch()
    task = Task(
        name="rows", path=str(tmp_path / "rows.py"), source="", source_sha256="", entry="Model",
        entry_kind="kernelbench", inputs=(InputSpec(name="x", tensor=spec),), outputs=(spec,),
        graph=Graph(nodes=(), inputs=(), outputs=()), bytes_moved=512, flops=64,
    )  # fmt: skip
    built = Built(
        language="cuda", artifact=artifact, functions=("row_sums",), reports=(), log="",
        cached=False, seconds=0.0,
    )  # fmt: skip
    return ProfileRequest(
        task=task,
        hardware=hardware_profile("h200"),
        rules=Rules(profile_s=60, sanitize_s=60),
        candidate=new_candidate("cuda", KERNEL, PLAN),
        built=built,
        seed=1,
    )


async def test_ncu_works_behind_the_wall_and_reaches_nothing_of_ours(tool, request_, tmp_path):
    tool("ncu")
    scratch = tmp_path / "profiles" / "scratch"
    found = await count(request_, scratch)
    assert found.missing is None
    assert found.outside == ""
    assert [item.kernel for item in found.counters if item.own] == ["row_sums"]
    told = json.loads((scratch / "counters.ncu-rep").read_text())
    assert told["loopback"]
    assert not told["free"]
    assert not told["writes"]
    assert told["marker"] is (wall().kind is not WallKind.BUBBLEWRAP)
    assert told["folder"] == str(scratch)
    # Our own program was found there; without a device it got as far as the driver.
    assert told["trial"] == 0 or "libcuda" in told["said"] or "the driver" in told["said"]


@pytest.mark.exhaustive
async def test_what_stands_ready_under_ncu_counts_once_and_is_gone(tool, request_, tmp_path, door):
    tool("ncu")
    standby = Standby(tmp_path / "profiles")
    standby.prepare(request_.task, request_.rules)
    standby.prepare(request_.task, request_.rules)
    built = request_.built.model_copy(update={"artifact": cache_folder() / "kernel.cubin"})
    request = request_.model_copy(update={"built": built})
    ready = await standby.count(request)
    assert ready.counters
    assert not ready.missing
    assert not list((tmp_path / "profiles").glob("*")), "what it wrote went with it"
    # What may not be read by the one that waits is counted by another.
    standby.prepare(request_.task, request_.rules)
    other = await standby.count(request_)
    assert other.counters == ready.counters
    assert [path.name for path in (tmp_path / "profiles").glob("*")] == ["counted"]
    standby.prepare(request_.task, request_.rules)
    await standby.aclose()
    assert [path.name for path in (tmp_path / "profiles").glob("*")] == ["counted"]
    assert door.visits == 0


async def test_a_process_that_breaks_while_it_waits_costs_nothing(tool, request_, tmp_path):
    tool("ncu", fails="not os.path.exists('request.json')")
    standby = Standby(tmp_path / "profiles")
    standby.prepare(request_.task, request_.rules)
    assert (await standby.count(request_)).counters
    await standby.aclose()


def test_the_watched_process_waits_for_what_to_run(tmp_path):
    asked = tmp_path / "request.json"
    child = subprocess.Popen(child_command(asked, 60), stderr=subprocess.PIPE, text=True)
    try:
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(1.0)
        asked.write_text("no request", encoding="utf-8")
        _, said = child.communicate(timeout=120)
    finally:
        child.kill()
    assert "Invalid JSON" in said


@pytest.mark.exhaustive
async def test_ncu_that_works_outside_only_runs_there_and_says_so(tool, request_, tmp_path, door):
    tool("ncu", fails="not free")
    found = await count(request_, tmp_path)
    assert found.missing is None
    assert found.outside.startswith("outside the wall: ncu does not work behind ")
    before = door.visits
    again = await count(request_, tmp_path)
    assert again.outside == found.outside
    assert door.visits == before + 1, "the second time it went outside at once"
    profile = Profile(candidate="c1", counters=found.counters, outside=found.outside)
    sources = [item.source for item in measured_evidence(profile) if "dram__" in item.source]
    assert sources
    assert all("outside the wall" in source for source in sources if "all launches" not in source)


@pytest.mark.exhaustive
async def test_a_candidate_that_breaks_ncu_is_not_let_out_by_that(tool, request_, tmp_path, door):
    tool("ncu", fails="candidate")
    found = await count(request_, tmp_path)
    assert found.outside == ""
    assert "does not work here" in found.missing.why
    assert door.visits == 0


async def test_where_bubblewrap_is_demanded_nothing_runs_outside(
    tool, request_, tmp_path, door, monkeypatch
):
    if wall().kind is not WallKind.BUBBLEWRAP:
        pytest.skip("bubblewrap does not work here")
    monkeypatch.setenv(CHOICE, "require")
    tool("ncu", fails="not free")
    found = await count(request_, tmp_path)
    assert found.missing is not None
    assert door.visits == 0


@pytest.mark.parametrize(
    ("fails", "outside", "missing"),
    [("False", False, False), ("not free", True, False), ("candidate", False, True)],
)
async def test_the_sanitizer_stands_where_it_works(
    tool, request_, tmp_path, fails, outside, missing
):
    program = tool("compute-sanitizer", fails)
    found = await look(program, "memcheck", request_, tmp_path / "scratch", 60)
    assert bool(found.outside) is outside
    assert bool(found.missing) is missing
    assert not found.words
