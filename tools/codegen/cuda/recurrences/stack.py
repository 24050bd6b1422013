"""Prints a stack of recurrent layers: for each layer a product of its inputs, then all its steps.

Layers of one shape share their kernels, and the plan names what each launch is given: variables of
the plan stand for a layer's input, weights, states and results, and are bound anew for every layer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.cuda.printing.expressions import (
    Argument,
    Launch,
    Tunables,
    c_type,
    complete,
    render,
)
from kernelwright.tools.codegen.cuda.recurrences.inputs import fastest_product, input_product
from kernelwright.tools.codegen.cuda.recurrences.layouts import (
    AHEAD,
    BARRIER_BYTES,
    MOST_SUMS,
    Layout,
)
from kernelwright.tools.codegen.ir import Emitted
from kernelwright.tools.codegen.ir.recurrence import Recurrence
from kernelwright.tools.types import DType


class StackPrinter:
    """The source and the plan of one stack.

    Args:
        case: The call on a device.
        recurrence: What the call is.
        found: Layouts of the steps, all clustered or none, the best guess first.
        prefix: What every function, tunable and variable of the plan starts with.
        title: What the steps' kernel is called in its comment.
    """

    def __init__(
        self,
        case: Case,
        recurrence: Recurrence,
        found: Sequence[Layout],
        prefix: str,
        title: str,
    ) -> None:
        self.case, self.of, self.prefix, self.title = case, recurrence, prefix, title
        self.found = found
        # Variables of the plan, apart from what a module may call its own parts.
        self.held = f"{prefix}_call"
        self.tunables = self._tunables()

    @property
    def meeting(self) -> str:
        """Where the members of a group meet: in their "cluster", their one "block", "memory"."""
        if not self.found[0].clustered:
            return "memory"
        return "cluster" if self.case.cluster_sizes else "block"

    def emitted(self) -> Emitted:
        """Everything."""
        products = {layer: self._product(layer) for layer in self._unlike()}
        source, launches = self._steps()
        parts = [*(one.source for one in products.values()), source]
        return Emitted(source="\n".join(parts), plan=tuple(self._plan(products, launches)))

    def _unlike(self) -> list[int]:
        """The layers whose inputs have widths of their own."""
        return list({self.of.width(layer): layer for layer in range(self.of.layers)}.values())

    def _product(self, layer: int) -> Emitted:
        prefix = f"{self.prefix}_wide{self.of.width(layer)}"
        loop = input_product(self.of, layer, self.held)
        family, name, _ = fastest_product(loop, self.case.hardware)
        return family.emit(Case(loop, self.case.hardware), name, prefix)

    def _tunables(self) -> Tunables:
        """The layouts, as one number each, the one predicted fastest first."""
        return Tunables(self.prefix).add("LAYOUT", [one.word for one in self.found])

    def _sizes(self) -> Iterator[str]:
        """Plan lines for what a launch is told, as `Layout` counts it."""
        of, held = self.of, self.held
        yield self.tunables.named(f"{held}_members = {{LAYOUT}} // 100000")
        yield self.tunables.named(f"{held}_lanes = {{LAYOUT}} // 1000 % 100")
        yield self.tunables.named(f"{held}_units = {{LAYOUT}} // 100 % 10")
        yield self.tunables.named(f"{held}_rows = {{LAYOUT}} % 100")
        yield f"{held}_groups = {of.directions} * ceil_div({of.batch}, {held}_rows)"
        own = f"ceil_div(ceil_div({of.hidden}, {held}_members), {held}_units)"
        yield f"{held}_block = ceil_div({own} * {held}_lanes, 32) * 32"
        yield f"{held}_length = ceil_div({of.hidden}, 4 * {held}_lanes) * 4 * {held}_lanes"
        # A round has at most eight rows, a lane for each sum, and registers for them.
        most = f"min({MOST_SUMS // of.gates} // {held}_units, {held}_lanes // {held}_units)"
        yield f"{held}_few = 8 if {most} >= 8 else 4 if {most} >= 4 else 2 if {most} >= 2 else 1"
        kept = AHEAD * of.gates + (of.kind == "lstm")
        rounds = f"{held}_rows // min({held}_rows, {held}_few)"
        yield f"{held}_kept = {rounds} * {kept} * {held}_block"
        states = f"2 * {held}_rows * {held}_length"
        yield f"{held}_shared = 4 * ({states} + {held}_kept) + {BARRIER_BYTES}"

    def _steps(self) -> tuple[str, tuple[str, ...]]:
        of, prefix, held = self.of, self.prefix, self.held
        source = render(
            "recurrent",
            title=self.title,
            prefix=self.tunables.prefix,
            name=prefix,
            tunables=self.tunables.text(),
            meeting=self.meeting,
            kind=of.kind,
            type=c_type(of.dtype),
            steps=of.steps,
            batch=of.batch,
            hidden=of.hidden,
            gates=of.gates,
            directions=of.directions,
            has_biases=of.has_biases,
            most_sums=MOST_SUMS,
            ahead=AHEAD,
            step_rows=1 if of.batch_first else of.batch,
            batch_rows=of.steps if of.batch_first else 1,
        )
        launch = Launch(
            f"{prefix}_steps",
            f"{held}_groups * {held}_members",
            f"{held}_block",
            f"{held}_shared",
            f"{held}_members" if self.meeting == "cluster" else "",
        )
        return complete(source, list(self._arguments()), [launch])

    def _arguments(self) -> Iterator[Argument]:
        kind = c_type(self.of.dtype)
        for direction in range(self.of.directions):
            yield self._argument(f"gates{direction}", "const float")
            yield self._argument(f"weights{direction}", f"const {kind}")
            yield self._argument(f"biases{direction}", f"const {kind}")
        yield self._argument("first", f"const {kind}")
        yield self._argument("first_cells", f"const {kind}")
        for name in ("out", "last", "last_cells"):
            yield self._argument(name, kind)
        yield Argument("words", "long long* words", f"{self.held}_words")

    def _argument(self, name: str, kind: str) -> Argument:
        return Argument(f"g_{name}", f"{kind}* __restrict__ g_{name}", f"{self.held}_{name}")

    def _plan(self, products: dict[int, Emitted], launches: tuple[str, ...]) -> Iterator[str]:
        of, held = self.of, self.held
        by_width = {of.width(layer): emitted for layer, emitted in products.items()}
        yield from self._sizes()
        for layer in range(of.layers):
            yield f"{held}_x = {f'{held}_out' if layer else f'({of.x}).contiguous()'}"
            for direction in range(of.directions):
                yield from self._multiplied(layer, direction, by_width[of.width(layer)])
            yield from self._states(layer)
            if self.meeting == "memory":
                words = f"2 * {held}_groups * {held}_rows * {of.hidden} + 1"
                yield f'{held}_words = zeros(({words},), dtype="int64")'
            yield from launches

    def _multiplied(self, layer: int, direction: int, product: Emitted) -> Iterator[str]:
        held, cell = self.held, self.of.cells[layer][direction]
        yield from self._aligned(f"{held}_w", cell.input_weight, 2)
        yield from self._aligned(f"{held}_weights{direction}", cell.hidden_weight, 2)
        if self.of.has_biases:
            yield from self._aligned(f"{held}_b", cell.input_bias, 1)
            yield f"{held}_biases{direction} = {cell.hidden_bias}.contiguous()"
        size = f"{self.of.tokens}, {self.of.gates * self.of.hidden}"
        yield f'{held}_gates = empty(({size}), dtype="{DType.FLOAT32.value}")'
        yield from product.plan
        yield f"{held}_gates{direction} = {held}_gates"

    def _aligned(self, name: str, weight: str, rank: int) -> Iterator[str]:
        """A weight where vectors may be read: a module on a GPU keeps all of them in one buffer.

        What is copied once for two is contiguous, and begins where its buffer does.
        """
        elements = 16 // self.of.dtype.itemsize_bytes
        copied = f"{name}.unsqueeze(0).expand(2{', -1' * rank}).contiguous().select(0, 0)"
        yield f"{name} = {weight}.contiguous()"
        yield f"{name} = {copied} if {name}.storage_offset() % {elements} else {name}"

    def _states(self, layer: int) -> Iterator[str]:
        """Where a layer's states come from and go to."""
        of, held = self.of, self.held
        part = f"narrow(0, {layer * of.directions}, {of.directions})"
        for name, given, made in zip(("", "_cells"), of.first_states, of.results[1:], strict=False):
            yield f"{held}_first{name} = ({given}).{part}.contiguous()"
            yield f"{held}_last{name} = {made}.{part}"
        if layer == of.layers - 1:
            yield f"{held}_out = {of.results[0]}"
        else:
            sizes = (of.batch, of.steps) if of.batch_first else (of.steps, of.batch)
            shape = f"{sizes[0]}, {sizes[1]}, {of.directions * of.hidden}"
            yield f'{held}_out = empty(({shape}), dtype="{of.dtype.value}")'
