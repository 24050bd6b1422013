"""Forms of a task by its attention: with scores changed where they are made, or as one call.

Of attention that no library computes there are two: one leaves products to the library, the other
has kernels of ours for those too. Neither exists where no family of kernels takes every such
attention, for there is no call to fall back on.

Attention in float32 is two products of ours where products are loops, with scores that go through
memory. The other forms leave it a call there, which a family of kernels may take.
"""

from __future__ import annotations

from kernelwright.tools.codegen.ir import Program, Strategy
from kernelwright.tools.codegen.ir.roofline import LIBRARY_PRODUCTS
from kernelwright.tools.codegen.ir.scores import ATTENTION_CALL
from kernelwright.tools.codegen.library.forms.forms import (
    CONVOLUTIONS_FORM,
    PRODUCTS_FORM,
    PRODUCTS_TITLE,
    FormKind,
    Lowerings,
    calls_of,
)
from kernelwright.tools.codegen.lower import Lowering, lower

_SCORED = "scored_attention"


def _scored_program(lowerings: Lowerings) -> Program | None:
    graph, used = lowerings.apart
    return lower(graph, lowerings.parameters) if used else None


def _scored_products_program(lowerings: Lowerings) -> Program | None:
    graph, used = lowerings.apart
    if not used or not calls_of(lower(graph, lowerings.parameters), LIBRARY_PRODUCTS):
        return None
    return lower(graph, lowerings.parameters, Lowering(products=True))


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


_CALLED = "called_attention"


def _called(lowerings: Lowerings, *, convolutions: bool) -> Program | None:
    """Products as loops around calls of attention; None where none is made of products anyway."""
    parted = lowerings.convolved if convolutions else lowerings.multiplied
    if parted is None:
        return None
    left = calls_of(parted, {ATTENTION_CALL})
    if left == sum(node.op == ATTENTION_CALL for node in lowerings.changed.nodes):
        return None
    asked = Lowering(products=True, convolutions=convolutions, calls_attention=True)
    program = lowerings.lowered(asked)
    return program if calls_of(program, {ATTENTION_CALL}) > left else None


def _called_kind(prefix: str, around: FormKind, *, convolutions: bool) -> FormKind:
    """The form that has loops around attention's calls as another one has, under that prefix."""

    def idea(lowerings: Lowerings) -> Strategy:
        plain = around.idea(lowerings)
        return plain.model_copy(
            update={
                "name": f"{_CALLED}_{around.name}",
                "title": f"attention as one call, and {plain.title}",
                "mechanism": f"{plain.mechanism} Attention stays one call among them.",
                "reason": f"scores stay on chip; besides, {plain.reason}",
                "memory": f"scores on chip, {plain.memory}",
            }
        )

    def program(lowerings: Lowerings) -> Program | None:
        return _called(lowerings, convolutions=convolutions)

    return FormKind(f"{_CALLED}_{around.name}", prefix, program, idea)


CALLED_PRODUCTS_FORM = _called_kind("T", PRODUCTS_FORM, convolutions=False)
CALLED_CONVOLUTIONS_FORM = _called_kind("U", CONVOLUTIONS_FORM, convolutions=True)

ATTENTION_KINDS = (
    CALLED_PRODUCTS_FORM,
    CALLED_CONVOLUTIONS_FORM,
    SCORED_FORM,
    SCORED_PRODUCTS_FORM,
)
