"""Forms of a task by its weighted windows, in which no channel meets another.

Written out, a window is a term for each of its positions: large ones make long kernels, and several
of them over the same images more than one. As reductions they fit in one loop, with all that is
made of them; that form exists where outputs then share what they read. With channels last a
position's channels lie together: as sums of ours, beside products of ours, or as the library's
calls. In the module's layout they stand beside other convolutions of ours. What windows read is
stored then, and nothing of it computed again for each of their positions.
"""

from __future__ import annotations

from kernelwright.tools.codegen.ir import Loop, Program, Strategy
from kernelwright.tools.codegen.ir.roofline import CONVOLUTION, LIBRARY_PRODUCTS
from kernelwright.tools.codegen.ir.sliding import overlaps, sliding_sums
from kernelwright.tools.codegen.library.forms.forms import (
    FormKind,
    Lowerings,
    calls_of,
    convolves,
    with_fewer_calls,
)
from kernelwright.tools.codegen.lower import Lowering
from kernelwright.tools.codegen.lower.epilogues import with_epilogues
from kernelwright.tools.codegen.lower.operators.sliding import weighs_windows

_SUMMED, _LAST = "summed_windows", "windows_channels_last"
_PRODUCTS, _CALLED = "windows_and_products", "called_windows"
_CONVOLVED = "windows_and_convolutions"


def _weighs(lowerings: Lowerings) -> bool:
    """Whether there are such windows."""
    graph = lowerings.changed
    return any(weighs_windows(graph, node) for node in graph.nodes)


def _all_sums(program: Program) -> Program | None:
    """The program, where all of its windows are sums that outputs share."""
    sums = [loop for loop in program.loops if _reduces(loop) and overlaps(loop)]
    return program if sums and all(sliding_sums(loop) is not None for loop in sums) else None


def _summed_program(lowerings: Lowerings) -> Program | None:
    if not _weighs(lowerings):
        return None
    return _all_sums(lowerings.lowered(Lowering(sums_windows=True)))


def _reduces(loop: Loop) -> bool:
    return any(stmt.op == "reduce" for stmt in loop.body)


def _summed_idea(lowerings: Lowerings) -> Strategy:
    return Strategy(
        name=_SUMMED,
        title=f"windows summed together where they see the same{lowerings.after}",
        mechanism="Weighted windows are sums over the window's positions in one loop: what they "
        "read and the products that they weigh are at hand for all of them, and what is made of "
        "the sums follows there.",
        reason="images are read once for all windows, and nothing between is stored; a kernel of "
        "sums stays short however large the window is",
        category="fusion",
        metric="dram bytes",
        memory="windows together",
        compute="sums over windows",
        parallel="as written",
    )


SUMMED_WINDOWS_FORM = FormKind(_SUMMED, "B", _summed_program, _summed_idea)


def _last_program(lowerings: Lowerings) -> Program | None:
    if not _weighs(lowerings):
        return None
    return _all_sums(lowerings.lowered(Lowering(channels_last=True, sums_windows=True)))


def _last_idea(lowerings: Lowerings) -> Strategy:
    return Strategy(
        name=_LAST,
        title=f"windows of each channel summed with channels last{lowerings.after}",
        mechanism="Images that windows slide over are stored with their channels last, and so is "
        "what windows make of them: neighbouring threads take neighbouring channels, each the sums "
        "of several positions. The library convolves in that layout as well.",
        reason="every read and every store of a position is contiguous, whatever the window; norms "
        "over channels and products behind it read rows as they lie",
        category="memory",
        metric="fma pipe",
        memory="channels last",
        compute="sums over windows",
        parallel="as written",
    )


WINDOWS_LAST_FORM = FormKind(_LAST, "D", _last_program, _last_idea)


def _products_program(lowerings: Lowerings) -> Program | None:
    if not _weighs(lowerings) or not calls_of(lowerings.plain, LIBRARY_PRODUCTS):
        return None
    asked = Lowering(products=True, channels_last=True, sums_windows=True)
    return _all_sums(lowerings.lowered(asked))


def _products_idea(lowerings: Lowerings) -> Strategy:
    plain = _last_idea(lowerings)
    return plain.model_copy(
        update={
            "name": _PRODUCTS,
            "title": f"{plain.title}, and products of matrices in kernels of our own",
            "mechanism": f"{plain.mechanism} Products of matrices are loops too: what follows one "
            "is done before its results are stored.",
            "memory": "channels last, fused products",
            "compute": "sums over windows, own products",
        }
    )


WINDOWS_AND_PRODUCTS_FORM = FormKind(_PRODUCTS, "F", _products_program, _products_idea)


def _called_program(lowerings: Lowerings) -> Program | None:
    if not _weighs(lowerings):
        return None
    program = lowerings.lowered(Lowering(channels_last=True, calls_windows=True))
    return program if convolves(program) else None


def _called_idea(lowerings: Lowerings) -> Strategy:
    return Strategy(
        name=_CALLED,
        title=f"windows of each channel by the library, with channels last{lowerings.after}",
        mechanism="Every convolution is the library's call over channels-last tensors, those in "
        "which no channel meets another too; our loops read and write rows of channels.",
        reason="nothing is computed again for the positions of a window, and norms over channels "
        "read rows as they lie",
        category="memory",
        metric="time of the library's convolutions",
        memory="channels last",
        compute="library's windows",
        parallel="as written",
    )


CALLED_WINDOWS_FORM = FormKind(_CALLED, "E", _called_program, _called_idea)


def _convolved_program(lowerings: Lowerings) -> Program | None:
    """It, where other convolutions are then loops as well."""
    if not _weighs(lowerings):
        return None
    asked = Lowering(products=True, convolutions=True, sums_windows=True)
    program = with_fewer_calls(lowerings, {CONVOLUTION}, asked)
    summed = None if program is None else _all_sums(program)
    return None if summed is None else with_epilogues(summed, lowerings.takes)


def _convolved_idea(lowerings: Lowerings) -> Strategy:
    plain = _summed_idea(lowerings)
    return plain.model_copy(
        update={
            "name": _CONVOLVED,
            "title": f"windows of each channel summed, and other convolutions in kernels of our "
            f"own{lowerings.after}",
            "mechanism": f"{plain.mechanism} Every other convolution is a product over channels "
            "and the window's positions, and what follows it is done before results are stored.",
            "reason": "a norm behind a window reads what that made instead of computing each of "
            "its positions again in every walk, and tensors keep the module's layout",
            "metric": "fma pipe",
            "memory": "stored windows, packed inputs",
            "compute": "sums over windows, own convolutions",
        }
    )


WINDOWS_AND_CONVOLUTIONS_FORM = FormKind(_CONVOLVED, "X", _convolved_program, _convolved_idea)

WINDOW_KINDS = (
    SUMMED_WINDOWS_FORM,
    WINDOWS_LAST_FORM,
    WINDOWS_AND_PRODUCTS_FORM,
    CALLED_WINDOWS_FORM,
    WINDOWS_AND_CONVOLUTIONS_FORM,
)
