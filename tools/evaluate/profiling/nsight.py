"""Our own call of Nsight Compute: a short list of metrics, the candidate's own launches only.

Clocks are left alone (others may use the device) and caches are flushed before every replay, as
ncu does by default. The report lies where the profiled process could write, so it is ncu, in a
process of its own, that reads it; we read text. Both stand behind the wall, or outside where ncu
does not work behind it (`program`), and then say so.
Not covered: launches beyond the first few of a call, and CUDA graphs, which a plan cannot make.
"""

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from kernelwright.tools.evaluate.messages import ProfileRequest
from kernelwright.tools.evaluate.profiling.program import Program, Ran, installed, run, seen
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.sandbox.bytecode import worker_environment
from kernelwright.tools.evaluate.sandbox.walls import Wall, standing
from kernelwright.tools.profile.ncu_report import (
    counters_missing,
    failure,
    not_found,
    nothing_launched,
    plain_name,
    read_counters,
    read_rules,
    selection,
    too_slow,
    unreadable,
)
from kernelwright.tools.tasks.sources.carried import elsewhere
from kernelwright.tools.types import KernelCounters, Missing, RuleResult, Value

VARIABLE = "KERNELWRIGHT_NCU"
_FOLDERS = ("/usr/local/cuda/bin", "/opt/cuda/bin")
_INSTALLED = (("/usr/local", "cuda-*/bin/ncu"), ("/opt/nvidia/nsight-compute", "*/ncu"))
_READING_S = 20.0
_ASKED, _REPORT = "request.json", "counters.ncu-rep"
TRIAL_S = 20.0  # a kernel of our own that does nothing, under one tool


class Counted(Value):
    """What ncu counted, or why it did not; `outside` why it was not behind the wall, if so."""

    counters: tuple[KernelCounters, ...] = ()
    rules: tuple[RuleResult, ...] = ()
    missing: Missing | None = None
    outside: str = ""


class Order(Value):
    """One call of ncu: the program to watch, what it may read, and how long it may take."""

    ncu: Path
    program: tuple[str, ...]
    readable: tuple[Path, ...]
    scratch: Path
    launches: int
    limit_s: float


def find_ncu(environment: Mapping[str, str] | None = None) -> Path | Missing:
    """The ncu to use: the variable's, the one on PATH, or the newest in the usual folders."""
    source = os.environ if environment is None else environment
    if chosen := source.get(VARIABLE):
        if found := shutil.which(chosen):
            return Path(found)
        why = f"{VARIABLE} is {chosen}, which is no program"
        return counters_missing(why, "correct or unset it")
    homes = [f"{home}/bin" for name in ("CUDA_HOME", "CUDA_PATH") if (home := source.get(name))]
    places = os.pathsep.join((source.get("PATH", ""), *homes, *_FOLDERS))
    if found := shutil.which("ncu", path=places):
        return Path(found)
    installed = (path for root, pattern in _INSTALLED for path in Path(root).glob(pattern))
    newest = sorted(path for path in installed if os.access(path, os.X_OK))
    return newest[-1] if newest else not_found()


async def count(request: ProfileRequest, scratch: Path) -> Counted:
    """Count one candidate's launches.

    Args:
        request: What to run.
        scratch: A folder of its own, made when needed; what is written there stays.
    """
    ncu = find_ncu()
    if isinstance(ncu, Missing):
        return Counted(missing=ncu)
    order = order_of(ncu, request.rules, needed(request), scratch)
    ask(order, request)
    found, outside = await seen(
        ncu,
        standing(request.rules, "cuda"),
        lambda behind: _counted(order, own_names(request), behind),
        worked=worked,
        trial=lambda behind: _trial(order, behind),
    )
    return found.model_copy(update={"outside": outside})


def worked(counted: Counted) -> bool:
    """Whether ncu itself did what it was to do."""
    return not counted.missing or counted.missing == nothing_launched()


def own_names(request: ProfileRequest) -> set[str]:
    """The candidate's kernels."""
    return {plain_name(name) for name in request.built.functions}


