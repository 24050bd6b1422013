"""Workers start quickly where nobody compiled Python's packages, and cannot write what they read.

A tiny package stands for torch: only where it lies and what it is compiled to matter here.
"""

import asyncio
import os
import py_compile
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE

import pytest

from kernelwright.tools.evaluate.sandbox import bytecode, filling
from kernelwright.tools.evaluate.sandbox import walls as bubblewrap
from kernelwright.tools.evaluate.sandbox.bytecode import worker_environment
from kernelwright.tools.evaluate.sandbox.walled import Enclosure, start_walled
from kernelwright.tools.evaluate.sandbox.walls import (
    Wall,
    _tried_bubblewrap,
    _tried_namespaces,
    plain_wall,
)

MODULES = ("__init__.py", "export/__init__.py", "_inductor/compile_fx.py")
IMPORTING = """
import torch.export, torch._inductor.compile_fx
with open({count!r}, "a") as count:
    count.write("once ")
"""


@pytest.fixture
def torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package without bytecode, what imports it, and a home of one's own."""
    folder = tmp_path / "packages" / "torch"
    for name in (*MODULES, "_inductor/__init__.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x = 1\n", encoding="utf-8")
    script = IMPORTING.format(count=str(tmp_path / "count"))
    (folder.parent / "imports_all.py").write_text(script, encoding="utf-8")
    monkeypatch.setattr(bytecode, "torch_folder", lambda: folder)
    monkeypatch.setattr(bytecode, "WORKER_IMPORTS", "imports_all")
    monkeypatch.setattr(filling, "_TRIED", set())
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.delenv(bytecode.VARIABLE, raising=False)
    monkeypatch.setenv("PYTHONPATH", str(folder.parent))
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "home"))
    return folder


def compiled(folder: Path, optimize: int = 0) -> None:
    for name in MODULES:
        py_compile.compile(str(folder / name), optimize=optimize, doraise=True)


def imports(tmp_path: Path) -> int:
    """How often somebody imported everything."""
    count = tmp_path / "count"
    return len(count.read_text(encoding="utf-8").split()) if count.exists() else 0


def files(folder: Path, pattern: str) -> list[Path]:
    return list(folder.rglob(pattern))


def running() -> str:
    """The command lines of all processes."""
    return subprocess.run(["ps", "-ww", "-eo", "args"], stdout=PIPE, text=True, check=True).stdout


def test_bytecode_beside_the_packages_is_all_that_is_wanted(torch: Path, tmp_path: Path) -> None:
    assert bytecode.lacking()
    compiled(torch)
    assert not bytecode.lacking()
    assert bytecode.pycache_prefix() is None
    assert bytecode.VARIABLE not in worker_environment(tmp_path)


def test_out_of_date_bytecode_is_none(torch: Path) -> None:
    compiled(torch)
    os.utime(torch / "export/__init__.py", (1, 1))
    assert bytecode.lacking()


def test_bytecode_of_an_optimised_python_is_of_no_use_to_workers(torch: Path) -> None:
    compiled(torch, optimize=1)
    assert bytecode.lacking()


def test_bytecode_that_is_never_checked_counts(torch: Path) -> None:
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    for name in MODULES:
        py_compile.compile(str(torch / name), doraise=True, invalidation_mode=unchecked)
    assert not bytecode.lacking()


async def test_a_prefix_of_the_persons_own_stays_theirs(
    torch: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "theirs"))
    assert bytecode.lacking()
    await filling.fill()
    assert imports(tmp_path) == 0
    assert worker_environment(tmp_path)[bytecode.VARIABLE] == str(tmp_path / "theirs")
    assert tmp_path / "theirs" in bubblewrap.interpreter()
    compiled(torch)  # goes to that prefix, too
    assert not bytecode.lacking()


def test_looking_imports_nothing() -> None:
    code = "import sys\nfrom kernelwright.tools.evaluate.sandbox import bytecode\n"
    code += "bytecode.pycache_prefix()\n"
    code += "sys.exit('torch' in sys.modules or bytecode.torch_folder() is None)"
    subprocess.run([sys.executable, "-c", code], check=True)


async def test_our_own_folder_is_filled_once_and_the_packages_stay_as_they_are(
    torch: Path, tmp_path: Path
) -> None:
    await asyncio.gather(filling.fill(), filling.fill(), filling.fill())
    await filling.fill()
    assert imports(tmp_path) == 1
    assert not files(torch, "*.pyc")
    prefix = bytecode.pycache_prefix()
    assert prefix == bytecode.own_folder()
    assert prefix.stat().st_mode & 0o077 == 0
    assert worker_environment(tmp_path)[bytecode.VARIABLE] == str(prefix)
    assert prefix in bubblewrap.interpreter()


