"""Without bubblewrap: a file's code reaches nothing that is not its own, and work goes on."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.sandbox import hiding, walls
from kernelwright.tools.types import Baselines, Candidate, Task, TracePolicy, Verdict, WallKind

# Writes what it could reach into its own folder, and is a fine module otherwise.
EVIL = """
import json, os, socket
import torch
from layer import Rows

TRIES = {{
    "the data folder": lambda: os.listdir({data!r}),
    "another's run": lambda: open({run!r}).read(),
    "the chat's database": lambda: open({chat!r}, "rb").read(),
    "a link to it": lambda: (os.symlink({chat!r}, "link"), open("link").read()),
    "a change of it": lambda: open({chat!r}, "a").write("x"),
    "its removal": lambda: os.remove({chat!r}),
    "another's home": lambda: open({key!r}).read(),
    "the home folder": lambda: os.listdir({home!r}),
    "the root's": lambda: os.listdir("/root"),
    "passwords": lambda: 1 / len(open("/etc/shadow").read()),
    "a process's environment": lambda: open("/proc/{parent}/environ").read(),
    "a process's files": lambda: os.listdir("/proc/{parent}/root/etc"),
    "the judge's own environment": lambda: [
        0 / open(f"/proc/{{os.getppid()}}/environ").read().count("LOGIN_SECRET")],
    "another's process": lambda: os.kill({parent}, 0),
    "the system's settings": lambda: open("/proc/sys/kernel/core_pattern", "w").write("x"),
    "the disk": lambda: open({disk!r}, "rb").read(1),
    "the checkout": lambda: open({sources!r}, "a").write("x"),
    "a way round by a mount": lambda: [
        0 / (__import__("ctypes").CDLL(None).mount(b"/", b".", None, 4096, None) == 0)],
}}
reached = []
for name, attempt in TRIES.items():
    try:
        attempt()
        reached.append(name)
    except (OSError, ZeroDivisionError):
        pass
print("REACHED", json.dumps(reached), flush=True)
assert not reached, reached


class Model(torch.nn.Module):
    def forward(self, x):
        return Rows()(x)


def get_inputs():
    return [torch.randn(37, 129)]
"""
LAYER = """
import torch

class Rows(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x * 0.5, dim=-1)
"""
OPENMP, LOOP = "#include <omp.h>", "#pragma omp parallel for"


BOTH = pytest.param("namespaces and Landlock", marks=pytest.mark.exhaustive)


@pytest.fixture(params=[BOTH, "Landlock alone", "namespaces alone"])
def fallback(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each way in which files are hidden where bubblewrap is missing."""
    monkeypatch.delenv(walls.CHOICE, raising=False)
    monkeypatch.setattr(walls, "found", lambda: None)
    if request.param == "Landlock alone":
        monkeypatch.setattr(walls, "_tried_namespaces", lambda device: None)
    if request.param == "namespaces alone":
        monkeypatch.setattr(walls, "landlock", lambda: False)
    elif not hiding.landlock():
        pytest.skip("this kernel has no Landlock")
    walls._chosen.cache_clear()
    yield str(request.param)
    walls._chosen.cache_clear()


@pytest.fixture
async def executor(
    fallback: str, tmp_path: Path, cpu: Hardware, short_rules: Rules
) -> AsyncIterator[LocalExecutor]:
    """One behind the fallback, with its folder where a chat would have it."""
    made = LocalExecutor(cpu, tmp_path / "data" / "scratch", seed=7, rules=short_rules)
    yield made
    await made.aclose()


def evil(folder: Path) -> Path:
    """A file in its own folder, and what is not its own beside that."""
    data = folder / "data"
    for name in ("people/bert/runs/one/run.db", "chat/threads.db", "home/.ssh/id"):
        (data / name).parent.mkdir(parents=True, exist_ok=True)
        (data / name).write_text("secret", encoding="utf-8")
    own = data / "people" / "anna" / "files"
    own.mkdir(parents=True)
    (own / "layer.py").write_text(LAYER, encoding="utf-8")
    disks = [str(disk) for disk in sorted(Path("/dev").glob("[vs]da*"))]
    text = EVIL.format(
        data=str(data), run=str(data / "people/bert/runs/one/run.db"),
        chat=str(data / "chat/threads.db"), key=str(data / "home/.ssh/id"),
        home=str(Path.home()), parent=os.getpid(), disk=(disks or ["/dev/mem"])[0],
        sources=str(Path(walls.__file__)),
    )  # fmt: skip
    file = own / "model.py"
    file.write_text(text, encoding="utf-8")
    return file


PACKAGED = """
import torch
from zoo.rows import Rows

class Model(torch.nn.Module):
    def forward(self, x):
        return Rows()(x)


def get_inputs():
    return [torch.randn(37, 129)]
"""


async def test_a_package_is_found_where_it_lives(
    fallback: str, executor: LocalExecutor, tmp_path: Path
) -> None:
    """Python lists the folder that a package lies in, whose other files stay hidden."""
    package = tmp_path / "project" / "src" / "zoo"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "rows.py").write_text(LAYER, encoding="utf-8")
    (package / "model.py").write_text(PACKAGED, encoding="utf-8")
    task = await executor.trace(package / "model.py", TracePolicy())
    assert isinstance(task, Task), task


def test_names_are_listed_around_packages_and_files_alone(tmp_path: Path) -> None:
    """A home folder's names are nobody's business, if a project lies in it."""
    project, package = tmp_path / "home" / "project", tmp_path / "other" / "zoo"
    for folder in (project, package, tmp_path / "project" / "src" / "spaced"):
        folder.mkdir(parents=True)
    (package / "__init__.py").touch()
    readable = (project, package, tmp_path / "project" / "src" / "spaced")
    listed = hiding.open_places(tmp_path / "scratch", [], readable, "cpu")["list"]
    assert str(package.parent) in listed
    assert str(tmp_path / "project" / "src") in listed
    assert str(project.parent) not in listed


