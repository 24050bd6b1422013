"""Asks the C++ compiler which loops of a kernel it vectorised, and for the assembly it made.

A compile of its own, without linking: what is judged is never built with other flags.
"""

import asyncio
import time

from tools.candidates import ContractError, complete_settings, parse_kernel
from tools.compile.arrange import with_macros
from tools.compile.cache import work_folder
from tools.compile.cpp import assembly_command
from tools.compile.includes import check_includes
from tools.compile.pool import Compiler, pool
from tools.compile.results import CompileFailure, CompileRefusedError
from tools.nouns import Candidate, Value, Verdict

_REPORT = ("-fopt-info-vec-optimized", "-fopt-info-vec-missed")
_MEMORY_BYTES = 6 << 30


class VectorisingTold(Value):
    """The compiler's words about its loops, and its assembly."""

    report: str
    assembly: str


async def vector_report(
    candidate: Candidate, *, timeout_s: float
) -> VectorisingTold | CompileFailure:
    """Compile a C++ candidate under its settings once more, with the vectoriser's report on.

    Raises:
        EnvironmentLacksError: When this machine has no C++ compiler.
    """
    ticket = pool().submit(lambda compiler: _told(compiler, candidate, timeout_s))
    try:
        return await asyncio.wrap_future(ticket.future)
    except asyncio.CancelledError:
        ticket.cancel()
        raise


def _told(
    compiler: Compiler, candidate: Candidate, timeout_s: float
) -> VectorisingTold | CompileFailure:
    start = time.perf_counter()
    try:
        source = parse_kernel(candidate.kernel, candidate.language)
        check_includes(candidate.kernel, candidate.language)
        text = with_macros(candidate.kernel, complete_settings(source, candidate.settings))
        return _compiled(compiler, text, timeout_s)
    except ContractError as error:
        message, verdict = str(error), Verdict.INVALID_PLAN
    except CompileRefusedError as error:
        message, verdict = error.message, error.verdict
    seconds = time.perf_counter() - start
    return CompileFailure(verdict=verdict, message=message, seconds=seconds)


def _compiled(compiler: Compiler, text: str, timeout_s: float) -> VectorisingTold:
    with work_folder() as folder:
        (folder / "kernel.cpp").write_text(text, encoding="utf-8")
        request = {
            "kind": "commands",
            "commands": [[*assembly_command(compiler), *_REPORT, "kernel.cpp", "-o", "kernel.s"]],
            "folder": str(folder),
            "memory_bytes": _MEMORY_BYTES,
        }
        answer = compiler.ask(request, timeout_s)
        if not answer.ok:
            raise CompileRefusedError("the compiler has no such report", answer.log)
        assembly = (folder / "kernel.s").read_text(encoding="utf-8")
    return VectorisingTold(report=answer.log, assembly=assembly)
