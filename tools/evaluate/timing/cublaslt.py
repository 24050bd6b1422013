"""The vendor's library for products asked directly: its heuristic's first choice, and its best.

cuBLASLt names up to a hundred algorithms for a product, best first by its own model. `cublaslt`
runs the first; `cublaslt-autotuned` the one that is fastest here, under the caches and by the clock
that candidates are timed with. Asked through nvmath-python's bindings, where they are installed:
descriptors and the workspace are made once, so that a call allocates its result and launches.

The product is read off the task's graph, so this takes any layout that the library can be told of,
and after the product what the library can fuse: a bias of a value a column, ReLU, GELU by tanh.
Sums are in float32, or of fp16 in that type. Factors of eight bits have a scale each, and sums that
are promoted. Not here: anything else before or after the product.
"""

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch

from kernelwright.tools.codegen.ir import Access, Axis
from kernelwright.tools.codegen.ir.contraction import Contraction, Operand, contraction_of
from kernelwright.tools.codegen.lower import Lowering, lower
from kernelwright.tools.evaluate.verify.truth import Argument
from kernelwright.tools.types import DType, Graph

# What the library may use beside a product, as PyTorch gives it on Hopper.
WORKSPACE_BYTES = 32 << 20
MOST_ALGORITHMS = 100
# Each algorithm is timed once; so many of the fastest several times more.
_AGAIN, _SAMPLES = 12, 7
# As the library's C header and its runtime's number them.
_REAL_TYPES = {DType.FLOAT16: 2, DType.BFLOAT16: 14, DType.FLOAT8_E4M3FN: 28}


class _Sums(NamedTuple):
    """What sums are kept in, as the library numbers it, and the type of what scales them."""

    compute: int
    scale: int
    kind: type[np.generic]


_SUMS = {DType.FLOAT32: _Sums(68, 0, np.float32), DType.FLOAT16: _Sums(64, 2, np.float16)}
_ALIKE = 0.02  # of the largest result: two roundings of the same sums are closer by far

Names = Sequence[str]
Algorithm = np.ndarray[Any, np.dtype[np.void]]
Number = np.ndarray[Any, np.dtype[np.generic]]
Multiply = Callable[[Sequence[Argument]], torch.Tensor]
MedianMs = Callable[[Callable[[Sequence[Argument]], object], int], float]


class LibraryLacksError(Exception):
    """Why cuBLASLt cannot be asked for this product here, in a sentence."""


def bindings() -> ModuleType:
    """nvmath-python's cuBLASLt.

    Raises:
        LibraryLacksError: it is not installed, or finds no cuBLASLt.
    """
    try:
        found = import_module("nvmath.bindings.cublasLt")
        found.get_version()
    except Exception as error:  # what a missing library raises is the binding's own choice
        words = " ".join(str(error).split())[:200]
        raise LibraryLacksError(
            f"nvmath-python's cuBLASLt cannot be used here ({type(error).__name__}: {words}); "
            'install the extra "gemm" to compare with it'
        ) from None
    return found


@cache
def _handle() -> int:
    """One for the process."""
    return int(bindings().create())


class _Factor:
    """A factor as the library's column-major view of it: sizes, distances, and its input."""

    def __init__(
        self, operand: Operand, contraction: Contraction, axes: tuple[Axis, ...], names: Names
    ) -> None:
        access = operand.access
        if access is None or len(axes) != 1 or len(contraction.depth) != 1:
            raise LibraryLacksError("cuBLASLt takes two matrices as they lie, and no others")
        if len(contraction.batch) > 1:
            raise LibraryLacksError("cuBLASLt takes one axis of batches")
        across, along = access.step(axes[0].name), access.step(contraction.depth[0].name)
        if 1 not in (across, along) or min(across, along) < 1:
            raise LibraryLacksError("cuBLASLt takes matrices that are contiguous along one side")
        self.number = names.index(access.buffer)
        self.offset = access.offset
        self.is_across = across == 1
        self.leading = along if self.is_across else across
        self.batch_step = access.step(contraction.batch[0].name) if contraction.batch else 0


