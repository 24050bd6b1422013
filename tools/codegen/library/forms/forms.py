"""The forms a task can be computed in: as written, rewritten by algebra, in another layout.

What makes a form, and the registry of the kinds of forms, in the order in which they are listed:
the task's own operators in their own order, which every task has; after every rewrite of the graph
that applies; with the library convolving with channels last; with windows that compute what they
cover in their own loop; and with products of matrices as loops, where a language has kernels for
those. A task is lowered in each way that forms are made of at most once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from kernelwright.tools.codegen.algebra import REWRITES, rewritten
from kernelwright.tools.codegen.ir import Loop, PlanLine, Program, Strategy
from kernelwright.tools.codegen.ir.rewrites import GraphRewrite
from kernelwright.tools.codegen.ir.roofline import CONVOLUTION, LIBRARY_PRODUCTS, loop_bytes
from kernelwright.tools.codegen.ir.scores import ATTENTION_CALL
from kernelwright.tools.codegen.lower import Lowering, lower
from kernelwright.tools.codegen.lower.epilogues import with_epilogues
from kernelwright.tools.codegen.lower.operators.pooled import pooled_by
from kernelwright.tools.types import Graph, Task

# Percent of the bytes that a form in one pass may move, to be worth a look.
_ENOUGH_LESS = 95


@dataclass(frozen=True)
class Lowerings:
    """What forms ask about a task: its graph as written and rewritten, each lowered."""

    graph: Graph
    parameters: tuple[str, ...]
    more: Sequence[GraphRewrite] = ()
    takes: Callable[[Loop], bool] = lambda loop: False

    @cached_property
    def written(self) -> Program:
        """The operators as the module wrote them."""
        return lower(self.graph, self.parameters)

    @cached_property
    def _rewriting(self) -> tuple[Graph, tuple[GraphRewrite, ...]]:
        more = (one for one in self.more if not one.is_apart)
        return rewritten(self.graph, (*REWRITES, *more))

    @property
    def changed(self) -> Graph:
        """The graph after every rewrite that applies; the same one where none does."""
        return self._rewriting[0]

    @property
    def rewrites(self) -> tuple[GraphRewrite, ...]:
        """The rewrites that applied."""
        return self._rewriting[1]

    @cached_property
    def apart(self) -> tuple[Graph, tuple[GraphRewrite, ...]]:
        """The graph after rewrites that make what no library computes as well, and those."""
        return rewritten(self.changed, [one for one in self.more if one.is_apart])

    def lowered(self, lowering: Lowering) -> Program:
        """The rewritten graph, lowered as asked."""
        return lower(self.changed, self.parameters, lowering)

    @cached_property
    def plain(self) -> Program:
        """The rewritten graph, lowered as usual."""
        return self.lowered(Lowering()) if self.rewrites else self.written

    @cached_property
    def joined(self) -> Program:
        """It in one pass under windows, where there are windows over what loops make."""
        if not slides(self.plain):
            return self.plain
        return self.lowered(Lowering(one_pass=True))

    @cached_property
    def convolved(self) -> Program | None:
        """Its convolutions as loops, where there are some."""
        asked = Lowering(products=True, convolutions=True)
        return with_fewer_calls(self, {CONVOLUTION}, asked)

    @cached_property
    def multiplied(self) -> Program | None:
        """Its products of matrices as loops, where there are some; attention is made of them."""
        return with_fewer_calls(self, {*LIBRARY_PRODUCTS, ATTENTION_CALL}, Lowering(products=True))

    @property
    def moves_less(self) -> bool:
        """Whether one pass moves enough bytes less."""
        return 100 * _moved(self.joined) < _ENOUGH_LESS * _moved(self.plain)

    @property
    def after(self) -> str:
        """The words for what was rewritten before anything else."""
        titles = " and ".join(rewrite.title for rewrite in self.rewrites)
        return f" after {titles}" if titles else ""


def slides(program: Program) -> bool:
    """Whether windows (a tensor read at several places) need what another loop of ours makes."""
    made = {store.access.buffer for loop in program.loops for store in loop.stores}
    for loop in program.loops:
        read = [stmt.access.buffer for stmt in loop.body if stmt.access is not None]
        if not loop.inner and len(set(read)) < len(read) and made & set(read):
            return True
    return False


def _moved(program: Program) -> int:
    return sum(sum(loop_bytes(loop)) for loop in program.loops)


@dataclass(frozen=True)
class Form:
    """One way to put the whole task, with the words of the idea that it is."""

    program: Program
    idea: Strategy

    @property
    def name(self) -> str:
        """The idea's."""
        return self.idea.name


