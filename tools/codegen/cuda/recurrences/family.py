"""Stacks of recurrent layers from the library: for each a product, then a kernel for all steps.

The library begins every step anew: it reads the weights again and launches what makes the gates. A
kernel that stays for all steps keeps them in registers, and what is left of a step is the way of
the states from block to block. Both directions of a layer are steps of one launch.

A layer whose weights the device cannot hold in registers stays with the library, and so does what
`ir.recurrence` does not read.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.cuda.printing.case import Case
from kernelwright.tools.codegen.cuda.recurrences.inputs import fastest_product, input_product
from kernelwright.tools.codegen.cuda.recurrences.layouts import Layout, layouts
from kernelwright.tools.codegen.cuda.recurrences.stack import StackPrinter
from kernelwright.tools.codegen.ir import Emitted, LibraryCall, Strategy
from kernelwright.tools.codegen.ir.kernel_family import Fit
from kernelwright.tools.codegen.ir.recurrence import Recurrence, recurrence_of
from kernelwright.tools.codegen.ir.rewrites import GraphRewrite, LoopRewrite

CLUSTERS, GROUPS = "recurrent_clusters", "recurrent_groups"
# Layouts that a tuner may draw from, and how far behind the first they may be expected to be.
_TRIED, _FAR = 12, 1.6
# Elements of one direction's products of inputs, which go through memory: 4 GiB of them.
_MOST_PRODUCTS = 1 << 30
_OLDEST = 80

_CLUSTERED = Strategy(
    name=CLUSTERS,
    title="All steps of a recurrent layer in one launch, weights in a cluster's registers",
    mechanism="One product makes what the inputs of all steps give; then each cluster of blocks "
    "keeps a layer's weights in registers and goes through all steps of a few sequences, both "
    "directions at the same time. Blocks write new states into each other's shared memory and "
    "meet once a step.",
    reason="steps depend on each other, so their time is latency: nothing is launched or read "
    "from memory between them",
    category="latency",
    metric="time of a step",
    memory="weights in registers",
    compute="persistent steps",
    parallel="cluster per sequences",
    efficiency=0.8,
)
_GROUPED = _CLUSTERED.model_copy(
    update={
        "name": GROUPS,
        "title": "All steps of a recurrent layer in one launch, weights in the device's registers",
        "mechanism": "One product makes what the inputs of all steps give; then a group of blocks, "
        "as many as its weights need registers, goes through all steps of a few sequences. "
        "Blocks tell each other new states through the last-level cache, each in one word with "
        "the number of its step.",
        "parallel": "resident blocks per sequences",
    }
)
_STRATEGIES = {CLUSTERS: _CLUSTERED, GROUPS: _GROUPED}


class RecurrentFamily:
    """The steps of recurrent layers in persistent blocks."""

    names: tuple[str, ...] = (CLUSTERS, GROUPS)
    rewrites: tuple[LoopRewrite, ...] = ()
    graph_rewrites: tuple[GraphRewrite, ...] = ()

    def fit(self, case: Case, /) -> Fit:
        """Whether the call is a recurrence whose weights the device holds."""
        if not isinstance(case.node, LibraryCall) or _capability(case.hardware) < _OLDEST:
            return Fit.NO
        try:
            recurrence = recurrence_of(case.node)
        except ValueError:
            return Fit.NO
        if recurrence.tokens * recurrence.gates * recurrence.hidden > _MOST_PRODUCTS:
            return Fit.NO
        return Fit.GOOD if any(_layouts(case, recurrence, n) for n in self.names) else Fit.NO

    def strategies(self, case: Case, /) -> Sequence[Strategy]:
        """In clusters and in groups of blocks, where these hold the weights."""
        recurrence = _recurrence(case)
        return [one for name, one in _STRATEGIES.items() if _layouts(case, recurrence, name)]

    def predicted_ms(self, case: Case, strategy: Strategy, /) -> float:
        """Products of all layers, steps of the best layout, and their launches."""
        recurrence, hardware = _recurrence(case), case.hardware
        steps_ms = _layouts(case, recurrence, strategy.name)[0].layer_ms(hardware)
        launch_ms = hardware.launch_us / 1e3
        launches_ms = launch_ms * (1 if strategy.name == CLUSTERS else 2)
        products_ms = sum(
            fastest_product(input_product(recurrence, layer, "k"), hardware)[2]
            for layer in range(recurrence.layers)
        )
        inputs_ms = recurrence.directions * products_ms
        return inputs_ms + recurrence.layers * (steps_ms + launches_ms)

    def emit(self, case: Case, name: str, prefix: str, /) -> Emitted:
        """Products and steps of the stack, layer by layer.

        Raises:
            ValueError: When the call is no recurrence that is read, or its weights do not fit.
        """
        recurrence = _recurrence(case)
        found = _layouts(case, recurrence, name)
        if not found:
            raise ValueError(f"{case.node.name}: weights do not fit the registers of {name}")
        title = _STRATEGIES[name].title
        return StackPrinter(case, recurrence, _near(found, case), prefix, title).emitted()


def _capability(hardware: Hardware) -> int:
    digits = "".join(c for c in hardware.architecture or "" if c.isdigit())
    return int(digits or 0)


def _recurrence(case: Case) -> Recurrence:
    if not isinstance(case.node, LibraryCall):
        raise ValueError(f"{case.node.name} is no recurrent layer")
    return recurrence_of(case.node)


def _layouts(case: Case, recurrence: Recurrence, name: str) -> tuple[Layout, ...]:
    return layouts(recurrence, case.hardware, clustered=name == CLUSTERS)


def _near(found: tuple[Layout, ...], case: Case) -> list[Layout]:
    """What a tuner may draw from: the fastest, and what is not expected to be far behind."""
    best = found[0].layer_ms(case.hardware)
    return [one for one in found if one.layer_ms(case.hardware) <= _FAR * best][:_TRIED]


RECURRENT_FAMILY = RecurrentFamily()
