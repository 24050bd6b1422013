"""Kernelwright as a library: the searches, the judge and the audit of the command line.

Everything is done in a thread with an event loop of its own, so that a notebook, whose loop runs
already, may call it too. Bad input raises `KernelwrightError`, a machine that lacks something
`EnvironmentLacksError`, each with the one sentence that the command line would say.
"""

import asyncio
import os
import threading
import warnings
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from kernelwright.graphs.search.control import Control
from kernelwright.tools.dynamo import spliced
from kernelwright.tools.evaluate.sandbox import fork_server
from kernelwright.tools.export import ExportRefusedError
from kernelwright.tools.languages import shutdown_compilers
from kernelwright.tools.runtime import kernelwright_version
from kernelwright.tools.types import EnvironmentLacksError, Refusal
from kernelwright.tools.types.run import Summary
from kernelwright.ui.cli import audit as audits
from kernelwright.ui.cli import check as checks
from kernelwright.ui.cli import optimize as searches
from kernelwright.ui.cli.audit import Audit
from kernelwright.ui.cli.check import CheckResult
from kernelwright.ui.complaints import LACKING, Complaint, complaint_of, refused
from kernelwright.ui.terminal.progress import watcher

if TYPE_CHECKING:
    from torch import nn

    from kernelwright.ui.api.in_memory import Inputs, Optimized

__all__ = [
    "EnvironmentLacksError",
    "KernelwrightError",
    "audit",
    "check",
    "optimize",
    "spliced",
    "version",
]

Target = Literal["auto", "cuda", "cpu"]
Result = TypeVar("Result")
Words = str | Sequence[str]


class KernelwrightError(ValueError):
    """What was given cannot be used; the message is one sentence that says why."""


def version() -> str:
    """The version of this Kernelwright, such as "0.1.0"."""
    return kernelwright_version()


def optimize(
    file: "str | os.PathLike[str] | nn.Module",
    inputs: "Words | Inputs" = (),
    *,
    entry: str | None = None,
    target: Target = "auto",
    search: str = "quick",
    rounds: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    run_dir: str | os.PathLike[str] | None = None,
    export: str | os.PathLike[str] | None = None,
    force: bool = False,
    allow: Words | None = None,
    load_seconds: float = 60.0,
    fresh: bool = False,
    progress: bool | None = None,
) -> "Summary | Optimized":
    """Search for a faster implementation of a module, and prove that it is one.

    A module in memory comes back with kernels on its own weights where they are shown to be faster:
    `fast = kernelwright.optimize(model, x, seconds=60)`, then `fast(x)`.

    An interrupt (Ctrl-C) ends the search with the best so far, a second one at once. A language
    model takes part where KERNELWRIGHT_MODEL names one, as on the command line.

    Args:
        file: A Python file with a module and `get_inputs()`, what else the command line takes, or a
            module in memory.
        inputs: Inputs instead of `get_inputs()`, each as "64x128:float32"; of a module in memory
            the call that counts: a tensor, a list of arguments, or a dictionary of named ones.
        entry: The module or function in the file, where there are several.
        target: The kind of device; "auto" is a GPU where there is one.
        search: How thorough: "quick", "standard", "deep" or "careful".
        rounds: At most this many rounds, 1 or more.
        seconds: At most this many seconds of wall time, 1 or more, from when the file was read to
            the result, and a quarter more for a certification; what is ahead and not certified by
            then is not settled. Reading and auditing the file comes on top, and exporting.
        seed: Of everything that is drawn by chance.
        run_dir: The folder in which runs live; the user's data folder by default.
        export: A folder, or a .zip file, to which the result is exported; of a file's module.
        force: Export although it is not shown to be faster.
        allow: Precisions below the task's own that count too, such as ["tf32", "fp16"].
        load_seconds: Give a file up that neither computes nor reads for this long, 1 or more.
        fresh: Begin with nothing out of the user's library of kernels.
        progress: Say on stderr how it goes; by default of a module in memory only.

    Returns:
        Of a module in memory an `Optimized` module, which shows its result card in a notebook. Of a
        file the summary: `status`, `best` (None where nothing is correct), `baselines`. Times are
        in milliseconds, ratios are baseline / candidate. Where nothing may be exported, `export` is
        None and a warning says why.

    Raises:
        KernelwrightError: The file or an argument cannot be used.
        EnvironmentLacksError: This machine lacks what the target needs.
    """
    home = None if run_dir is None else Path(run_dir)
    options = searches.SearchOptions(
        export=None if export is None else Path(export),
        force=force,
        rounds=_at_least_one("rounds", rounds),
        seconds=_at_least_one("seconds", seconds),
        wait=False,
        allow=",".join(_listed(allow or ())),
        load_seconds=_at_least_one("load_seconds", load_seconds),
        fresh=fresh,
    )
    with _in_words():
        if isinstance(file, str | os.PathLike):
            words = _listed(cast("Words", inputs))
            begin = searches.prepared(
                Path(file), entry, words, _known(target), search, home, seed, options
            )
            return _taken_home(_searched(begin, bool(progress)), home, options)
        from kernelwright.ui.api import in_memory

        if entry is not None or export is not None:
            raise Complaint("entry and export are a file's; a module in memory takes neither")
        kept = in_memory.written(file, inputs, home)
        begin = searches.prepared(
            kept.file, None, (str(kept.inputs),), _known(target), search, home, seed, options
        )
        summary = _searched(begin, progress is not False)
        place = kept.file.parent / f"faster_{summary.run}".replace("-", "_")
        try:
            searches.with_export(summary, home, place, force=force)
            kernels = in_memory.load_export(place)
        except ExportRefusedError:
            kernels = None  # its card says why
        return in_memory.Optimized(file, kernels, kept, summary, home)


