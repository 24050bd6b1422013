"""A shape as a task: the text of a module that multiplies, and the task that it is read as.

What kernels cannot do yet is refused here, each with a sentence.
"""

from collections.abc import Iterable
from typing import Literal

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.rules import FP16_SUMS
from kernelwright.tools.gemm.shapes import GemmShape
from kernelwright.tools.types import DType, Refusal, Task, TracePolicy, Value

Precision = Literal["fp16", "bf16", "fp8"]
Epilogue = Literal["bias", "relu", "gelu", "gelu_tanh"]
# What an epilogue does to `y`; a bias is part of the product's own call.
ACTIVATIONS: dict[str, str] = {
    "relu": "torch.relu(y)",
    "gelu": "torch.nn.functional.gelu(y)",
    "gelu_tanh": 'torch.nn.functional.gelu(y, approximate="tanh")',
}
_HOPPER = "sm_90a"
DTYPES: dict[str, DType] = {
    "fp16": DType.FLOAT16,
    "bf16": DType.BFLOAT16,
    "fp8": DType.FLOAT8_E4M3FN,
}


class Arithmetic(Value):
    """What is multiplied, what sums are kept in, and what is done to them before they are stored.

    Sums in fp16 are a class of their own: kernels and the library may keep them so, and their
    error is held against that of the library's. Numbers of eight bits are e4m3, each factor has
    a scale, and results are in bf16. The epilogue is a bias of one value a column, an
    activation, or one after the other.
    """

    dtype: Precision = "fp16"
    accumulate: Literal["fp32", "fp16"] = "fp32"
    epilogue: tuple[Epilogue, ...] = ()

    @property
    def element(self) -> DType:
        """The factors' type, and of more than eight bits the result's."""
        return DTYPES[self.dtype]

    @property
    def sums(self) -> DType:
        """The type that sums may be kept in."""
        return DType.FLOAT16 if self.accumulate == "fp16" else DType.FLOAT32

    @property
    def has_bias(self) -> bool:
        """Whether the product is given a third tensor."""
        return "bias" in self.epilogue

    @property
    def name(self) -> str:
        """Short, and a part of names of files: `fp16`, `bf16_bias_relu`, `fp16_sums16`."""
        sums = ("sums16",) if self.accumulate == "fp16" else ()
        return "_".join((self.dtype, *sums, *self.epilogue))

    @property
    def words(self) -> str:
        """For a person."""
        after = f", then {' and '.join(self.epilogue)}" if self.epilogue else ""
        return f"{self.dtype} summed in {self.accumulate}{after}"


def arithmetic_of(dtype: str, accumulate: str, epilogue: str) -> Arithmetic:
    """What was asked for, where it can be had.

    Raises:
        ValueError: One sentence on what cannot.
    """
    if dtype not in DTYPES:
        raise ValueError(f"--dtype is {', '.join(DTYPES)}, not {dtype!r}")
    if dtype == "fp8" and epilogue:
        raise ValueError("--epilogue is of fp16 and bf16: scales are all that follows one of fp8")
    if accumulate not in ("fp32", "fp16"):
        raise ValueError(f"--accumulate is fp32 or fp16, not {accumulate!r}")
    if accumulate == "fp16" and dtype != "fp16":
        raise ValueError(f"--accumulate fp16 is of products of fp16: {dtype} is summed in fp32")
    return Arithmetic.model_validate(
        {"dtype": dtype, "accumulate": accumulate, "epilogue": _epilogue(epilogue)}
    )


def check_torch(arithmetic: Arithmetic) -> None:
    """Refuse what this torch's library cannot be asked for.

    Raises:
        ValueError: One sentence on what it lacks.
    """
    import torch

    if arithmetic.dtype == "fp8" and not hasattr(torch, "_scaled_mm"):
        raise ValueError(
            f"--dtype fp8 is held against torch._scaled_mm: {torch.__version__} has none"
        )
    known = hasattr(torch.backends.cuda.matmul, "allow_fp16_accumulation")
    if arithmetic.accumulate == "fp16" and not known:
        raise ValueError(
            "--accumulate fp16 needs torch 2.7 or later, whose cuBLAS can be asked for such sums: "
            f"this is {torch.__version__}"
        )


def check_device(arithmetic: Arithmetic, hardware: Hardware) -> None:
    """Refuse what no kernel is made for on a device.

    Raises:
        ValueError: One sentence on what it lacks.
    """
    asked = "--accumulate fp16" if arithmetic.accumulate == "fp16" else ""
    asked = "--dtype fp8" if arithmetic.dtype == "fp8" else asked
    if asked and hardware.architecture != _HOPPER:
        raise ValueError(
            f"{asked} has kernels for Hopper ({_HOPPER}) alone, and {hardware.name} is "
            f"{hardware.architecture}"
        )


def _epilogue(words: str) -> tuple[str, ...]:
    named = tuple(words.split(",")) if words else ()
    activations = named[1:] if named[:1] == ("bias",) else named
    if len(activations) > 1 or any(name not in ACTIVATIONS for name in activations):
        listed = ", ".join(ACTIVATIONS)
        raise ValueError(
            f"--epilogue is bias, one of {listed}, or both as in bias,relu, and not {words!r}; "
            "`kernelwright optimize` fuses whatever else follows a product"
        )
    return named


_TEXT = '''"""The product of {words}."""

import torch


class Model(torch.nn.Module):
    """Multiplies."""
{class_lines}
    def forward(self, {names}):
        """{result}"""
{product}
        return {after}


def get_inputs():
    shapes = [{shapes}]
    return [torch.randn(shape, dtype=torch.{dtype}) for shape in shapes]
'''


