"""Forms of a task whose attention no library computes: scores are changed where they are made.

One leaves products to the library, the other has kernels of ours for those too. Neither exists
where no family of kernels takes every such attention, for there is no call to fall back on.
"""

from __future__ import annotations

from kernelwright.tools.codegen.ir import Program, Strategy
from kernelwright.tools.codegen.ir.roofline import LIBRARY_PRODUCTS
from kernelwright.tools.codegen.library.forms import (
    PRODUCTS_FORM,
    PRODUCTS_TITLE,
    FormKind,
    Lowerings,
    calls_of,
)
from kernelwright.tools.codegen.lower import lower

_SCORED = "scored_attention"


def _scored_program(lowerings: Lowerings) -> Program | None:
    graph, used = lowerings.apart
    return lower(graph, lowerings.parameters) if used else None


def _scored_products_program(lowerings: Lowerings) -> Program | None:
    graph, used = lowerings.apart
    if not used or not calls_of(lower(graph, lowerings.parameters), LIBRARY_PRODUCTS):
        return None
    return lower(graph, lowerings.parameters, products=True)


def _scored_idea(lowerings: Lowerings) -> Strategy:
    used = lowerings.apart[1]
    titles = " and ".join(dict.fromkeys(one.title for one in used))
    return Strategy(
        name=_SCORED,
        title=f"{titles}{lowerings.after}",
        mechanism="What changes a score, a bias computed from positions among it, is computed "
        "where scores are made, in registers, and so are weights.",
        reason=f"scores, weights and biases never go through memory, given: {used[0].conditions}",
        category="fusion",
        metric="time of attention",
        memory="scores on chip",
        compute="own attention",
        parallel="as written",
    )


def _scored_products_idea(lowerings: Lowerings) -> Strategy:
    plain = _scored_idea(lowerings)
    title = f"{plain.title}, and {PRODUCTS_TITLE}"
    return plain.model_copy(update={"name": f"{_SCORED}_{PRODUCTS_FORM.name}", "title": title})


SCORED_FORM = FormKind(_SCORED, "S", _scored_program, _scored_idea)
SCORED_PRODUCTS_FORM = FormKind(
    f"{_SCORED}_{PRODUCTS_FORM.name}", "Q", _scored_products_program, _scored_products_idea
)

SCORED_KINDS = (SCORED_FORM, SCORED_PRODUCTS_FORM)
