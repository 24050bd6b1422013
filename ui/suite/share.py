"""A suite in a process of one GPU, which takes its share of the files: lines go out.

`python -m kernelwright.ui.suite.share` reads a `Share` from its input and writes a `Line` for
every file that begins or ends. It ends with whoever began it.
"""

import asyncio
import ctypes
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Literal, TextIO

from kernelwright.graphs.suite import Ground, Outcome, Terms, run_suite
from kernelwright.graphs.suite.runner import Begun
from kernelwright.profiles.load import Models, SearchProfile
from kernelwright.tools.evaluate.rules import Depth, Rules
from kernelwright.tools.types import EnvironmentLacksError, Value

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

    def run(self, begun: Begun) -> AsyncIterator[Outcome]:
        """Run it in this process; see `run_suite`."""
        ground = Ground(self.target, Path(self.home), self.models, rules=Rules.of(self.evidence))
        files = [Path(file) for file in self.files]
        marks = Path(self.marks) if self.marks else None
        return run_suite(files, self.profile, self.terms, ground, begun=begun, marks=marks)


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
