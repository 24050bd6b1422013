"""What tracing found: an ATen graph as plain values, without torch, and small helpers to read it.

Shapes are concrete integers. The graph is in topological order. Nothing here imports torch,
so the playbook can reason about a module on a machine (and in a test) that never loaded it.
The helpers tell names of operators, and which nodes feed which, for everything that walks a graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from math import prod
from typing import Annotated, Literal

from pydantic import Field, field_validator

from kernelwright.tools.types.value import Value


class DType(StrEnum):
    """Element types, named as in `torch.<name>`.

    Complex ones stand between operators that are PyTorch's alone: no kernel of ours reads them.
    Numbers of eight bits are factors of scaled products, which read nothing but whole boxes.
    """

    FLOAT64 = "float64"
    FLOAT32 = "float32"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT8_E4M3FN = "float8_e4m3fn"
    INT64 = "int64"
    INT32 = "int32"
    INT16 = "int16"
    INT8 = "int8"
    UINT8 = "uint8"
    BOOL = "bool"
    COMPLEX64 = "complex64"
    COMPLEX128 = "complex128"

    @property
    def itemsize_bytes(self) -> int:
        """Bytes of one element."""
        return _ITEMSIZE_BYTES[self]

    @property
    def is_floating(self) -> bool:
        """Whether values of this type carry a fraction."""
        return self.value.startswith(("float", "bfloat"))

    @property
    def is_complex(self) -> bool:
        """Whether values of this type have two parts."""
        return self.value.startswith("complex")


_ITEMSIZE_BYTES = {
    DType.FLOAT64: 8,
    DType.FLOAT32: 4,
    DType.FLOAT16: 2,
    DType.BFLOAT16: 2,
    DType.FLOAT8_E4M3FN: 1,
    DType.INT64: 8,
    DType.INT32: 4,
    DType.INT16: 2,
    DType.INT8: 1,
    DType.UINT8: 1,
    DType.BOOL: 1,
    DType.COMPLEX64: 8,
    DType.COMPLEX128: 16,
}
# What kernels of ours read and write, element by element.
REAL = tuple(dtype for dtype in DType if not dtype.is_complex and dtype is not DType.FLOAT8_E4M3FN)


class TensorSpec(Value):
    """Shape, type and layout of a tensor; `strides` in elements, None when contiguous."""

    shape: tuple[int, ...]
    dtype: DType
    strides: tuple[int, ...] | None = None

    @property
    def numel(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Bytes of the elements (not of gaps between strides)."""
        return self.numel * self.dtype.itemsize_bytes


class Ref(Value):
    """The result of an earlier node."""

    kind: Literal["ref"] = "ref"
    node: str


class Scalar(Value):
    """A Python number, flag, word or None."""

    kind: Literal["scalar"] = "scalar"
    value: bool | int | float | str | None

    @field_validator("value")
    @classmethod
    def _infinities_return(cls, value: bool | int | float | str | None) -> object:
        """JSON writes infinities as words; no ATen argument is one of these words."""
        return float(value) if value in ("Infinity", "-Infinity", "NaN") else value


class DTypeArg(Value):
    """An element type given as an argument (`_to_copy(dtype=...)`)."""

    kind: Literal["dtype"] = "dtype"
    value: DType


class ListArg(Value):
    """A list or tuple of arguments (dimensions, tensors to concatenate, optional indices)."""

    kind: Literal["list"] = "list"
    items: tuple[Arg, ...]


Arg = Annotated[Ref | Scalar | DTypeArg | ListArg, Field(discriminator="kind")]


class Node(Value):
    """One operation and what it makes.

    `op` is the ATen overload without a namespace of torch's (`aten.add.Tensor`), or one of:
    `input` (a forward argument), `weight` (parameter or buffer; `target` is its state-dict
    name), `constant` (a tensor baked into the graph; `target` names it in the task's
    constants), `getitem` (args: Ref, Scalar index) for one result of a node with several.
    """

    name: str
    op: str
    args: tuple[Arg, ...] = ()
    kwargs: tuple[tuple[str, Arg], ...] = ()
    out: tuple[TensorSpec, ...]
    target: str | None = None


class Mutation(Value):
    """A buffer that the forward updates: state-dict `target` takes the value of `node`."""

    target: str
    node: str


class Graph(Value):
    """A traced forward.

    `inputs` are the names of the `input` nodes in the order of the forward's tensor
    arguments; `outputs` the names of the returned nodes. `is_tf32` says whether float32
    convolutions may be computed in TF32 on a GPU, as PyTorch does unless a file rules it out, and
    `sums` in what products of matrices may be summed: float32, or less where somebody asked for it.
    """

    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    output_structure: Literal["tensor", "tuple", "list"] = "tensor"
    mutations: tuple[Mutation, ...] = ()
    is_tf32: bool = True
    sums: DType = DType.FLOAT32

    def node(self, name: str) -> Node:
        """The node of that name; KeyError when there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise KeyError(name)


ListArg.model_rebuild()


def words(text: str) -> frozenset[str]:
    """A set of names written as one readable text."""
    return frozenset(text.split())


# Operators that make a tensor of fresh random numbers, as many whatever values there are. Their
# order is the generator's, so they are kept, and kept in it.
DRAWS = words("normal rand randint randn randperm")
# What else makes a tensor of no other, and so on the CPU unless a device is named.
MAKERS = words(
    "arange bartlett_window blackman_window eye fft_fftfreq fft_rfftfreq full hamming_window "
    "kaiser_window linspace ones scalar_tensor zeros"
)


def draws(op: str) -> bool:
    """Whether an operator makes a tensor of fresh random numbers."""
    return base(op) in DRAWS


def base(op: str) -> str:
    """`aten.add.Tensor` -> `add`; the pseudo-operators stay as they are."""
    return op.split(".")[1] if op.startswith("aten.") else op


def refs(node: Node) -> list[str]:
    """Names of the nodes that feed this one, in order."""
    found: list[str] = []
    pending: list[Arg] = [*node.args, *(arg for _, arg in node.kwargs)]
    while pending:
        arg = pending.pop(0)
        if isinstance(arg, Ref):
            found.append(arg.node)
        elif isinstance(arg, ListArg):
            pending[:0] = arg.items
    return found


def references(arguments: Sequence[Arg]) -> set[str]:
    """Names of the nodes in the arguments, nested lists included."""
    names: set[str] = set()
    for argument in arguments:
        if isinstance(argument, Ref):
            names.add(argument.node)
        elif isinstance(argument, ListArg):
            names |= references(argument.items)
    return names


def reads(node: Node) -> set[str]:
    """Names of the nodes that a node reads."""
    return references(node.args) | references(tuple(value for _, value in node.kwargs))
