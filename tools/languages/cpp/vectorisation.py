"""Which loops of a C++ kernel the compiler vectorised, and what its assembly computes with.

The kernel is compiled once more with the compiler's own report switched on (GCC's
`-fopt-info-vec`), without linking: what is judged is never built with other flags. The report
names lines, the assembly names registers. Only for the few candidates that somebody looks at: it
costs a compile. Not covered: clang's reports.
"""

import asyncio
import re

from kernelwright.tools.languages.base.cache import work_folder
from kernelwright.tools.languages.base.compilers import Compiler, CompileRefusedError, pool
from kernelwright.tools.languages.cpp.compile import assembly_command
from kernelwright.tools.types import Evidence, Rank, Value

_FLAGS = ("-fopt-info-vec-optimized", "-fopt-info-vec-missed")
_VECTORISED = re.compile(
    r":(?P<line>\d+):\d+: optimized:\s+loop vectorized using (?P<bytes>\d+) byte vectors"
)
_MISSED = re.compile(r":(?P<line>\d+):\d+: missed:\s+couldn't vectorize loop")
_BECAUSE = re.compile(r":\d+:\d+: missed:\s+not vectorized: (?P<why>.+)")
_ARITHMETIC = r"^\s+v?(?:add|sub|mul|div|fn?m(?:add|sub)\d+|sqrt|max|min)"
_PACKED = re.compile(_ARITHMETIC + r"p[sd]\s", re.MULTILINE)
_SCALAR = re.compile(_ARITHMETIC + r"s[sd]\s", re.MULTILINE)


class VectorReport(Value):
    """What became of the loops of a kernel's source, and of its floating-point instructions.

    `widest_bits` is of the vectors that the compiler chose, 0 where it vectorised nothing.
    `missed` counts loops that stayed scalar although the vectoriser looked at them.
    """

    vectorised: int
    missed: int
    widest_bits: int
    packed_instructions: int
    scalar_instructions: int
    reasons: tuple[str, ...] = ()

    @property
    def packed_share(self) -> float | None:
        """Share of floating-point instructions that work on vectors; None where there are none."""
        total = self.packed_instructions + self.scalar_instructions
        return self.packed_instructions / total if total else None


def read_vectors(report: str, assembly: str) -> VectorReport:
    """Read the compiler's report and its assembly (x86-64, AT&T syntax).

    A line that was vectorised in one copy of its loop and missed in another (the rest after the
    last full vector) counts as vectorised.
    """
    widths = {int(m["line"]): int(m["bytes"]) for m in _VECTORISED.finditer(report)}
    missed = {int(m["line"]) for m in _MISSED.finditer(report)} - set(widths)
    reasons = dict.fromkeys(m["why"].strip() for m in _BECAUSE.finditer(report))
    return VectorReport(
        vectorised=len(widths),
        missed=len(missed),
        widest_bits=8 * max(widths.values(), default=0),
        packed_instructions=len(_PACKED.findall(assembly)),
        scalar_instructions=len(_SCALAR.findall(assembly)),
        reasons=tuple(reasons)[:3] if missed else (),
    )


async def vector_report(text: str, *, timeout_s: float) -> VectorReport:
    """Compile a kernel, its tunables set, once more, with the vectoriser's report on.

    Raises:
        CompileRefusedError: When the compiler refuses, or has no such report.
        EnvironmentLacksError: When this machine has no C++ compiler.
    """
    ticket = pool().submit(lambda compiler: _compiled(compiler, text, timeout_s))
    try:
        return await asyncio.wrap_future(ticket.future)
    except asyncio.CancelledError:
        ticket.cancel()
        raise


def _compiled(compiler: Compiler, text: str, timeout_s: float) -> VectorReport:
    with work_folder() as folder:
        (folder / "kernel.cpp").write_text(text, encoding="utf-8")
        command = [*assembly_command(compiler), *_FLAGS, "kernel.cpp", "-o", "kernel.s"]
        answer = compiler.run([command], folder, timeout_s)
        if not answer.ok:
            raise CompileRefusedError("the compiler has no such report", answer.log)
        assembly = (folder / "kernel.s").read_text(encoding="utf-8")
    return read_vectors(answer.log, assembly)


def vector_evidence(found: VectorReport) -> tuple[Evidence, ...]:
    """The report as static readings."""
    source = "the compiler's vectorisation report"
    why = f": {'; '.join(found.reasons)}" if found.reasons else ""
    readings = [
        _static("vectorised_loops", found.vectorised, "loops", source),
        _static("missed_loops", found.missed, "loops", f"{source}{why}"),
        _static("vector_bits", found.widest_bits, "bits", source),
    ]
    if found.packed_share is not None:
        words = "floating-point instructions of the assembly that work on vectors"
        readings.append(_static("packed_share", found.packed_share, "", words))
    return tuple(readings)


def _static(name: str, value: float, unit: str, source: str) -> Evidence:
    return Evidence(name=name, rank=Rank.STATIC, value=value, unit=unit, source=source)