@pytest.mark.exhaustive
async def test_a_files_code_sees_nobody_elses_files_and_is_judged_as_ever(
    fallback: str, executor: LocalExecutor, tmp_path: Path, kernel: Callable[..., Candidate]
) -> None:
    if fallback == "namespaces alone":
        pytest.skip("without Landlock mounts hide what is named below, not everything")
    file = evil(tmp_path)
    task = await executor.trace(file, TracePolicy())
    assert isinstance(task, Task), task
    assert (tmp_path / "data/chat/threads.db").read_text(encoding="utf-8") == "secret"
    found = await executor.evaluate(task, kernel(head=OPENMP, before=LOOP), "screen")
    assert found.verdict is Verdict.CORRECT, found.verification.reason
    assert "no file but system, Python and task" in found.verification.isolation.words
    assert "no bubblewrap" in found.verification.isolation.words
    alone = fallback == "Landlock alone"
    assert found.verification.isolation.is_a_wall is not alone
    assert ("the network can be reached" in found.verification.isolation.words) is alone


@pytest.mark.exhaustive  # that a compiler runs there is seen below in every run
async def test_what_pytorch_compiles_is_compiled_there_too(
    fallback: str, executor: LocalExecutor, tmp_path: Path
) -> None:
    if fallback == "namespaces alone":
        pytest.skip("without Landlock mounts hide what is named below, not everything")
    task = await executor.trace(evil(tmp_path), TracePolicy())
    assert isinstance(task, Task), task
    known = await executor.baselines(task)
    assert isinstance(known, Baselines)
    compiled = known.named("compile")
    assert compiled is not None
    assert compiled.measurement is not None, compiled.failure


def test_a_folder_of_everybody_is_not_let_in_because_a_script_lies_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared, own = tmp_path / "shared", tmp_path / "own"
    for place in (shared, own):
        place.mkdir()
    shared.chmod(0o1777)
    monkeypatch.setattr(sys, "path", [str(shared), str(own), *sys.path])
    assert own in walls.interpreter()
    assert shared not in walls.interpreter()


def test_compilers_that_lie_elsewhere_are_let_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On some machines gcc is in /opt, or where a module system puts it."""
    place = tmp_path / "toolchain" / "gcc-13"
    (place / "bin").mkdir(parents=True)
    gcc = place / "bin" / "gcc"
    gcc.write_text('#!/bin/sh\nexec /usr/bin/gcc "$@"\n', encoding="utf-8")
    gcc.chmod(0o755)
    monkeypatch.setenv("PATH", f"{gcc.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("CXX", str(gcc))
    assert str(place) in walls.toolchains()
    assert place in walls.interpreter()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    told = scratch / "told.txt"
    needed = [Path("/usr"), Path("/lib"), Path("/lib64"), Path("/bin"), *walls.interpreter()]
    settings = {
        "wall": "none", "without": [], "status_fd": 1, "parent": os.getpid(),
        "scratch": str(scratch), "covered": [], "shared_bytes": 1 << 20, "limits": {},
        "open_places": hiding.open_places(scratch, needed, (), "cpu"),
    }  # fmt: skip
    line = [sys.executable, "-I", "-S", str(walls.LAUNCHER), json.dumps(settings)]
    code = (
        f"import subprocess; subprocess.run(['gcc', '--version'], stdout=open({str(told)!r}, 'w'))"
    )
    done = subprocess.run(
        [*line, sys.executable, "-I", "-S", "-c", code],
        capture_output=True, text=True, timeout=60, cwd=scratch,
    )  # fmt: skip
    assert "Free Software Foundation" in told.read_text(encoding="utf-8"), done.stderr


def test_without_landlock_homes_and_passwords_are_covered_by_mounts(
    fallback: str, tmp_path: Path
) -> None:
    if fallback != "namespaces alone":
        pytest.skip("of the other ways there is a test above")
    behind = walls.wall()
    if behind.kind is not WallKind.NAMESPACES:
        pytest.skip(behind.isolation.words)
    assert "not hidden" in behind.isolation.words
    reading, writing = os.pipe()
    code = (
        "import json, os\n"
        "print(json.dumps([open('/etc/shadow').read(), os.path.exists('/root/.ssh/id')]))"
    )
    line = walls.command(
        behind.kind, (sys.executable, "-I", "-S", "-c", code), scratch=tmp_path,
        status_fd=writing, strict=False, without=behind.without,
    )  # fmt: skip
    try:
        done = subprocess.run(
            line, capture_output=True, text=True, check=False, pass_fds=(writing,), cwd=tmp_path
        )
    finally:
        os.close(reading)
        os.close(writing)
    assert json.loads(done.stdout) == ["", False], done.stderr


def test_where_nothing_hides_files_it_is_said_loudly(
    monkeypatch: pytest.MonkeyPatch, logged: list[str]
) -> None:
    monkeypatch.delenv(walls.CHOICE, raising=False)
    monkeypatch.setattr(walls, "found", lambda: None)
    monkeypatch.setattr(walls, "landlock", lambda: False)
    monkeypatch.setattr(walls, "_tried_namespaces", lambda device: None)
    walls._chosen.cache_clear()
    try:
        found = walls.wall().isolation
        assert "not isolated" in found.words
        assert "apt-get install bubblewrap" in " ".join(logged)
        assert "apt-get install bubblewrap" in walls.bubblewrap_lacks("cpu")
    finally:
        walls._chosen.cache_clear()