def _searched(begin: searches.Search, progress: bool) -> Summary:
    """The search's summary; an interrupt ends it with the best so far."""
    control = Control()
    with watcher() if progress else nullcontext() as shown:
        listener = shown.show if shown else _unheard
        found = _apart(begin(listener, control), lambda: control.stop("you interrupted it"))
    if isinstance(found, Refusal):
        raise refused(found)
    return found


def check(
    candidate: str | os.PathLike[str],
    task: str | os.PathLike[str],
    *,
    entry: str | None = None,
    inputs: Words = (),
    target: Target = "auto",
    allow: Words | None = None,
    record: str | None = None,
    load_seconds: float = 60.0,
    progress: bool = False,
) -> CheckResult:
    """Verify and time one candidate against a task.

    Args:
        candidate: A kernel with its plan (a folder, a kernel, a fenced file), or foreign code: a
            ModelNew file, a folder with src.py, or CUDA-L1 records.
        task: The Python file that it implements.
        entry: The module or function in the file, where there are several.
        inputs: Inputs instead of `get_inputs()`, each as "64x128:float32".
        target: The kind of device; "auto" is a GPU where there is one.
        allow: Precisions below the task's own that count too, such as ["tf32", "fp16"].
        record: Which record of a file of them: its line, or "level/task".
        load_seconds: Give a file up that neither computes nor reads for this long, 1 or more.
        progress: Say on stderr how it goes; else nothing is printed.

    Returns:
        The verdict with its reason; times are in milliseconds, ratios are baseline / candidate.

    Raises:
        KernelwrightError: The candidate, the file or an argument cannot be used.
        EnvironmentLacksError: This machine lacks what the target needs.
    """
    with _in_words():
        judging = checks.judged(
            Path(candidate),
            Path(task),
            entry,
            _listed(inputs),
            _known(target),
            ",".join(_listed(allow or ())),
            record,
            quiet=not progress,
            load_seconds=_at_least_one("load_seconds", load_seconds),
        )
        return checks.result_of(*_apart(judging))


