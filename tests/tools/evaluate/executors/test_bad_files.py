"""A user's file may do anything to its process; the person reads one sentence."""

import asyncio
import os
import time
import zipfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio
import torch

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.executors.base.executor import HEARER
from kernelwright.tools.evaluate.executors.local.builder import _draws_random
from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Doubt, Refusal, Task, TracePolicy

pytestmark = pytest.mark.asyncio(loop_scope="module")

INPUTS = "\ndef get_inputs():\n    return [torch.randn(4)]\n"
MODEL = "import os, sys, time, torch\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def reader(
    tmp_path_factory: pytest.TempPathFactory, cpu: Hardware
) -> AsyncIterator[LocalExecutor]:
    rules = Rules(memory_fraction=0.08, compile_ahead=False)
    made = LocalExecutor(cpu, tmp_path_factory.mktemp("scratch"), seed=7, rules=rules)
    yield made
    await made.aclose()


FORK = "        os.fork()\n        return x\n"
HUNGRY = "        k = [bytearray(1 << 26) for _ in range(10**4)]\n        return x\n"


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("        os._exit(7)\n", "exit status 7"),
        pytest.param("        sys.exit(3)\n", "exits the process", marks=pytest.mark.exhaustive),
        pytest.param(FORK, "must not start processes", marks=pytest.mark.exhaustive),
        pytest.param(HUNGRY, "GiB", marks=pytest.mark.exhaustive),
    ],
    ids=["_exit", "exit", "fork", "memory"],
)
async def test_a_forward_that_ends_its_process_is_refused(
    reader: LocalExecutor, write: Callable[[str], Path], body: str, words: str
) -> None:
    found = await reader.trace(write(MODEL + body + INPUTS), TracePolicy(timeout_s=60))
    assert isinstance(found, Refusal)
    assert words in found.sentence
    assert "\n" not in found.sentence
    assert "Traceback" not in found.sentence


@pytest.mark.exhaustive
async def test_a_file_that_hangs_is_stopped_with_everything_it_started(
    reader: LocalExecutor, write: Callable[[str], Path]
) -> None:
    # Two processes by one name; the second started without Python's knowledge, as by native code.
    name = f"hangs-{os.getpid()}"[:15]
    native = f"libc = ctypes.CDLL(None)\nlibc.prctl(15, {name.encode()!r}, 0, 0, 0)\nlibc.fork()\n"
    path = write("import ctypes, time\n" + native + "time.sleep(600)\n")
    reading = asyncio.create_task(reader.trace(path, TracePolicy(timeout_s=20.0)))
    await asyncio.to_thread(_until, lambda: len(_named(name)) == 2 or reading.done())
    assert not reading.done()
    found = await reading
    assert isinstance(found, Refusal)
    assert "did not finish within 20 s" in found.sentence
    assert _named(name) == []


@pytest.mark.exhaustive
async def test_what_a_file_left_running_ends_with_its_reading(
    reader: LocalExecutor, write: Callable[[str], Path]
) -> None:
    name = f"stays-{os.getpid()}"[:15]
    native = f"libc.prctl(15, {name.encode()!r}, 0, 0, 0), time.sleep(600)"
    path = write(
        f"import ctypes, time\nlibc = ctypes.CDLL(None)\nif libc.fork() == 0: {native}\n"
        "time.sleep(0.3)\n" + MODEL + "        return x * 2\n" + INPUTS
    )
    found = await reader.read(path, TracePolicy())
    assert isinstance(found, Task), found
    assert _named(name) == []


async def test_a_missing_file_is_refused_without_a_process(reader: LocalExecutor) -> None:
    found = await reader.trace(Path("no_such_file.py"), TracePolicy())
    assert isinstance(found, Refusal)
    assert "does not exist" in found.sentence


@pytest.mark.parametrize(
    ("drawn", "in_training"),
    [
        ("torch.distributions.Normal(x, 1.0).rsample()", False),
        ("x + torch.empty_like(x).exponential_()", False),
        ("torch.nn.functional.rrelu(x, training=self.training)", True),
    ],
)
def test_what_is_drawn_in_place_is_refused_with_another_way_to_draw_it(
    drawn: str, in_training: bool
) -> None:
    task = trace(f"{MODEL}        return {drawn}\n{INPUTS}", "/nowhere/drawn.py", TracePolicy())
    assert isinstance(task, Task), task
    found = _draws_random(task)
    assert ("torch.randn_like and torch.rand_like draw in one" in found.sentence) is not in_training
    assert ("--eval puts it into evaluation mode" in found.sentence) is in_training
    assert found.draws_in_training is in_training


@pytest.mark.exhaustive
async def test_random_forwards_are_refused_with_the_way_out(
    reader: LocalExecutor, write: Callable[[str], Path]
) -> None:
    body = "        return torch.nn.functional.dropout(x, 0.5, self.training)\n"
    file = write(MODEL + body + INPUTS)
    found = await reader.trace(file, TracePolicy())
    assert isinstance(found, Refusal)
    assert "draws random numbers in native_dropout" in found.sentence
    assert "--eval puts it into evaluation mode" in found.sentence
    assert found.draws_in_training
    assert isinstance(await reader.trace(file, TracePolicy(evaluation=True)), Task)


@pytest.mark.exhaustive
async def test_a_task_that_zeros_would_pass_is_badged(
    reader: LocalExecutor, write: Callable[[str], Path]
) -> None:
    body = "        return (x - x) * 1.0\n"
    found = await reader.trace(write(MODEL + body + INPUTS), TracePolicy())
    assert not isinstance(found, Refusal), found
    assert Doubt.CONSTANT in {badge.name for badge in found.badges}
    assert any("is 0, whatever the inputs are" in warning for warning in found.warnings)


