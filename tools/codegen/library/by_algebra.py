"""The form after every rewrite of the graph that applies."""

from __future__ import annotations

from kernelwright.tools.codegen.ir import Program, Strategy
from kernelwright.tools.codegen.library.kind import FormKind
from kernelwright.tools.codegen.library.lowerings import Lowerings

_NAME = "algebra"


def _program(lowerings: Lowerings) -> Program | None:
    return lowerings.plain if lowerings.rewrites else None


def _idea(lowerings: Lowerings) -> Strategy:
    """The idea of all rewrites that apply; each gives its proof and its conditions."""
    rewrites = lowerings.rewrites
    proofs = "; ".join(f"{rewrite.title}: {rewrite.proof}" for rewrite in rewrites)
    conditions = "; ".join(dict.fromkeys(rewrite.conditions for rewrite in rewrites))
    return Strategy(
        name=_NAME,
        title=" and ".join(rewrite.title for rewrite in rewrites),
        mechanism=f"{proofs}. What it needs of the weights is computed in every call.",
        reason=f"less work and fewer bytes for the same result up to rounding, given: {conditions}",
        category="algebra",
        metric="time of the whole task",
        memory="rewritten",
        compute="rewritten",
        parallel="rewritten",
    )


ALGEBRA_FORM = FormKind(_NAME, "A", _program, _idea)