class Product:
    """One product as the library is told it, with its descriptors and workspace on the device.

    The library's matrices lie by columns and ours by rows, so it multiplies the other way round:
    the transposed result is the right factor transposed times the left one transposed.

    Args:
        graph: Of a task that is one product.
        device: Where it runs.
        sums: What sums are kept in.

    Raises:
        LibraryLacksError: The binding is missing, or the graph is anything else.
    """

    def __init__(self, graph: Graph, device: str, sums: DType = DType.FLOAT32) -> None:
        self._lt, self._device = bindings(), device
        found = the_product(graph)
        self._type, made = found.precision, graph.node(graph.outputs[0]).out[0]
        self._shape, self._dtype = made.shape, getattr(torch, made.dtype.value)
        left = self._left = _Factor(found.left, found, found.rows, graph.inputs)
        right = self._right = _Factor(found.right, found, found.columns, graph.inputs)
        self._handle = _handle()
        kept = _SUMS[sums]
        self._desc = self._lt.matmul_desc_create(kept.compute, kept.scale)
        self._workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device)
        self._describe("TRANSA", int(not right.is_across), np.int32)
        self._describe("TRANSB", int(left.is_across), np.int32)
        after = fused(found)
        self._given = [(name, graph.inputs.index(buffer)) for name, buffer in after.given]
        self._describe("EPILOGUE", int(self._lt.Epilogue[after.name]), np.uint32)
        for name, _ in self._given:  # some address, so that the heuristic knows its alignment
            self._describe(name, self._workspace.data_ptr(), np.int64)
        m, n, k, batches = found.m, found.n, found.k, found.batches
        self._layouts = (
            self._layout(
                *((n, k) if right.is_across else (k, n)), right.leading, batches, right.batch_step
            ),
            self._layout(
                *((m, k) if left.is_across else (k, m)), left.leading, batches, left.batch_step
            ),
            self._layout(n, m, n, batches, m * n, made.dtype),
        )
        self._alpha, self._beta = (np.array([value], kept.kind) for value in (1.0, 0.0))

    def algorithms(self, most: int) -> list[Algorithm]:
        """What the heuristic names for it, the best by its own model first.

        Raises:
            LibraryLacksError: It names none.
        """
        lt = self._lt
        preference, count = lt.matmul_preference_create(), np.zeros(1, np.int32)
        self._set(
            lt.matmul_preference_set_attribute,
            preference,
            lt.MatmulPreferenceAttribute.MAX_WORKSPACE_BYTES,
            np.array([WORKSPACE_BYTES], np.uint64),
        )
        found = lt.MatmulHeuristicResult(most)
        right, left, result = self._layouts
        lt.matmul_algo_get_heuristic(
            self._handle, self._desc, right, left, result, result, preference, most,
            found.ptr, count.ctypes.data,
        )  # fmt: skip
        lt.matmul_preference_destroy(preference)
        if not count[0]:
            raise LibraryLacksError("cuBLASLt names no algorithm for this product")
        self._found = found[: int(count[0])]  # the algorithms lie in its memory
        self._named = [item["algo"] for item in self._found]
        return self._named

    def call(self, algorithm: Algorithm) -> Multiply:
        """The product by that algorithm, as something that can be timed."""
        right, left, result_layout = self._layouts
        lt, at, chosen = self._lt, (self._left, self._right), algorithm.ctypes.data
        given = self._given

        def multiply(arguments: Sequence[Argument]) -> torch.Tensor:
            one, other = arguments[at[0].number], arguments[at[1].number]
            assert isinstance(one, torch.Tensor)
            assert isinstance(other, torch.Tensor)
            made = torch.empty(self._shape, dtype=self._dtype, device=one.device)
            size = one.element_size()
            for name, number in given:
                added = arguments[number]
                assert isinstance(added, torch.Tensor)
                self._describe(name, added.data_ptr(), np.int64)
            lt.matmul(
                self._handle, self._desc, self._alpha.ctypes.data,
                other.data_ptr() + at[1].offset * size, right,
                one.data_ptr() + at[0].offset * size, left,
                self._beta.ctypes.data, made.data_ptr(), result_layout, made.data_ptr(),
                result_layout, chosen, self._workspace.data_ptr(), WORKSPACE_BYTES, stream(),
            )  # fmt: skip
            return made

        return multiply

    def _describe(self, name: str, value: int, kind: type[np.generic]) -> None:
        attribute = getattr(self._lt.MatmulDescAttribute, name)
        self._set(
            self._lt.matmul_desc_set_attribute, self._desc, attribute, np.array([value], kind)
        )

    def _layout(
        self,
        rows: int,
        columns: int,
        leading: int,
        batches: int,
        step: int,
        dtype: DType | None = None,
    ) -> int:
        lt, kind = self._lt, _REAL_TYPES[dtype or self._type]
        layout: int = lt.matrix_layout_create(kind, rows, columns, leading)
        attributes, put = lt.MatrixLayoutAttribute, lt.matrix_layout_set_attribute
        if batches > 1:
            self._set(put, layout, attributes.BATCH_COUNT, np.array([batches], np.int32))
            self._set(put, layout, attributes.STRIDED_BATCH_OFFSET, np.array([step], np.int64))
        return layout

    @staticmethod
    def _set(put: Callable[..., object], of: int, attribute: int, value: Number) -> None:
        put(of, int(attribute), value.ctypes.data, value.nbytes)


