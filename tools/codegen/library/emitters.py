"""Emitters: which one writes for a device, one that is asked about alike nodes once, and forms.

A network of twelve layers has twelve loops of each kind in each of its forms, and what fits one of
them, and how long it would take, is so for all. A form is worth proposing where an emitter has
kernels for all of it, and none of its products must be slow.
"""

from __future__ import annotations

from collections.abc import Callable

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.ir import Emitted, LibraryCall, Program, ProgramNode, Strategy
from kernelwright.tools.codegen.ir.contraction import PRODUCT, contraction_of
from kernelwright.tools.codegen.ir.kernel_family import Emitter
from kernelwright.tools.codegen.ir.rewrites import GraphRewrite
from kernelwright.tools.codegen.ir.roofline import library_product_ms
from kernelwright.tools.codegen.ir.scores import ATTENTION
from kernelwright.tools.codegen.library.alike import shape_of
from kernelwright.tools.codegen.library.forms.attention import (
    ATTENTION_KINDS,
    CALLED_CONVOLUTIONS_FORM,
    CALLED_PRODUCTS_FORM,
    SCORED_PRODUCTS_FORM,
)
from kernelwright.tools.codegen.library.forms.forms import (
    CONVOLUTIONS_FORM,
    FOLDED_FORM,
    FORM_KINDS,
    PRODUCTS_FORM,
    FormKind,
)
from kernelwright.tools.codegen.library.forms.products import PRODUCT_KINDS
from kernelwright.tools.codegen.library.forms.windows import (
    WINDOW_KINDS,
    WINDOWS_AND_CONVOLUTIONS_FORM,
)
from kernelwright.tools.languages import languages
from kernelwright.tools.types import LanguageName


def emitter_for(hardware: Hardware) -> Emitter:
    """The device's own.

    Raises:
        ValueError: no language for that kind of device has one.
    """
    for language in languages():
        if language.spec.device == hardware.kind and language.spec.name in EMITTERS:
            return EMITTERS[language.spec.name]()
    raise ValueError(f"no emitter is registered for {hardware.kind} devices")


def _cuda() -> Emitter:
    from kernelwright.tools.codegen.cuda import CudaEmitter

    return CudaEmitter()


def _cpp() -> Emitter:
    from kernelwright.tools.codegen.cpp import CppEmitter

    return CppEmitter()


# What makes the emitter of a language, by its name; imported when first needed.
EMITTERS: dict[LanguageName, Callable[[], Emitter]] = {"cuda": _cuda, "cpp": _cpp}


class RememberingEmitter:
    """Another emitter's answers for one device, each found once for all nodes of a shape."""

    def __init__(self, emitter: Emitter, hardware: Hardware) -> None:
        self._emitter = emitter
        self._hardware = hardware
        self._kinds: dict[ProgramNode, int] = {}
        # By the node's identity, which is kept with it: a loop's hash is a walk through all of it.
        self._kind_of: dict[int, tuple[ProgramNode, int]] = {}
        self._strategies: dict[int, tuple[Strategy, ...]] = {}
        self._predicted_ms: dict[tuple[int, Strategy], float] = {}
        self.language: LanguageName = emitter.language
        self.graph_rewrites: tuple[GraphRewrite, ...] = emitter.graph_rewrites
        self.multiplies: bool = emitter.multiplies
        self.sums_windows: bool = emitter.sums_windows

    def convolves(self, hardware: Hardware) -> bool:
        """The other's answer."""
        return self._emitter.convolves(hardware)

    def header(self) -> str:
        """The other's."""
        return self._emitter.header()

    def strategies(self, node: ProgramNode, hardware: Hardware) -> tuple[Strategy, ...]:
        """Every strategy that fits, the most promising first."""
        if hardware is not self._hardware:
            return self._emitter.strategies(node, hardware)
        kind = self.kind(node)
        if kind not in self._strategies:
            self._strategies[kind] = self._emitter.strategies(node, hardware)
        return self._strategies[kind]

    def predicted_ms(self, node: ProgramNode, strategy: Strategy, hardware: Hardware) -> float:
        """The time to expect of a node under one of its strategies."""
        if hardware is not self._hardware:
            return self._emitter.predicted_ms(node, strategy, hardware)
        key = self.kind(node), strategy
        if key not in self._predicted_ms:
            self._predicted_ms[key] = self._emitter.predicted_ms(node, strategy, hardware)
        return self._predicted_ms[key]

    def rewritten(self, node: ProgramNode, strategy: Strategy) -> ProgramNode:
        """The other's."""
        return self._emitter.rewritten(node, strategy)

    def emit(
        self, node: ProgramNode, strategy: Strategy, prefix: str, hardware: Hardware
    ) -> Emitted:
        """The other's."""
        return self._emitter.emit(node, strategy, prefix, hardware)

    def kind(self, node: ProgramNode) -> int:
        """A number that a node shares with all that one kernel can serve."""
        if id(node) not in self._kind_of:
            kind = self._kinds.setdefault(shape_of(node), len(self._kinds))
            self._kind_of[id(node)] = node, kind
        return self._kind_of[id(node)][1]


def kinds_of(emitter: Emitter, hardware: Hardware) -> list[FormKind]:
    """The kinds of forms whose loops an emitter may have kernels for."""
    multiplies = (PRODUCTS_FORM, CALLED_PRODUCTS_FORM, SCORED_PRODUCTS_FORM, *PRODUCT_KINDS)
    without = () if emitter.multiplies else multiplies
    if not emitter.convolves(hardware):
        ours = (CONVOLUTIONS_FORM, FOLDED_FORM, CALLED_CONVOLUTIONS_FORM)
        without = (*without, *ours, WINDOWS_AND_CONVOLUTIONS_FORM)
    if not emitter.sums_windows:
        without = (*without, *WINDOW_KINDS)
    every = (*FORM_KINDS, *PRODUCT_KINDS, *WINDOW_KINDS, *ATTENTION_KINDS)
    return [kind for kind in every if kind not in without]


def lacks_kernels(program: Program, emitter: Emitter, hardware: Hardware) -> bool:
    """Whether something stands in it that no library computes, and no family either."""
    alone = [
        n for n in program.nodes if isinstance(n, LibraryCall) and n.line.operator == ATTENTION
    ]
    return any(not emitter.strategies(node, hardware) for node in alone)


# How far behind the library products of our own may be expected to stay, to be proposed at all.
# Of a product this short it is not told: the library waits for its operands as well.
_FAR_BEHIND, _SHORT_MS = 2.0, 0.03


def keeps_up(program: Program, emitter: Emitter, hardware: Hardware) -> bool:
    """Whether the products among a program's loops take no multiple of the library's time."""
    ours = theirs = 0.0
    for loop in program.loops:
        product = contraction_of(loop) if loop.family == PRODUCT else None
        if product is not None:
            ways = emitter.strategies(loop, hardware)
            ours += min(emitter.predicted_ms(loop, way, hardware) for way in ways)
            theirs += _FAR_BEHIND * library_product_ms(product, hardware) + _SHORT_MS
    return ours <= theirs