def audit(
    file: str | os.PathLike[str],
    *,
    entry: str | None = None,
    inputs: Words = (),
    target: Target = "auto",
    load_seconds: float = 60.0,
) -> Audit:
    """Say what a task is, what its floor is here, and whether beating it would prove anything.

    Args:
        file: A Python file with a module and `get_inputs()`.
        entry: The module or function in the file, where there are several.
        inputs: Inputs instead of `get_inputs()`, each as "64x128:float32".
        target: The kind of device; "auto" is a GPU where there is one.
        load_seconds: Give a file up that neither computes nor reads for this long, 1 or more.

    Returns:
        The task, its floor in milliseconds, doubts as badges, and the kernels that PyTorch runs.

    Raises:
        KernelwrightError: The file or an argument cannot be used.
        EnvironmentLacksError: This machine lacks what the target needs.
    """
    with _in_words():
        limit_s = _at_least_one("load_seconds", load_seconds)
        auditing = audits.audited(
            Path(file), entry, _listed(inputs), _known(target), limit_s, quiet=True
        )
        _, found, _ = _apart(auditing)
        return found


def _apart(
    work: Coroutine[Any, Any, Result], interrupted: Callable[[], object] | None = None
) -> Result:
    """What comes of it in a thread and loop of its own; an interrupt ends it, or asks it to end."""
    begun: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Result]]] = Future()

    async def begin() -> Result:
        task = asyncio.ensure_future(work)
        begun.set_result((asyncio.get_running_loop(), task))
        return await task

    with _nothing_left(), ThreadPoolExecutor(1, "kernelwright") as pool:
        ended = pool.submit(lambda: asyncio.run(begin()))
        try:
            try:
                return ended.result()
            except KeyboardInterrupt:
                if interrupted is None:
                    raise
                _in_loop(begun, interrupted)
                return ended.result()
        except KeyboardInterrupt:
            _in_loop(begun, lambda: begun.result()[1].cancel())
            raise


def _in_loop(
    begun: "Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Result]]]",
    asked: Callable[[], object],
) -> None:
    with suppress(RuntimeError):  # the loop is closed: there is nothing left to end
        begun.result()[0].call_soon_threadsafe(asked)


_under_way: set[object] = set()
_turn = threading.Lock()


@contextmanager
def _nothing_left() -> Iterator[None]:
    """The last call under way ends what waits for the next: a notebook's process lives on."""
    call = object()
    with _turn:
        _under_way.add(call)
    try:
        yield
    finally:
        with _turn:
            _under_way.remove(call)
            if not _under_way:
                shutdown_compilers()
                fork_server.end_all()


def _taken_home(found: Summary, home: Path | None, options: searches.SearchOptions) -> Summary:
    """The summary with its export; a search is not lost where nothing may be exported."""
    if options.export is None or found.status == "waiting":
        return found
    try:
        return searches.with_export(found, home, options.export, force=options.force)
    except ExportRefusedError as refusal:
        warnings.warn(f"nothing exported: {refusal}", stacklevel=3)
        return found


@contextmanager
def _in_words() -> Iterator[None]:
    """Raise what the command line complains of as one of our two errors."""
    try:
        yield
    except Exception as error:
        complaint = complaint_of(error)
        if complaint is None or isinstance(error, EnvironmentLacksError):
            raise
        kind = EnvironmentLacksError if complaint.status == LACKING else KernelwrightError
        raise kind(str(complaint)) from None


def _known(target: Target) -> Target:
    if target not in ("auto", "cuda", "cpu"):
        raise Complaint(f"target must be auto, cuda or cpu, not {target!r}")
    return target


def _listed(words: Words) -> tuple[str, ...]:
    return (words,) if isinstance(words, str) else tuple(words)


def _at_least_one(name: str, value: Result) -> Result:
    if isinstance(value, int | float) and not value >= 1:
        raise KernelwrightError(f"{name} must be at least 1, not {value}")
    return value


def _unheard(_: object) -> None:
    """Nobody watches."""
