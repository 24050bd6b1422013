"""Processes that share a suite: every file is begun once, and nobody waits for a slow one."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

from kernelwright.graphs.suite import Ground, Outcome, Terms, run_suite
from kernelwright.graphs.suite.turns import InOrder, Shared
from kernelwright.tools.evaluate.executors.base.executor import Capabilities
from kernelwright.tools.types import Refusal, Task, TracePolicy

FILES = tuple(Path(f"{number}.py") for number in range(4))


def names(*paths: Path | None) -> list[str]:
    return [path.stem if path else "-" for path in paths]


def test_one_process_does_them_in_order_and_knows_the_next() -> None:
    turns = InOrder(FILES[:2])
    assert names(turns.begin(), turns.ahead(), turns.begin()) == ["0", "1", "1"]
    assert names(turns.ahead(), turns.begin()) == ["-", "-"]


def test_a_file_is_begun_by_one_process_alone(tmp_path: Path) -> None:
    one, other = Shared(FILES, tmp_path), Shared(FILES, tmp_path)
    assert names(one.begin(), other.begin(), one.begin(), other.begin()) == ["0", "1", "2", "3"]
    assert names(one.begin(), other.begin()) == ["-", "-"]


def test_what_a_process_has_set_aside_is_read_by_no_other_and_begun_by_itself(
    tmp_path: Path,
) -> None:
    one, other = Shared(FILES, tmp_path), Shared(FILES, tmp_path)
    assert names(one.begin(), one.ahead()) == ["0", "1"]
    assert names(other.begin(), other.ahead()) == ["2", "3"]
    assert names(one.begin(), one.ahead()) == ["1", "-"]
    assert names(other.begin(), other.begin(), one.begin()) == ["3", "-", "-"]


def test_what_a_slow_or_dead_process_has_set_aside_is_begun_when_nothing_else_is_left(
    tmp_path: Path,
) -> None:
    slow, other = Shared(FILES, tmp_path), Shared(FILES, tmp_path)
    assert names(slow.begin(), slow.ahead()) == ["0", "1"]
    assert names(other.begin(), other.begin(), other.begin(), other.begin()) == ["2", "3", "1", "-"]
    assert names(slow.begin()) == ["-"]


async def test_a_suite_that_is_shared_does_each_file_once_and_waits_for_no_slow_one(
    toy: ModuleType, terms: Terms, tmp_path: Path
) -> None:
    """What the slow one has read ahead is done by the other, and dropped by itself."""

    @dataclass
    class Reader(toy.ToyExecutor):  # type: ignore[misc, name-defined]
        capabilities = Capabilities(reads_apart=True)

        slow: asyncio.Event | None = None
        read_: list[str] = field(default_factory=list)

        def warm(self) -> None: ...

        async def read(self, path: Path, policy: TracePolicy) -> Task | Refusal:
            self.read_.append(path.stem)
            if self.slow is not None and path == paths[0]:
                await self.slow.wait()
            found: Task = toy.TASK
            return found

        async def audit(self, task: Task) -> Task | Refusal:
            return task

    paths, marks = tuple(tmp_path / f"{number}.py" for number in range(5)), tmp_path / "marks"
    marks.mkdir()
    for path in paths:
        path.write_text("")
    rest, has_begun = asyncio.Event(), asyncio.Event()
    slow, quick = Reader(slow=rest), Reader()

    async def share(judge: Reader) -> list[Outcome]:
        ground = Ground("cpu", tmp_path, executor=judge, ahead=True)
        begun = run_suite(
            paths, None, terms, ground, begun=lambda path: has_begun.set(), marks=marks
        )
        return [item async for item in begun]

    first = asyncio.create_task(share(slow))
    await has_begun.wait()
    others = await share(quick)
    assert [item.file for item in others] == ["2.py", "3.py", "4.py", "1.py"]
    rest.set()
    assert [item.file for item in await first] == ["0.py"]
    assert slow.read_ == ["0", "1"]
    assert quick.read_ == ["2", "3", "4", "1"]
