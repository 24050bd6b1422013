"""Spreads a suite over several GPUs: a process for each, which sees no other one.

Each process takes the next file when it is done with one, so that slow files hold up nobody else.
Every file is judged as it is on one GPU. A process that is lost costs the file that it had begun,
and another takes its place; one that is lost before it began any is not replaced, as the next one
would fare no better.

Such a process is `python -m kernelwright.ui.suite`: it reads a `Share` from its input, writes a
`Line` for every file that begins or ends, and ends with whoever began it.
"""

import asyncio
import contextlib
import ctypes
import os
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, TextIO

from kernelwright.graphs.regions.search import RegionsChoice
from kernelwright.graphs.suite import Ground, Outcome, Terms, run_suite
from kernelwright.graphs.suite.runner import Begun, source_sha256
from kernelwright.profiles.load import Models, SearchProfile
from kernelwright.tools.evaluate.rules import Depth, Rules
from kernelwright.tools.hardware.detect import visible_gpus
from kernelwright.tools.runtime import python_path
from kernelwright.tools.types import EnvironmentLacksError, Value
from kernelwright.ui.complaints import LACKING, Complaint

_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG


class Share(Value):
    """The files of a suite, and under which terms they are run.

    `marks` is the folder by which several processes share the files; "" where there is only one.
    """

    files: tuple[str, ...]
    profile: SearchProfile | None
    terms: Terms
    target: Literal["auto", "cuda", "cpu"]
    home: str
    models: Models | None
    evidence: Depth
    marks: str = ""
    load_seconds: float = 60.0
    regions: RegionsChoice = "auto"

    def run(self, begun: Begun) -> AsyncIterator[Outcome]:
        """Run it in this process; see `run_suite`."""
        files = [Path(file) for file in self.files]
        marks = Path(self.marks) if self.marks else None
        return run_suite(files, self.profile, self.terms, self.ground, begun=begun, marks=marks)

    @property
    def ground(self) -> Ground:
        """Where it is run, and by whom."""
        return Ground(
            self.target,
            Path(self.home),
            self.models,
            rules=Rules.of(self.evidence),
            load_seconds=self.load_seconds,
            regions=self.regions,
        )


class Line(Value):
    """A file began, or ended as an outcome; or this machine lacks something, which is the last."""

    began: str = ""
    outcome: Outcome | None = None
    lacks: str = ""


def main() -> None:
    """Run the share and say what becomes of it; nothing else goes to the output."""
    # Killed or not, whoever began this takes it along.
    ctypes.CDLL(None).prctl(_DEATH_SIGNAL, signal.SIGTERM, 0, 0, 0)
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as lines:
        os.dup2(2, 1)
        asyncio.run(_run(Share.model_validate_json(sys.stdin.read()), lines))


async def _run(share: Share, lines: TextIO) -> None:
    working = asyncio.ensure_future(_work(share, lines))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, working.cancel)
    try:
        await working
    except asyncio.CancelledError:
        pass
    except EnvironmentLacksError as error:
        _say(lines, Line(lacks=str(error)))


async def _work(share: Share, lines: TextIO) -> None:
    outcomes = share.run(lambda path: _say(lines, Line(began=str(path))))
    async with aclosing(outcomes):  # type: ignore[type-var]
        async for outcome in outcomes:
            _say(lines, Line(outcome=outcome))


def _say(lines: TextIO, line: Line) -> None:
    lines.write(line.model_dump_json() + "\n")
    lines.flush()


if __name__ == "__main__":
    main()


VISIBLE = "CUDA_VISIBLE_DEVICES"
ALL = "all"


class Gpu(Value):
    """One GPU: its name for people, and what a process that is to use it alone is told."""

    name: str
    visible: str


def chosen_gpus(words: str, environment: Mapping[str, str] | None = None) -> tuple[Gpu, ...]:
    """The GPUs of `all` or `0,2`, numbered as CUDA numbers those that are visible; () for "".

    Raises:
        Complaint: These are no numbers, or there is no such GPU.
    """
    if not words:
        return ()
    count = visible_gpus()
    if count == 0:
        raise Complaint("--gpus spreads a suite over GPUs, and none can be used here", LACKING)
    numbers = range(count) if words == ALL else _numbers(words)
    if beyond := next((number for number in numbers if number >= count), None):
        raise Complaint(f"there is no GPU {beyond}: {count} can be used here, from 0 on", LACKING)
    given = os.environ if environment is None else environment
    named = [name.strip() for name in given.get(VISIBLE, "").split(",") if name.strip()]
    return tuple(
        Gpu(name=f"GPU {number}", visible=named[number] if named else str(number))
        for number in numbers
    )


def _numbers(words: str) -> tuple[int, ...]:
    parts = [part.strip() for part in words.split(",")]
    if not all(re.fullmatch(r"\d{1,4}", part) for part in parts):
        raise Complaint(f"--gpus takes {ALL} or numbers as in 0,1, not {words!r}")
    return tuple(dict.fromkeys(map(int, parts)))


