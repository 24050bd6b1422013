"""Compiles that hang, die or are no longer wanted leave nothing running."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelwright.tools.languages import Built, CompileFailure, shutdown_compilers
from kernelwright.tools.languages.base.compilers import Compiler, CompileRefusedError
from kernelwright.tools.types import Verdict

BOMB = """
template <int A, int B> struct F {
    static constexpr int v = F<A - 1, 2 * B>::v + F<A - 1, 2 * B + 1>::v;
};
template <int B> struct F<0, B> { static constexpr int v = 1; };
"""
CPP_BOMB = BOMB + 'extern "C" void f(int* x) { x[0] = F<30, 1>::v; }'
CUDA_BOMB = BOMB + 'extern "C" __global__ void f(int* x) { x[0] = F<30, 1>::v; }'
PLAIN = 'extern "C" void f(int* x) { x[0] = 17; }'


def descendants() -> set[int]:
    """Every living process below this one, zombies left out."""
    found, waiting = set(), [os.getpid()]
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents.setdefault(int(fields[1]), []).append(int(folder.name))
    while waiting:
        children = parents.get(waiting.pop(), [])
        found.update(children)
        waiting.extend(children)
    return found


def eventually(condition: Callable[[], bool], within_s: float = 120) -> bool:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_a_compiler_that_is_killed_leaves_nothing_in_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary, folder = tmp_path / "temporary", tmp_path / "made"
    for made in (temporary, folder):
        made.mkdir()
    (folder / "bomb.cpp").write_text(CPP_BOMB)
    monkeypatch.setenv("TMPDIR", str(temporary))
    compiler = Compiler()
    with pytest.raises(CompileRefusedError, match="took longer"):
        compiler.run([["g++", "-c", "bomb.cpp"]], folder, 1.0)
    assert not list(temporary.iterdir())


@pytest.fixture
def ours() -> Callable[[], set[int]]:
    """The processes that came since the test began; other tests may keep servers of their own."""
    shutdown_compilers()
    earlier = descendants()
    return lambda: descendants() - earlier


async def test_a_template_bomb_is_stopped_and_the_next_compile_is_unharmed(compiled, ours) -> None:
    for language, bomb in (("cpp", CPP_BOMB), ("cuda", CUDA_BOMB)):
        failure = await compiled(bomb, language, timeout_s=1.5)
        assert isinstance(failure, CompileFailure)
        assert failure.verdict is Verdict.TIMED_OUT
        assert "longer than 1.5 s" in failure.message
        assert eventually(lambda: not ours())
    assert isinstance(await compiled(PLAIN), Built)


async def test_a_cancelled_compile_is_killed(compiled, ours) -> None:
    task = asyncio.create_task(compiled(CPP_BOMB + " ", timeout_s=60))
    await asyncio.to_thread(eventually, lambda: len(ours()) > 1)
    task.cancel()
    result = (await asyncio.gather(task, return_exceptions=True))[0]
    assert isinstance(result, asyncio.CancelledError)
    assert await asyncio.to_thread(eventually, lambda: not ours())


async def test_a_compiler_that_dies_is_a_failure_and_is_replaced(compiled, ours) -> None:
    task = asyncio.create_task(compiled(CPP_BOMB + "  ", timeout_s=60))
    await asyncio.to_thread(eventually, lambda: len(ours()) > 1)
    for process in ours():
        os.kill(process, 9)
    failure = await task
    assert isinstance(failure, CompileFailure)
    assert isinstance(await compiled(PLAIN + " "), Built)


async def test_shutdown_leaves_nothing_and_can_be_followed_by_more(compiled, ours) -> None:
    assert isinstance(await compiled(PLAIN + "  "), Built)
    shutdown_compilers()
    assert not ours()
    assert isinstance(await compiled(PLAIN + "   "), Built)


def test_a_killed_process_takes_its_compilers_along(home_of_tests: Path, ours) -> None:
    script = f"""
import asyncio
from kernelwright.tools.languages import compile_candidate, new_candidate
from kernelwright.tools.types import LanguageName
candidate = new_candidate("cpp", {CPP_BOMB + "   "!r}, "")
asyncio.run(compile_candidate(candidate, architecture=None, timeout_s=120))
"""
    process = subprocess.Popen([sys.executable, "-c", script])
    assert eventually(lambda: len(ours()) >= 3)
    below = ours() - {process.pid}
    process.kill()
    process.wait()
    alive = [f"/proc/{pid}/stat" for pid in below]

    def gone() -> bool:
        return not any(os.path.exists(path) and " Z " not in read(path) for path in alive)

    assert eventually(gone)


def read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return " Z "
