"""Which loops of a C++ kernel the compiler vectorised, and what its assembly computes with.

The kernel is compiled once more with the compiler's own report switched on (GCC's
`-fopt-info-vec`); the report names lines, the assembly names registers. Only for the few
candidates that somebody looks at: it costs a compile. Not covered: clang's reports.
"""

import re

from tools.nouns import Value

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
