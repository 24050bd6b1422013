import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.tools.languages import Built
from kernelwright.tools.languages.base.compile import cache_folder, look_up
from kernelwright.tools.languages.cpp import compile as cpp

KERNEL = 'extern "C" void f(int* x) {{ x[0] = {}; }}'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # The precompiled prelude is not what is tested here, and would be made anew for each home.
    monkeypatch.setattr(cpp, "_precompiled", lambda *_: None)
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path))
    return tmp_path


async def built(compiled, number: int) -> Built:
    result = await compiled(KERNEL.format(number))
    assert isinstance(result, Built), result
    return result


async def test_the_second_compile_finds_the_first(compiled, home: Path) -> None:
    first, second = await built(compiled, 1), await built(compiled, 1)
    assert (first.cached, second.cached) == (False, True)
    assert first.artifact == second.artifact
    assert first.artifact.is_relative_to(home / "cache" / "objects")
    assert first.reports == second.reports


async def test_another_source_is_another_object(compiled, home: Path) -> None:
    assert (await built(compiled, 1)).artifact != (await built(compiled, 2)).artifact


async def test_a_damaged_object_is_made_again(compiled, home: Path) -> None:
    first = await built(compiled, 1)
    whole = first.artifact.read_bytes()
    for damage in (whole[:100], b""):
        first.artifact.write_bytes(damage)
        again = await built(compiled, 1)
        assert not again.cached
        assert again.artifact.read_bytes() == whole
    (first.artifact.parent / "entry.json").write_text("{")
    assert not (await built(compiled, 1)).cached


async def test_many_at_once_agree_and_leave_no_litter(compiled, home: Path) -> None:
    results = await asyncio.gather(*(built(compiled, 1) for _ in range(6)))
    assert len({item.artifact for item in results}) == 1
    assert [path.name for path in cache_folder().iterdir()] == [results[0].artifact.parent.name]


async def test_a_failure_is_not_kept(compiled, home: Path) -> None:
    await compiled('extern "C" void f(int* x) { x[0] = nothing; }')
    assert list(cache_folder().iterdir()) == []


@pytest.mark.exhaustive
async def test_processes_share_what_they_made(compiled, home: Path) -> None:
    script = f"""
import asyncio
from kernelwright.tools.languages import compile_candidate, new_candidate
from kernelwright.tools.types import LanguageName
candidate = new_candidate("cpp", {KERNEL.format(5)!r}, "")
print(asyncio.run(compile_candidate(candidate, architecture=None, timeout_s=120)).artifact)
"""
    command = [sys.executable, "-c", script]
    ran = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=True
    )
    mine = await built(compiled, 5)
    assert mine.cached
    assert ran.stdout.strip() == str(mine.artifact)


async def test_log_and_reports_are_kept_with_the_object(compiled, home: Path) -> None:
    first = await built(compiled, 1)
    found = look_up(first.artifact.parent.name)
    assert found is not None
    path, entry = found
    assert (path, entry.reports, entry.log) == (first.artifact, first.reports, first.log)
