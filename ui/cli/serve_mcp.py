"""Gives coding agents the same tools over the Model Context Protocol: `kernelwright serve-mcp`.

Tools are thin: each does what the command of its name does, in the same walled workers, and answers
with the same values. What an agent may reach is one folder; what a search may spend is bounded by
whoever started the server, whatever the agent asks for. One tool measures at a time. Bad input is
an error of one sentence. Standard output belongs to the protocol, so nothing else may print there.
It ends when the client leaves, at Ctrl-C, and when it is asked to terminate.
"""

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

from mcp.server.fastmcp import Context, FastMCP
from mcp.server.fastmcp.exceptions import ToolError
from mcp.server.stdio import stdio_server
from mcp.types import ContentBlock
from pydantic import ValidationError

from kernelwright.agents.assistant.types import ExplainCandidate
from kernelwright.agents.llm.answers import problems_of
from kernelwright.graphs.conversation import explaining
from kernelwright.graphs.run_view import story as stories
from kernelwright.graphs.run_view.events import Event
from kernelwright.graphs.search.control import Control
from kernelwright.graphs.search.summary import material_of
from kernelwright.tools.archive import Archive
from kernelwright.tools.types import Refusal, Value
from kernelwright.ui.cli import audit as audits
from kernelwright.ui.cli import check as checks
from kernelwright.ui.cli import optimize as searches
from kernelwright.ui.complaints import Complaint, complaint_of, refused
from kernelwright.ui.model_choice import Choice

Target = Literal["auto", "cuda", "cpu"]
Answer = dict[str, object]  # the protocol's structured content

INSTRUCTIONS = (
    "Makes PyTorch modules faster by writing kernels, and proves it. Files are Python modules with "
    "a Model and get_inputs(), notebooks, folders, zips, or names such as package.layers:Block. "
    "Audit a file first; optimise it with a number of seconds; explain and export the run that "
    "comes back. A speed-up counts only where `status` is improved."
)


@dataclass(frozen=True)
class Grant:
    """What an agent may reach and spend."""

    root: Path
    home: Path | None = None
    target: Target = "auto"
    most_seconds: float = 600.0
    models: Choice = field(default_factory=Choice)