def stream() -> int:
    """The stream that PyTorch launches on now, as the library takes it."""
    return int(torch.cuda.current_stream().cuda_stream)


def the_product(graph: Graph) -> Contraction:
    """The one product of 16-bit or 8-bit factors that a graph is.

    Raises:
        LibraryLacksError: It is anything else.
    """
    loops = lower(graph, lowering=Lowering(products=True)).loops
    found = contraction_of(loops[0]) if len(loops) == 1 else None
    if found is None or len(found.stores) != 1 or found.precision not in _REAL_TYPES:
        raise LibraryLacksError("cuBLASLt is asked for single products in fp16, bf16 and fp8")
    if found.left.dtype is not found.precision or found.right.dtype is not found.precision:
        raise LibraryLacksError("cuBLASLt is given both factors in the type they are multiplied in")
    if not _lies_by_rows(found):
        raise LibraryLacksError("cuBLASLt is asked for results that lie row after row")
    return found


class Fused(NamedTuple):
    """What the library does to sums before it stores them.

    `name` is its name for that, `given` its attributes that are addresses, each with the input.
    """

    name: str
    given: tuple[tuple[str, str], ...] = ()


# Statements of activations, as they are lowered; whether results are the module's own is seen when
# the library has run.
_ACTIVATIONS: dict[tuple[str, ...], str] = {
    (): "",
    ("relu",): "RELU",
    ("mul", "square", "mul", "fma", "mul", "tanh", "add", "mul"): "GELU",
}


def fused(found: Contraction) -> Fused:
    """What follows a product, in the library's words.

    Raises:
        LibraryLacksError: The library has no such thing.
    """
    ops = tuple(stmt.op for stmt in found.epilogue if stmt.op not in ("load", "const", "cast"))
    loads = [stmt.access for stmt in found.epilogue if stmt.access is not None]
    if found.precision is DType.FLOAT8_E4M3FN:
        return _scaled(ops, [one for one in loads if not one.strides])
    bias = loads[0] if len(loads) == 1 and ops[:1] == ("add",) else None
    steps = [(one.by, one.step) for one in bias.strides] if bias else []
    is_bias = steps == [(found.columns[0].name, 1)] and bias is not None and not bias.offset
    activation = _ACTIVATIONS.get(ops[1:] if is_bias else ops)
    if activation is None or (loads and not is_bias):
        raise LibraryLacksError("cuBLASLt has nothing that does what follows this product")
    names = [name for name in (activation, "BIAS" if is_bias else "") if name]
    given = (("BIAS_POINTER", bias.buffer),) if is_bias and bias else ()
    return Fused("_".join(names) or "DEFAULT", given)


def _scaled(ops: Sequence[str], scales: Sequence[Access]) -> Fused:
    """Sums times two numbers, of which either may be called the first factor's."""
    if (*ops,) != ("mul", "mul") or len(scales) != 2:
        raise LibraryLacksError("cuBLASLt takes a scale for each factor of eight bits, and no more")
    names = ("A_SCALE_POINTER", "B_SCALE_POINTER")
    return Fused("DEFAULT", tuple(zip(names, (one.buffer for one in scales), strict=True)))


def _lies_by_rows(found: Contraction) -> bool:
    """Whether results are stored row after row, batch after batch."""
    access = found.stores[0].access
    axes = (*found.batch, *found.rows, *found.columns)
    steps, step = {}, 1
    for axis in reversed(axes):
        steps[axis.name], step = step, step * axis.size
    return access.offset == 0 and all(access.step(name) == each for name, each in steps.items())


def first_choice(product: Product) -> Multiply:
    """What the heuristic would run."""
    return product.call(product.algorithms(1)[0])


def fastest(product: Product, median_ms: MedianMs) -> Multiply:
    """The fastest here of all that the heuristic names, at most a hundred.

    Args:
        product: What is multiplied.
        median_ms: Times a call so many times by the headline's clock.
    """
    calls = [product.call(one) for one in product.algorithms(MOST_ALGORITHMS)]
    once = sorted(calls, key=lambda call: _ms(call, median_ms, 1))
    return min(once[:_AGAIN], key=lambda call: _ms(call, median_ms, _SAMPLES))


def _ms(call: Multiply, median_ms: MedianMs, samples: int) -> float:
    try:
        return median_ms(call, samples)
    except Exception:  # one that the heuristic names may be refused when it is run
        return float("inf")


def is_alike(found: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether two results are roundings of the same product."""
    gap = (found.float() - expected.float()).abs().max()
    return bool(gap <= _ALIKE * expected.abs().max().float())