@dataclass(frozen=True)
class FormKind:
    """One alternative for a whole task.

    `program` answers None where it does not apply; `prefix` starts the names of its loops, so that
    a choice says which form it is about.
    """

    name: str
    prefix: str
    program: Callable[[Lowerings], Program | None]
    idea: Callable[[Lowerings], Strategy]

    def form(self, lowerings: Lowerings) -> Form | None:
        """The form of a task; None where it has none of this kind."""
        program = self.program(lowerings)
        if program is None:
            return None
        named = _named(program, self.prefix) if self.prefix else program
        return Form(named, self.idea(lowerings))


def _named(program: Program, prefix: str) -> Program:
    steps = tuple(_named_step(step, prefix) for step in program.steps)
    return program.model_copy(update={"steps": steps})


def _named_step(step: Loop | PlanLine, prefix: str) -> Loop | PlanLine:
    if isinstance(step, PlanLine):
        return step.model_copy(update={"name": prefix + step.makes[0]}) if step.makes else step
    return step.model_copy(update={"name": prefix + step.name})


AS_WRITTEN = "as_written"
AS_WRITTEN_TITLE = "the operators as the module wrote them"


def _idea(lowerings: Lowerings) -> Strategy:
    return Strategy(
        name=AS_WRITTEN,
        title=AS_WRITTEN_TITLE,
        mechanism="the module's own operators, fused where memory allows",
        reason="it rounds as the module does",
        category="algebra",
        metric="time of the whole task",
        memory="as written",
        compute="as written",
        parallel="as written",
    )


AS_WRITTEN_FORM = FormKind(AS_WRITTEN, "", lambda lowerings: lowerings.written, _idea)


_NAME = "algebra"


def _program(lowerings: Lowerings) -> Program | None:
    return lowerings.plain if lowerings.rewrites else None


def _algebra_idea(lowerings: Lowerings) -> Strategy:
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


ALGEBRA_FORM = FormKind(_NAME, "A", _program, _algebra_idea)


_CHANNELS_LAST = "channels_last"


def _channels_last_program(lowerings: Lowerings) -> Program | None:
    if not convolves(lowerings.written):
        return None
    turned = lowerings.lowered(Lowering(channels_last=True, one_pass=lowerings.moves_less))
    return turned if convolves(turned) else None


def convolves(program: Program) -> bool:
    """Whether the library convolves something that a loop of ours reads."""
    made = {
        name
        for step in program.steps
        if isinstance(step, PlanLine) and step.operator == CONVOLUTION
        for name in step.makes
    }
    loads = (stmt.access for loop in program.loops for stmt in loop.body)
    return any(access is not None and access.buffer in made for access in loads)


def _channels_last_idea(lowerings: Lowerings) -> Strategy:
    return Strategy(
        name=_CHANNELS_LAST,
        title=f"convolutions with channels last{lowerings.after}",
        mechanism="The input and the weight are put into channels-last layout in every call, the "
        "library convolves there, and our loops read its result as it lies; what the module "
        "returns is stored in the layout that it returns.",
        reason="libraries convolve faster where the channels of one position lie together, and "
        "need no reordering of their own; it pays where that gains more than the copies cost",
        category="memory",
        metric="time of the library's convolution",
        memory="channels last",
        compute="as written",
        parallel="as written",
    )


CHANNELS_LAST_FORM = FormKind(_CHANNELS_LAST, "C", _channels_last_program, _channels_last_idea)


_ONE_PASS = "one_pass"


def _one_pass_program(lowerings: Lowerings) -> Program | None:
    return lowerings.joined if lowerings.moves_less else None


def _one_pass_idea(lowerings: Lowerings) -> Strategy:
    return Strategy(
        name=_ONE_PASS,
        title=f"what windows cover is computed in their own loop{lowerings.after}",
        mechanism="A window over normalised rows touches few of them, and no other needs those: "
        "their statistics are taken in the window's own loop, several rows at once; a window over "
        "windows reads all that those cover. Nothing between is stored.",
        reason="one pass over what windows cover instead of two or three, for longer kernels with "
        "more registers a thread",
        category="fusion",
        metric="dram bytes",
        memory="one pass under windows",
        compute="as written",
        parallel="as written",
    )


ONE_PASS_FORM = FormKind(_ONE_PASS, "O", _one_pass_program, _one_pass_idea)


_PRODUCTS = "products"
PRODUCTS_TITLE = "products of matrices in kernels of our own"


def _products_program(lowerings: Lowerings) -> Program | None:
    return lowerings.multiplied


def with_fewer_calls(
    lowerings: Lowerings, operators: Collection[str], lowering: Lowering
) -> Program | None:
    """The rewritten graph lowered so, where the library is then asked for fewer of some operators.

    Args:
        lowerings: The task's.
        operators: Those whose calls count.
        lowering: What is asked for.
    """
    before = calls_of(lowerings.plain, operators)
    if not before:
        return None
    program = lowerings.lowered(lowering)
    return program if calls_of(program, operators) < before else None