class Doors:
    """The tools over one grant."""

    def __init__(self, grant: Grant) -> None:
        self._grant = grant
        self._measuring = asyncio.Lock()
        self._under_way: set[asyncio.Task[object]] = set()

    async def aclose(self) -> None:
        """End what is under way, and wait until it has left nothing behind."""
        for task in self._under_way:
            if not task.cancelling():  # it cleans up already
                task.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way)

    async def audit(
        self, file: str, entry: str | None = None, inputs: tuple[str, ...] = ()
    ) -> Answer:
        """What a task is, what its floor is, and whether beating it would prove anything."""

        async def audited() -> Answer:
            _, found, device = await audits.audited(
                self._path(file), entry, self._inputs(inputs), self._grant.target, quiet=True
            )
            return {"device": device, **_plain(found)}

        return await self._in_turn(audited())

    async def optimize(
        self,
        file: str,
        seconds: float,
        entry: str | None,
        inputs: tuple[str, ...],
        build: bool,
        tell: Callable[[str], Coroutine[None, None, None]],
    ) -> Answer:
        """Search; cancelled, it leaves nothing running, and the run can be resumed."""
        grant = self._grant
        if not 1 <= seconds <= grant.most_seconds:
            raise Complaint(f"seconds must be from 1 to {grant.most_seconds:g}, not {seconds:g}")
        options = searches.SearchOptions(
            seconds=seconds, wait=False, makes=build, models=grant.models
        )
        telling: set[asyncio.Task[None]] = set()

        def hear(event: Event) -> None:
            said = asyncio.ensure_future(tell(event.kind.replace("_", " ")))
            telling.add(said)
            said.add_done_callback(telling.discard)

        async def searched() -> Answer:
            begin = searches.prepared(
                self._path(file), entry, self._inputs(inputs), grant.target, "quick", grant.home, 0,
                options,
            )  # fmt: skip
            summary = await begin(hear, Control())
            await asyncio.gather(*telling, return_exceptions=True)
            if isinstance(summary, Refusal):
                raise refused(summary)
            return _plain(summary)

        return await self._in_turn(searched())

    async def check(
        self, candidate: str, task: str, entry: str | None, inputs: tuple[str, ...]
    ) -> Answer:
        """Judge a candidate that the agent wrote, as finalists of a search are judged."""

        async def checked() -> Answer:
            found = await checks.judged(
                self._path(candidate),
                self._path(task),
                entry,
                self._inputs(inputs),
                self._grant.target,
                quiet=True,
            )
            return _plain(checks.result_of(*found))

        return await self._in_turn(checked())

    async def explain(self, run: str, candidate: str) -> Answer:
        """The result, and one candidate's idea, verdict and source; the best by default."""
        with _sentences():
            story = stories.load(_run_name(run), self._grant.home)
            answer: Answer = {
                "run": story.record.id,
                "headline": story.view.headline,
                "summary": _plain(story.summary) if story.summary else None,
            }
            try:
                asked = ExplainCandidate(candidate=candidate or "best")
                written = explaining.candidate_of(story, asked.candidate)
            except explaining.Unnamed as unknown:
                if candidate:
                    raise Complaint(str(unknown)) from None
                return answer
            told = explaining.candidate(story, asked)
            kept = written.candidate
            return answer | {
                "candidate": f"v{written.number}",
                "words": told.text,
                "kernel": kept.kernel,
                "plan": kept.plan,
            }

    async def export(self, run: str, folder: str, force: bool) -> Answer:
        """Write the drop-in module of a run's best into a folder below the root."""
        with _sentences():
            place = self._path(folder)
            archive = Archive.open(_run_name(run), self._grant.home)
            try:
                material = material_of(archive, None, forced=force)
            finally:
                archive.close()
            return {"exported": str(searches.take_home(material, place))}

    async def _in_turn(self, work: Coroutine[object, object, Answer]) -> Answer:
        """One at a time: two that measure at once would each measure the other.

        It has a task of its own: where the protocol cancels a call, it interrupts whatever the call
        waits for again and again, the ends of worker processes as well.
        """

        async def alone() -> Answer:
            with _sentences():
                try:
                    async with self._measuring:
                        return await work
                finally:
                    work.close()  # it may have been cancelled before its turn

        task: asyncio.Task[object] = asyncio.ensure_future(alone())
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        try:
            return cast("Answer", await asyncio.shield(task))
        except asyncio.CancelledError:
            task.cancel()
            raise

    def _path(self, given: str) -> Path:
        """A path below the root, or a name for an import from there."""
        root = self._grant.root.resolve()
        path = (root / given).absolute()
        if not path.resolve().is_relative_to(root):
            raise Complaint(f"{given} is outside of {root}, which is all that may be reached here")
        return path

    def _inputs(self, inputs: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(
            str(self._path(text)) if text.lower().endswith((".pt", ".pth")) else text
            for text in inputs
        )


class _sentences:  # noqa: N801  # a context manager that reads as a word
    """Raise what the command line would complain of as the protocol's error of a tool."""

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Turn it into one sentence; our own faults stay what they are."""
        if isinstance(error, Exception) and (complaint := complaint_of(error)) is not None:
            raise ToolError(str(complaint)) from None


def _run_name(run: str) -> str:
    """An id; a path could lead anywhere."""
    if not run or "/" in run or "\\" in run or run.startswith("."):
        raise Complaint(f"{run!r} is not the id of a run")
    return run


def _plain(value: Value) -> Answer:
    found: Answer = json.loads(value.model_dump_json())
    return found


class _Tools(FastMCP):
    """Tools whose arguments are complained of in one sentence; those that no tool has, too."""

    async def call_tool(
        self, name: str, arguments: dict[str, object]
    ) -> Sequence[ContentBlock] | dict[str, object]:
        """Call one."""
        schemas = {tool.name: tool.inputSchema for tool in await self.list_tools()}
        known = schemas.get(name, {}).get("properties", {})
        unknown = [given for given in arguments if given not in known]
        if name in schemas and unknown:
            raise ToolError(f"{name} has no {unknown[0]!r}; it takes {', '.join(known)}")
        try:
            return await super().call_tool(name, arguments)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            raise ToolError(f"{name}: {problems_of(error.__cause__)}") from None


def server(doors: Doors) -> FastMCP:
    """The server with its tools."""
    made = _Tools("kernelwright", instructions=INSTRUCTIONS, log_level="WARNING")

    @made.tool()
    async def audit(
        file: str, entry: str | None = None, inputs: list[str] | None = None
    ) -> dict[str, object]:
        """Say what a PyTorch task is, its floor in ms, and whether a speed-up would prove anything.

        Inputs replace get_inputs(), each as 64x128:float32, or one .pt file.
        """
        return await doors.audit(file, entry, tuple(inputs or ()))

    @made.tool()
    async def optimize(
        file: str,
        ctx: Context,  # type: ignore[type-arg]
        seconds: float = 60.0,
        entry: str | None = None,
        inputs: list[str] | None = None,
        build: bool = False,
    ) -> dict[str, object]:
        """Search for a faster verified implementation of a module for at most `seconds`.

        They hold everything behind reading and auditing the file; what is ahead and not certified
        by then is not settled.

        With `build`, the entry (or file:function) makes the model. Returns the run's id and status.
        """
        steps = 0

        async def tell(words: str) -> None:
            nonlocal steps
            steps += 1
            await ctx.report_progress(steps, None, words)

        return await doors.optimize(file, seconds, entry, tuple(inputs or ()), build, tell)

    @made.tool()
    async def check(
        candidate: str, task: str, entry: str | None = None, inputs: list[str] | None = None
    ) -> dict[str, object]:
        """Verify and time one candidate: a kernel with plan.py beside it, or a ModelNew file."""
        return await doors.check(candidate, task, entry, tuple(inputs or ()))

    @made.tool()
    async def explain(run: str, candidate: str = "") -> dict[str, object]:
        """Say what a run came to and why a candidate is what it is; `candidate` as v7, or best."""
        return await doors.explain(run, candidate)

    @made.tool()
    async def export(run: str, folder: str, force: bool = False) -> dict[str, object]:
        """Write a run's best as a drop-in module; `force` even where it is not faster."""
        return await doors.export(run, folder, force)

    return made


class _Lines:
    """Lines of standard input, read by a thread whose waiting holds nobody up."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop,), daemon=True).start()

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        rest = b""
        with suppress(OSError, RuntimeError):  # a terminal that is gone, a loop that has ended
            while part := os.read(sys.stdin.fileno(), 1 << 16):
                *whole, rest = (rest + part).split(b"\n")
                for line in whole:
                    loop.call_soon_threadsafe(self._lines.put_nowait, line)
        with suppress(RuntimeError):
            for last in (*filter(None, [rest]), None):
                loop.call_soon_threadsafe(self._lines.put_nowait, last)

    async def __aiter__(self) -> AsyncIterator[str]:
        """Each until the client leaves."""
        while (line := await self._lines.get()) is not None:
            yield line.decode(errors="replace")


async def _over_stdio(made: FastMCP) -> None:
    protocol = made._mcp_server
    async with stdio_server(_Lines()) as (reading, writing):  # type: ignore[arg-type]
        await protocol.run(reading, writing, protocol.create_initialization_options())


async def _served(grant: Grant) -> bool:
    """Serve until the client leaves or a signal comes; answers whether that was Ctrl-C."""
    doors = Doors(grant)
    serving = asyncio.ensure_future(_over_stdio(server(doors)))
    came: list[signal.Signals] = []

    def asked(number: signal.Signals) -> None:
        came.append(number)
        serving.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, asked, number)
    try:
        await asyncio.wait({serving})
    finally:
        await doors.aclose()
    if not serving.cancelled():
        serving.result()
    return signal.SIGINT in came


def serve(grant: Grant) -> None:
    """Serve over standard input and output until the client leaves; Complaint without a root.

    Raises:
        KeyboardInterrupt: It was interrupted.
    """
    if not grant.root.is_dir():
        raise Complaint(f"there is no folder {grant.root}")
    if asyncio.run(_served(grant)):
        raise KeyboardInterrupt