# A line holds an outcome with its figures; a pipe's usual limit is smaller than some.
_LONGEST_LINE_BYTES = 2**26
_ENDING_S = 60.0
_LAST_WORDS_BYTES = 2000

# What a process tells: an outcome, why there can be none, or None when it is done.
_Told = Outcome | EnvironmentLacksError | None


async def spread(
    share: Share, gpus: Sequence[Gpu], begun: Callable[[Path], object]
) -> AsyncIterator[Outcome]:
    """Run a suite on several GPUs at once.

    Args:
        share: The whole suite.
        gpus: The GPUs.
        begun: Told of each file that begins.

    Raises:
        EnvironmentLacksError: When this machine lacks what the target needs.
    """
    told: asyncio.Queue[_Told] = asyncio.Queue()
    left = {Path(file).name: Path(file) for file in share.files}
    with tempfile.TemporaryDirectory(prefix="kernelwright-suite-") as marks:
        shared = share.model_copy(update={"marks": marks})
        # With fewer files than GPUs some have nothing to do.
        used = gpus[: len(share.files)]
        working = [asyncio.create_task(_part(shared, gpu, told, begun)) for gpu in used]
        running = len(working)
        try:
            while running:
                item = await told.get()
                if isinstance(item, EnvironmentLacksError):
                    raise item
                running -= item is None
                if item is not None:
                    left.pop(item.file)
                    yield item
            ends = await asyncio.gather(*working)
        finally:
            for task in working:
                task.cancel()
            await asyncio.gather(*working, return_exceptions=True)
    for path in left.values():
        yield _lost(path, share, f"no process was left for it: {'; '.join(ends)}")


async def _part(
    share: Share, gpu: Gpu, told: "asyncio.Queue[_Told]", begun: Callable[[Path], object]
) -> str:
    """What one GPU does, process after process; how the last one ended, in words."""
    try:
        while True:
            ended = await _follow(share, gpu, told, begun)
            if not ended.lost or not ended.began or _all_taken(share):
                return ended.words
    finally:
        await told.put(None)


@dataclass(frozen=True)
class _Ended:
    """How a process ended, whether that was a loss, and whether it had begun any file."""

    words: str
    lost: bool
    began: bool


async def _follow(
    share: Share, gpu: Gpu, told: "asyncio.Queue[_Told]", begun: Callable[[Path], object]
) -> _Ended:
    """One process from its beginning to its end; what is lost with it is an outcome."""
    present: Path | None = None
    began = False
    with tempfile.TemporaryFile() as errors:
        async with process_on(gpu, "kernelwright.ui.suite", share, errors) as process:
            assert process.stdout is not None
            async for text in process.stdout:
                line = Line.model_validate_json(text)
                if line.lacks:
                    await told.put(EnvironmentLacksError(line.lacks))
                if line.began:
                    present, began = Path(line.began), True
                    begun(present)
                if line.outcome is not None:
                    present = None
                    await told.put(line.outcome)
            status = await process.wait()
        words = f"the process of {gpu.name} ended with status {status}{last_words(errors)}"
    if present is not None:
        await told.put(_lost(present, share, words))
    return _Ended(words, lost=status != 0, began=began)


def _all_taken(share: Share) -> bool:
    """Whether every file has its mark, so that another process would find nothing to do."""
    return len(os.listdir(share.marks)) >= len(share.files)


@contextlib.asynccontextmanager
async def process_on(
    gpu: Gpu, module: str, share: Value, errors: BinaryIO
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that reads its share; whoever leaves early ends it, and waits for its end.

    Args:
        gpu: The only one that it sees.
        module: What it runs, as `python -m` does.
        share: What it reads from its input, as JSON.
        errors: Takes what it says of itself.
    """
    told = {VISIBLE: gpu.visible, "PYTHONPATH": python_path(os.environ.get("PYTHONPATH", ""))}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=errors,
        env={**os.environ, **told}, limit=_LONGEST_LINE_BYTES,
        # Ctrl-C is for us, who end it.
        start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            process.stdin.write(share.model_dump_json().encode())
            await process.stdin.drain()
        process.stdin.close()
        yield process
    finally:
        if process.returncode is None:
            await asyncio.shield(_end(process))


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), _ENDING_S)
        except TimeoutError:
            process.kill()
            await process.wait()


def last_words(errors: BinaryIO) -> str:
    """The last thing it said, for the sentence about its end."""
    errors.seek(max(0, errors.seek(0, os.SEEK_END) - _LAST_WORDS_BYTES))
    lines = errors.read().decode(errors="replace").strip().splitlines()
    return f": {lines[-1].strip()}" if lines else ""


def _lost(path: Path, share: Share, words: str) -> Outcome:
    return Outcome(
        file=path.name,
        sha256=source_sha256(path),
        ended="failed",
        words=words,
        terms=share.terms,
    )
