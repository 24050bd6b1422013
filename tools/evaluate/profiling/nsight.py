"""Our own call of Nsight Compute: a short list of metrics, the candidate's own launches only.

Clocks are left alone (others may use the device) and caches are flushed before every replay, as
ncu does by default. The report lies where the profiled process could write, so it is ncu, in a
process of its own, that reads it; we read text.
Not covered: launches beyond the first few of a call, and CUDA graphs, which a plan cannot make.
"""

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from tools.evaluate.messages import ProfileRequest
from tools.evaluate.process.environment import worker_environment
from tools.evaluate.profiling.program import Ran, run
from tools.nouns import KernelCounters, Missing, RuleResult, Value
from tools.profile.counters.failures import (
    counters_missing,
    failure,
    not_found,
    too_slow,
    unreadable,
)
from tools.profile.counters.metrics import selection
from tools.profile.counters.names import plain_name
from tools.profile.counters.reading import read_counters
from tools.profile.counters.rules import read_rules

VARIABLE = "KERNELWRIGHT_NCU"
_FOLDERS = ("/usr/local/cuda/bin", "/opt/cuda/bin")
_INSTALLED = (("/usr/local", "cuda-*/bin/ncu"), ("/opt/nvidia/nsight-compute", "*/ncu"))
_READING_S = 20.0


class Counted(Value):
    """What ncu counted, or why it did not."""

    counters: tuple[KernelCounters, ...] = ()
    rules: tuple[RuleResult, ...] = ()
    missing: Missing | None = None


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
        scratch: A folder of its own; what is written there stays.
    """
    ncu = find_ncu()
    if isinstance(ncu, Missing):
        return Counted(missing=ncu)
    environment = worker_environment(scratch)
    asked, report = _places(request, scratch)
    limit_s = request.rules.profile_s
    command = [
        *_collect(ncu, report, request.rules.profile_launches),
        *child_command(asked, limit_s),
    ]
    try:
        done = await run(command, timeout_s=limit_s, environment=environment, folder=scratch)
    except OSError as error:
        return Counted(missing=failure(f"{ncu} cannot be started: {error.strerror}"))
    if done.status is None:
        return Counted(missing=too_slow(limit_s))
    if done.status != 0 or not report.is_file():
        return Counted(missing=failure(done.output))
    return await _read(ncu, report, request, environment)


def _places(request: ProfileRequest, scratch: Path) -> tuple[Path, Path]:
    """Where the request lies for the child, and where the report shall be."""
    asked, report = scratch / "request.json", scratch / "counters.ncu-rep"
    asked.write_text(request.model_dump_json(), encoding="utf-8")
    report.unlink(missing_ok=True)
    return asked, report


def _collect(ncu: Path, report: Path, launches: int) -> list[str]:
    """The call without the program to profile; profiling begins where that one says so."""
    return [
        *(str(ncu), "--clock-control", "none", "--profile-from-start", "off"),
        *("--target-processes", "all", "--launch-count", str(launches)),
        *("--force-overwrite", "--export", str(report), *selection()),
    ]


def child_command(asked: Path, limit_s: float) -> list[str]:
    """One candidate, twice; to be run by whatever watches it."""
    module = "tools.evaluate.profiling.child"
    return [sys.executable, "-P", "-m", module, str(asked), str(int(limit_s))]


async def _read(
    ncu: Path, report: Path, request: ProfileRequest, environment: Mapping[str, str]
) -> Counted:
    """Both pages of a report, printed at the same time."""
    raw, details = await asyncio.gather(
        _printed(ncu, report, environment, "raw"),
        _printed(ncu, report, environment, "details", "--print-rule-details"),
    )
    own = {plain_name(name) for name in request.built.functions}
    try:
        counters = read_counters(raw.output, own)
    except ValueError as error:
        return Counted(missing=unreadable(str(error)))
    if not counters:
        return Counted(missing=failure(raw.output))
    return Counted(counters=counters, rules=read_rules(details.output))


async def _printed(
    ncu: Path, report: Path, environment: Mapping[str, str], page: str, *more: str
) -> Ran:
    command = [str(ncu), "--import", str(report), "--csv", "--page", page]
    command += ["--print-units", "base", *more]
    return await run(command, timeout_s=_READING_S, environment=environment, folder=report.parent)