# The library is let to keep sums in fp16 for one call: the setting is the process's.
_CLASS_LINES = f"\n    {FP16_SUMS} = True\n"
_IN_FP16 = f"""        library = torch.backends.cuda.matmul
        usual = library.allow_fp16_accumulation
        library.allow_fp16_accumulation = self.{FP16_SUMS}
        try:
            y = {{call}}
        finally:
            library.allow_fp16_accumulation = usual"""


_SCALED_TEXT = '''"""The product of {words}."""

import torch


class Model(torch.nn.Module):
    """Multiplies numbers of eight bits; each factor has a scale."""

    fast_sums = False

    def forward(self, a, b, scale_a, scale_b):
        """Return M x N of rows of both; of wider numbers, as in the truth, what they stand for."""
        if a.dtype is not torch.float8_e4m3fn:
            return (a * scale_a) @ (b * scale_b).mT
        return torch._scaled_mm(
            a, b.mT, scale_a, scale_b, out_dtype=torch.bfloat16, use_fast_accum=self.fast_sums
        )


def get_inputs():
    factors = [torch.randn(shape) for shape in [{shapes}]]
    scales = [factor.abs().max() / 448 for factor in factors]
    pairs = zip(factors, scales)
    return [*((factor / scale).to(torch.float8_e4m3fn) for factor, scale in pairs), *scales]
'''


def text_of(shape: GemmShape, arithmetic: Arithmetic) -> str:
    """The module's file."""
    if arithmetic.dtype == "fp8":
        listed = ", ".join(map(repr, factor_shapes(shape)))
        return _SCALED_TEXT.format(words=_words(shape, arithmetic), shapes=listed)
    shapes = (*factor_shapes(shape), *(((shape.n,),) if arithmetic.has_bias else ()))
    turned = ["a" if shape.layout[0] == "n" else "a.mT", "b" if shape.layout[1] == "n" else "b.mT"]
    named = "bmm" if shape.batch > 1 else "matmul"
    call = f"torch.{named}({', '.join(turned)})"
    if arithmetic.has_bias:
        call = f"torch.addmm(bias, {', '.join(turned)})"
    return _TEXT.format(
        words=_words(shape, arithmetic),
        result=f"Return M x N of factors that lie as {shape.layout!r} says.",
        names=", ".join(("a", "b", "bias")[: len(shapes)]),
        class_lines=_CLASS_LINES if arithmetic.accumulate == "fp16" else "",
        product=(_IN_FP16 if arithmetic.accumulate == "fp16" else "        y = {call}").format(
            call=call
        ),
        after=ACTIVATIONS[arithmetic.epilogue[-1]] if _is_activated(arithmetic) else "y",
        shapes=", ".join(map(repr, shapes)),
        dtype=arithmetic.element.value,
    )


def _words(shape: GemmShape, arithmetic: Arithmetic) -> str:
    return f"{shape.m} x {shape.k} and {shape.k} x {shape.n} in {arithmetic.words}"


def _is_activated(arithmetic: Arithmetic) -> bool:
    return any(name in ACTIVATIONS for name in arithmetic.epilogue)


def factor_shapes(shape: GemmShape) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The factors' shapes as they lie."""
    batch = (shape.batch,) if shape.batch > 1 else ()
    left = _as_it_lies(shape.m, shape.k, shape.layout[0])
    right = _as_it_lies(shape.k, shape.n, shape.layout[1])
    return (*batch, *left), (*batch, *right)


def _as_it_lies(rows: int, columns: int, letter: str) -> tuple[int, int]:
    return (rows, columns) if letter == "n" else (columns, rows)


def task_name(shape: GemmShape, arithmetic: Arithmetic) -> str:
    """What a shape's task is called."""
    return f"mm_{shape.name}_{arithmetic.name}"


# Of which sides of fp8 are multiples, as the library has it, and from how many rows on it is tiled.
_SIDE, _LEAST_ROWS = 16, 4


def check_shapes(shapes: Iterable[GemmShape], arithmetic: Arithmetic) -> None:
    """Refuse batches with an epilogue, and of fp8 what tensor cores do not take.

    Raises:
        ValueError: There is one.
    """
    shapes = tuple(shapes)
    if arithmetic.dtype == "fp8":
        for one in shapes:
            odd = one.n % _SIDE or one.k % _SIDE or one.m < _LEAST_ROWS
            if odd or one.batch > 1 or one.layout != "nt":
                raise ValueError(
                    f"{one.name}: products of fp8 are single, of layout nt, with at least "
                    f"{_LEAST_ROWS} rows, N and K multiples of {_SIDE}"
                )
    if arithmetic.epilogue and (batch := next((one for one in shapes if one.batch > 1), None)):
        raise ValueError(f"{batch.name}: an epilogue is of single products, and not of batches")


def task_of(shape: GemmShape, arithmetic: Arithmetic) -> Task:
    """The task; its text is our own, so it is read in this process.

    Raises:
        ValueError: There are no such products; or it cannot be read, our own fault.
    """
    check_shapes((shape,), arithmetic)
    from kernelwright.tools.tasks import import_exporter, trace

    import_exporter()
    name = task_name(shape, arithmetic)
    policy = TracePolicy(eights=arithmetic.dtype == "fp8")
    found = trace(text_of(shape, arithmetic), f"{name}.py", policy)
    if isinstance(found, Refusal):
        raise ValueError(f"{name}: {found.sentence}")
    graph = found.graph.model_copy(update={"sums": arithmetic.sums})
    return found.model_copy(update={"graph": graph})