def _until(condition: Callable[[], bool]) -> None:
    while not condition():
        time.sleep(0.05)


def _named(name: str) -> list[int]:
    """Processes of this machine whose name was set to this one, zombies left out."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            comm, _, state = (folder / "stat").read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        if comm == name and state.split()[0] != "Z":
            found.append(int(folder.name))
    return found


@pytest.mark.exhaustive
async def test_a_file_that_does_nothing_is_given_up_and_says_so_meanwhile(
    reader: LocalExecutor, write: Callable[[str], Path]
) -> None:
    heard: list[str] = []
    HEARER.set(heard.append)
    path = write("import torch, time\ntime.sleep(600)\n" + INPUTS)
    began = time.monotonic()
    # Longer than two signs of life are apart, so that the last one is all of doing nothing.
    found = await reader.read(path, TracePolicy(load_seconds=11))
    assert isinstance(found, Refusal)
    assert "did nothing for 11 s, neither computing nor reading" in found.sentence
    assert "--load-seconds" in found.sentence
    assert time.monotonic() - began < 60
    assert heard
    assert all(words.startswith(f"still reading {path.name}, ") for words in heard)
    assert heard[-1].endswith("waiting")


@pytest.mark.exhaustive
async def test_a_file_that_computes_for_longer_than_that_is_read(
    reader: LocalExecutor, write: Callable[[str], Path]
) -> None:
    heard: list[str] = []
    HEARER.set(heard.append)
    busy = "import time, torch\nend = time.monotonic() + 5\nwhile time.monotonic() < end: pass\n"
    model = "class Model(torch.nn.Module):\n    def forward(self, x):\n        return x * 2\n"
    found = await reader.read(write(busy + model + INPUTS), TracePolicy(load_seconds=2))
    assert isinstance(found, Task), found
    assert any(words.endswith("using the processor") for words in heard)


@pytest.mark.exhaustive
@pytest.mark.parametrize("isolation", ["auto", "off"])
async def test_a_package_is_read_and_judged_behind_the_wall_and_without(
    cpu: Hardware,
    short_rules: Rules,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
    isolation: str,
) -> None:
    monkeypatch.setenv("KERNELWRIGHT_ISOLATION", isolation)
    files = {
        "pyproject.toml": "",
        "src/walled_pkg/__init__.py": "",
        "src/walled_pkg/util.py": "def half(x): return x / 2",
        "tools/walled_helpers.py": "def scale(x): return x * 3",
        "src/walled_pkg/m.py": "import torch\nfrom .util import half\n"
        "from tools.walled_helpers import scale\nclass Model(torch.nn.Module):\n"
        "    def forward(self, x):\n        return scale(half(x)) @ x\n"
        "def get_inputs():\n    return [torch.randn(16, 16)]\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    scratch = tmp_path_factory.mktemp("scratch")
    made = LocalExecutor(cpu, scratch, seed=7, rules=short_rules)
    try:
        task = await made.read(tmp_path / "src/walled_pkg/m.py", TracePolicy())
        assert isinstance(task, Task), task
        (tmp_path / "src/walled_pkg/util.py").unlink()  # what was read is what is judged
        baselines = await made.baselines(task, eager_only=True)
    finally:
        await made.aclose()
    assert not isinstance(baselines, Refusal), baselines
    assert baselines.named("eager").measurement is not None  # type: ignore[union-attr]


@pytest.mark.exhaustive
async def test_a_zip_is_read_behind_the_wall_with_what_lies_around_the_module(
    reader: LocalExecutor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "home"))
    path = tmp_path / "sent.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("top/src/zipped_pkg/scale.txt", "3")
        archive.writestr("top/src/zipped_pkg/util.py", "def half(x): return x / 2\n")
        archive.writestr(
            "top/src/zipped_pkg/m.py",
            "import torch\nfrom pathlib import Path\nfrom .util import half\n"
            "K = float((Path(__file__).parent / 'scale.txt').read_text())\n"
            "class Model(torch.nn.Module):\n    def forward(self, x):\n"
            f"        return half(x) * K\n{INPUTS}",
        )
    task = await reader.read(path, TracePolicy(entry="zipped_pkg.m:Model"))
    assert isinstance(task, Task), task
    assert task.project is not None
    assert [item.path for item in task.project.files] == [
        "src/zipped_pkg/scale.txt",
        "src/zipped_pkg/util.py",
    ]


@pytest.mark.exhaustive
async def test_large_weights_and_saved_inputs_go_through_the_wall(
    reader: LocalExecutor,
    write: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "home"))
    torch.save({"x": torch.randn(4, 600)}, tmp_path / "batch.pt")
    file = write("import torch\ndef make():\n    return torch.nn.Linear(600, 600).eval()\n")
    policy = TracePolicy(
        entry="make", makes=True, inputs=(str(tmp_path / "batch.pt"),), timeout_s=100
    )
    refused = await reader.read(file, policy)
    assert isinstance(refused, Refusal)  # its forward calls that argument `input`
    assert "unexpected keyword argument 'x'" in refused.sentence
    torch.save([torch.randn(4, 600)], tmp_path / "batch.pt")
    task = await reader.read(file, policy)
    assert isinstance(task, Task), task
    assert task.state is not None
    kept = tmp_path / "home" / "weights" / f"{task.state.sha256}.pt"
    assert task.state.origin == str(kept)
    assert set(torch.load(kept, weights_only=True)) == {"weight", "bias"}
    baselines = await reader.baselines(task, eager_only=True)
    assert not isinstance(baselines, Refusal), baselines
    # So do those who look at the reference in a worker of their own.
    seen = await reader.outline(task)
    assert seen.outline is not None, seen.failure
    known = await reader.backward(task)
    assert known.backward is not None, known.failure