async def test_packages_that_changed_are_compiled_again(torch: Path, tmp_path: Path) -> None:
    await filling.fill()
    (torch / "__init__.py").write_text("x = 'another release'\n", encoding="utf-8")
    assert bytecode.pycache_prefix() is None
    filling._TRIED.clear()  # another program
    await filling.fill()
    assert imports(tmp_path) == 2
    assert bytecode.pycache_prefix() == bytecode.own_folder()


async def test_programs_that_fill_at_the_same_time_do_no_harm(torch: Path, tmp_path: Path) -> None:
    folder = bytecode.own_folder()
    folder.mkdir(parents=True)
    await asyncio.gather(*(filling._imported(folder) for _ in range(4)))
    assert imports(tmp_path) == 4
    assert bytecode.filled()
    assert not files(folder, "*.pyc.*")  # what Python renames


async def test_a_program_waits_for_the_one_that_fills(torch: Path, tmp_path: Path) -> None:
    folder = bytecode.own_folder()
    folder.mkdir(parents=True)
    async with filling._turn(folder):
        waiting = asyncio.create_task(filling.fill())
        await asyncio.sleep(3 * filling._POLL_S)
        assert not waiting.done()
        await filling._imported(folder)
    await waiting
    assert imports(tmp_path) == 1


@pytest.mark.parametrize("trouble", ["folder", "import", "time"])
async def test_where_filling_fails_workers_start_as_before(
    torch: Path,
    tmp_path: Path,
    trouble: str,
    monkeypatch: pytest.MonkeyPatch,
    logged: list[str],
) -> None:
    if trouble == "folder":
        (tmp_path / "home").write_text("no folder", encoding="utf-8")
    elif trouble == "import":
        (torch / "export" / "__init__.py").write_text("1 / 0\n", encoding="utf-8")
    else:
        (torch / "export" / "__init__.py").write_text("import time; time.sleep(60)\n", "utf-8")
        monkeypatch.setattr(filling, "LIMIT_S", 0.5)
    await filling.fill()
    await filling.fill()
    assert [words for words in logged if "compileall" in words][1:] == []
    assert "compileall" in logged[-1]
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "another"))
    assert bytecode.VARIABLE not in worker_environment(tmp_path / "scratch")


async def test_a_cancelled_start_leaves_nothing_running(torch: Path, tmp_path: Path) -> None:
    (torch / "export" / "__init__.py").write_text("import time; time.sleep(60)\n", "utf-8")
    task = asyncio.create_task(filling.fill())
    await asyncio.sleep(0.5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "-m imports_all" not in running()
    assert not filling._TRIED


EVIL = """
import os, sys, torch
assert torch.__cached__.startswith(os.environ["PYTHONPYCACHEPREFIX"]), torch.__cached__
def tried(what):
    try:
        what()
    except OSError:
        return "refused"
    return "written"
print(
    tried(lambda: open(torch.__cached__, "r+b").close()),
    tried(lambda: open(torch.__cached__ + ".new", "wb").close()),
    tried(lambda: os.rename(torch.__cached__, torch.__cached__ + ".old")),
    tried(lambda: os.chmod(torch.__cached__, 0o777)),
)
"""


async def evil(torch: Path, scratch: Path, behind: Wall) -> str:
    walled = await start_walled(
        Enclosure(
            argv=(sys.executable, "-P", "-c", EVIL),
            scratch=scratch,
            environment=worker_environment(scratch),
            readable=(torch.parent,),
        ),
        behind,
    )
    said = (await walled.output.read()).decode()
    await walled.end()
    return said.strip()


@pytest.mark.parametrize("tried", [_tried_bubblewrap, _tried_namespaces])
async def test_a_worker_reads_the_bytecode_and_cannot_write_it(
    torch: Path, tmp_path: Path, tried: Callable[[str], Wall | None]
) -> None:
    found = tried("cpu")
    if found is None or "files" in found.without:
        pytest.skip("such a wall does not stand here")
    await filling.fill()
    assert await evil(torch, tmp_path / "scratch", found) == " ".join(["refused"] * 4)
    assert bytecode.filled()


async def test_behind_no_wall_it_can_be_written_and_the_label_says_so(
    torch: Path, tmp_path: Path
) -> None:
    await filling.fill()
    none = plain_wall("for a test")
    assert "written" in await evil(torch, tmp_path / "scratch", none)
    assert "not isolated" in none.isolation.words