def order_of(ncu: Path, rules: Rules, readable: tuple[Path, ...], scratch: Path) -> Order:
    """How to call ncu for a candidate that may be named later (`ask`)."""
    scratch.mkdir(parents=True, exist_ok=True)
    return Order(
        ncu=ncu,
        program=tuple(child_command(scratch / _ASKED, rules.profile_s)),
        readable=(*readable, *installed(ncu)),
        scratch=scratch,
        launches=rules.profile_launches,
        limit_s=rules.profile_s,
    )


def ask(order: Order, request: ProfileRequest) -> None:
    """Say what to run; it is whole as soon as it is there."""
    part = order.scratch / f"{_ASKED}.part"
    part.write_text(request.model_dump_json(), encoding="utf-8")
    part.replace(order.scratch / _ASKED)


def needed(request: ProfileRequest) -> tuple[Path, ...]:
    """What the watched process reads beside the system, Python and us."""
    return (*elsewhere(request.task), request.built.artifact)


async def _trial(order: Order, behind: Wall) -> bool:
    """Whether ncu counts a kernel of our own there."""
    limit_s = min(order.limit_s, TRIAL_S)
    ours = order.model_copy(
        update={
            "program": tuple(trial_command(limit_s)),
            "readable": installed(order.ncu),
            "limit_s": limit_s,
        }
    )
    return bool((await _counted(ours, set(), behind)).counters)


async def _counted(order: Order, own: set[str], behind: Wall) -> Counted:
    """Collect behind a wall, then read."""
    try:
        program = await begun(order, behind)
    except OSError as error:
        return Counted(missing=failure(f"{order.ncu} cannot be started: {error.strerror}"))
    return await ended(order, program, own, behind)


async def begun(order: Order, behind: Wall) -> Program:
    """Start ncu; raises OSError when it cannot be started."""
    report = order.scratch / _REPORT
    report.unlink(missing_ok=True)
    return await Program.start(
        [*_collect(order, report), *order.program],
        environment=worker_environment(order.scratch),
        folder=order.scratch,
        behind=behind,
        readable=order.readable,
    )


async def ended(order: Order, program: Program, own: set[str], behind: Wall) -> Counted:
    """See ncu end, and read what it counted."""
    done, report = await program.finish(order.limit_s), order.scratch / _REPORT
    if done.status is None:
        return Counted(missing=too_slow(order.limit_s))
    if done.status != 0 or not report.is_file():
        return Counted(missing=failure(done.output))
    return await _read(order, report, own, behind)


def _collect(order: Order, report: Path) -> list[str]:
    """The call without the program to profile; profiling begins where that one says so."""
    return [
        *(str(order.ncu), "--clock-control", "none", "--profile-from-start", "off"),
        *("--target-processes", "all", "--launch-count", str(order.launches)),
        *("--force-overwrite", "--export", str(report), *selection()),
    ]


def child_command(asked: Path, limit_s: float) -> list[str]:
    """One candidate, twice; to be run by whatever watches it."""
    module = "kernelwright.tools.evaluate.profiling.child"
    return [sys.executable, "-P", "-m", module, str(asked), str(int(limit_s))]


def trial_command(limit_s: float) -> list[str]:
    """A kernel of our own that does nothing, once."""
    return [
        sys.executable,
        "-P",
        "-m",
        "kernelwright.tools.evaluate.profiling.trial",
        str(int(limit_s)),
    ]


async def _read(order: Order, report: Path, own: set[str], behind: Wall) -> Counted:
    """Both pages of a report, printed at the same time."""
    raw, details = await asyncio.gather(
        _printed(order, report, behind, "raw"),
        _printed(order, report, behind, "details", "--print-rule-details"),
    )
    try:
        counters = read_counters(raw.output, own)
    except ValueError as error:
        return Counted(missing=unreadable(str(error)))
    if not counters:
        return Counted(missing=failure(raw.output))
    return Counted(counters=counters, rules=read_rules(details.output))


async def _printed(order: Order, report: Path, behind: Wall, page: str, *more: str) -> Ran:
    command = [str(order.ncu), "--import", str(report), "--csv", "--page", page]
    return await _run(order, [*command, "--print-units", "base", *more], _READING_S, behind)


async def _run(order: Order, command: list[str], timeout_s: float, behind: Wall) -> Ran:
    return await run(
        command,
        timeout_s=timeout_s,
        environment=worker_environment(order.scratch),
        folder=order.scratch,
        behind=behind,
        readable=order.readable,
    )
