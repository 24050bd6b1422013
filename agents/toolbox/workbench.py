"""One search's compilers, judge and profilers, as roles may ask them between two answers.

What was asked once is not asked again: an object by its content, a screening by its candidate, a
profile by the archive. On a CPU one thing is done at a time, as compiling beside a kernel that is
timed would disturb its time.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kernelwright.agents.llm.client import LLMClient
from kernelwright.agents.llm.tool_loop import ToolBook, ToolClient, ToolLimits
from kernelwright.agents.llm.tools import Tool, ToolError
from kernelwright.profiles.load import Hardware, ToolMode
from kernelwright.tools.archive import Archive, RunError
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.languages import (
    Built,
    CodeLine,
    CompileFailure,
    compile_candidate,
    language_of,
)
from kernelwright.tools.types import Candidate, Evaluation, Evidence, Profile, Task

_COMPILE_S = 120.0

Measure = Callable[[Candidate], Awaitable[Profile]]


@dataclass(frozen=True)
class Workbench:
    """What tools of one search work with.

    Attributes:
        task: What is to become faster.
        hardware: On which device.
        floor_ms: The least time that its bytes and operations take there.
        archive: What the search knows.
        executor: Who judges.
        measure: Asks the device's profilers, within the search's budget for them.
        home: Where earlier runs lie.
    """

    task: Task
    hardware: Hardware
    floor_ms: float
    archive: Archive
    executor: Executor
    measure: Measure
    home: Path
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _readings: dict[str, tuple[Evidence, ...]] = field(default_factory=dict)
    _code: dict[str, tuple[CodeLine, ...] | str] = field(default_factory=dict)

    @property
    def judges(self) -> bool:
        """Whether the device is at hand, so that a draft can be run now."""
        return not self.executor.capabilities.remote

    def candidate(self, name: str) -> Candidate:
        """A candidate by its id, the beginning of it, or its number as in `v3`.

        Raises:
            ToolError: There is none of that name, or several.
        """
        wanted = name.strip().strip("`")
        written = self.archive.candidates()
        if wanted[:1] == "v" and wanted[1:].isdigit():
            number = int(wanted[1:])
            if 0 < number <= len(written):
                return written[number - 1].candidate
        try:
            if not wanted:
                raise RunError("name a candidate by its id")
            return self.archive.candidate(wanted)
        except RunError as error:
            known = ", ".join(item.candidate.id for item in written[-6:])
            raise ToolError(f"{error}; the latest are {known or 'none'}") from None

    async def compiled(self, candidate: Candidate) -> Built | CompileFailure:
        """The object, or why there is none."""
        async with self._quiet():
            return await compile_candidate(
                candidate, architecture=self.hardware.architecture, timeout_s=_COMPILE_S
            )

    async def screened(self, candidate: Candidate, round: int) -> Evaluation:
        """What the judge says of it at first sight; kept, so that it is not asked again.

        Raises:
            ToolError: The device is somewhere else.
        """
        known = self.archive.evaluation(candidate.id, "screen")
        if known is None:
            if not self.judges:
                raise ToolError("the device is somewhere else: nothing can be run from here")
            async with self._quiet():
                known = await self.executor.evaluate(self.task, candidate, "screen")
            self.archive.record_evaluation(known, "screen", round)
        return known

    async def readings(self, candidate: Candidate) -> tuple[Evidence, ...]:
        """What its machine code consists of."""
        if candidate.id not in self._readings:
            async with self._quiet():
                language = language_of(candidate)
                found = await language.inspect(candidate, self.hardware.architecture)
            self._readings[candidate.id] = found
        return self._readings[candidate.id]

    async def code(self, candidate: Candidate) -> tuple[CodeLine, ...] | str:
        """Its machine code line by line; one sentence where it cannot be read."""
        if candidate.id not in self._code:
            async with self._quiet():
                language = language_of(candidate)
                found = await language.listing(candidate, self.hardware.architecture)
            self._code[candidate.id] = found
        return self._code[candidate.id]

    async def measured(self, candidate: Candidate) -> Profile:
        """Where its time goes, as the device's profilers see it; kept by whoever measures."""
        async with self._quiet():
            return await self.measure(candidate)

    @contextlib.asynccontextmanager
    async def _quiet(self) -> AsyncIterator[None]:
        if self.hardware.kind != "cpu":
            yield
            return
        async with self._turn:
            yield


@dataclass(frozen=True)
class RoleTools:
    """What a role with tools is given; `mode` is how its model calls them."""

    bench: Workbench
    book: ToolBook
    mode: ToolMode = "native"
    limits: ToolLimits = field(default_factory=ToolLimits)


def with_tools(client: LLMClient, given: RoleTools, tools: Sequence[Tool]) -> LLMClient:
    """The client, whose model may call these tools before it answers."""
    return ToolClient(client, tools, given.book, given.mode, given.limits)