def calls_of(program: Program, operators: Collection[str]) -> int:
    """How many calls of some operators a program leaves to the library."""
    lines = (step for step in program.steps if isinstance(step, PlanLine))
    return sum(line.operator in operators for line in lines)


def _products_idea(lowerings: Lowerings) -> Strategy:
    return Strategy(
        name=_PRODUCTS,
        title=f"{PRODUCTS_TITLE}{lowerings.after}",
        mechanism="Every product of matrices is a loop like any other: what is done to its "
        "operands is done where tiles are read, and what follows it before they are stored.",
        reason="nothing between a product and its neighbours goes through memory; it pays where "
        "that, or a tile made for these sizes, gains more than the library's kernels are ahead",
        category="fusion",
        metric="time of the products",
        memory="fused products",
        compute="own products",
        parallel="as written",
    )


PRODUCTS_FORM = FormKind(_PRODUCTS, "P", _products_program, _products_idea)


_CONVOLUTIONS = "convolutions"


def _convolutions_program(lowerings: Lowerings) -> Program | None:
    program = lowerings.convolved
    return None if program is None else with_epilogues(program, lowerings.takes)


def _convolutions_idea(lowerings: Lowerings) -> Strategy:
    return Strategy(
        name=_CONVOLUTIONS,
        title=f"convolutions in kernels of our own{lowerings.after}",
        mechanism="Every convolution is a product over channels and the window's positions, a loop "
        "like any other, and so is every product of matrices: what follows is done before results "
        "are stored.",
        reason="nothing between a convolution and what follows goes through memory, and the window "
        "is read in the layout that tensor cores want; it pays where that gains more than packing "
        "the input costs",
        category="fusion",
        metric="time of the convolutions",
        memory="packed inputs",
        compute="own convolutions",
        parallel="as written",
    )


CONVOLUTIONS_FORM = FormKind(_CONVOLUTIONS, "V", _convolutions_program, _convolutions_idea)


_FOLDED = "folded_convolutions"


def _folded_program(lowerings: Lowerings) -> Program | None:
    program = lowerings.convolved
    if program is None:
        return None
    if pooled_by(lowerings.changed):
        program = lowerings.lowered(Lowering(products=True, convolutions=True, folds=True))
    found = with_epilogues(program, lowerings.takes, folds=True)
    folds = any(stmt.op == "fold" for loop in found.loops for stmt in loop.body)
    return found if folds else None


def _folded_idea(lowerings: Lowerings) -> Strategy:
    plain = _convolutions_idea(lowerings)
    return plain.model_copy(
        update={
            "name": _FOLDED,
            "title": f"convolutions reduced where they are made{lowerings.after}",
            "mechanism": f"{plain.mechanism} What reduces over output channels, or over the blocks "
            "that a transposed convolution makes, does so while a tile has them at hand.",
            "reason": "a tensor that is only reduced is never stored; it pays where passes over a "
            "tile's results take less than the tensor's way through memory",
            "memory": "packed inputs, reduced outputs",
        }
    )


FOLDED_FORM = FormKind(_FOLDED, "W", _folded_program, _folded_idea)


FORM_KINDS: tuple[FormKind, ...] = (
    AS_WRITTEN_FORM,
    ALGEBRA_FORM,
    ONE_PASS_FORM,
    CHANNELS_LAST_FORM,
    PRODUCTS_FORM,
    CONVOLUTIONS_FORM,
    FOLDED_FORM,
)


def _has_loops(program: Program) -> bool:
    return bool(program.loops)


def forms(
    task: Task,
    more: Sequence[GraphRewrite] = (),
    *,
    kinds: Sequence[FormKind] = FORM_KINDS,
    is_ours: Callable[[Program], bool] = _has_loops,
    takes: Callable[[Loop], bool] = lambda loop: False,
) -> tuple[Form, ...]:
    """Every form of a task that leaves us something to write, the one as written first.

    Args:
        task: The traced task.
        more: Rewrites of the graph besides those of `algebra`, which families of kernels bring.
        kinds: The kinds of forms to try.
        is_ours: Whether a program leaves us something to write.
        takes: Whether there are kernels for a loop that only those for products print.

    Returns:
        The forms; the first alone, where none leaves us anything.
    """
    parameters = tuple(spec.name for spec in task.inputs)
    lowerings = Lowerings(task.graph, parameters, tuple(more), takes)
    tried = (kind.form(lowerings) for kind in kinds)
    found = tuple(form for form in tried if form is not None)
    ours = tuple(form for form in found if is_ours(form.program))
    return ours or found[:1]
