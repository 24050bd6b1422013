"""A shape as a task: the text of a module that multiplies, and the task that it is read as.

What kernels cannot do yet is refused here, each with a sentence.
"""

from typing import Literal

from kernelwright.tools.gemm.shapes import GemmShape
from kernelwright.tools.types import DType, Refusal, Task, TracePolicy, Value

Precision = Literal["fp16", "bf16"]
DTYPES: dict[str, DType] = {"fp16": DType.FLOAT16, "bf16": DType.BFLOAT16}


class Arithmetic(Value):
    """What is multiplied, and what sums are kept in."""

    dtype: Precision = "fp16"
    accumulate: Literal["fp32"] = "fp32"

    @property
    def element(self) -> DType:
        """The factors' type, and the result's."""
        return DTYPES[self.dtype]


def arithmetic_of(dtype: str, accumulate: str, epilogue: str) -> Arithmetic:
    """What was asked for, where it can be had.

    Raises:
        ValueError: One sentence on what cannot.
    """
    if dtype == "fp8":
        raise ValueError("fp8 is not offered: there is no family of kernels for 8-bit factors yet")
    if dtype not in DTYPES:
        raise ValueError(f"--dtype is fp16 or bf16, not {dtype!r}")
    if accumulate == "fp16":
        raise ValueError(
            "--accumulate fp16 is not offered: every kernel here sums in fp32, and one that sums "
            "in fp16 would be a class of its own"
        )
    if accumulate != "fp32":
        raise ValueError(f"--accumulate is fp32, not {accumulate!r}")
    if epilogue:
        raise ValueError(
            f"--epilogue {epilogue} is not offered: a grid is of plain products; "
            "`kernelwright optimize` fuses what follows one"
        )
    return Arithmetic.model_validate({"dtype": dtype})


_TEXT = '''"""The product of {words}, summed in float32."""

import torch


class Model(torch.nn.Module):
    """Multiplies."""

    def forward(self, a, b):
        """{result}"""
        return {call}


def get_inputs():
    return [
        torch.randn({left}, dtype=torch.{dtype}),
        torch.randn({right}, dtype=torch.{dtype}),
    ]
'''


def text_of(shape: GemmShape, arithmetic: Arithmetic) -> str:
    """The module's file."""
    left, right = factor_shapes(shape)
    turned = ["a" if shape.layout[0] == "n" else "a.mT", "b" if shape.layout[1] == "n" else "b.mT"]
    return _TEXT.format(
        words=f"{shape.m} x {shape.k} and {shape.k} x {shape.n} in {arithmetic.dtype}",
        result=f"Return M x N of factors that lie as {shape.layout!r} says.",
        call=f"torch.{'bmm' if shape.batch > 1 else 'matmul'}({', '.join(turned)})",
        left=left,
        right=right,
        dtype=arithmetic.element.value,
    )


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
    return f"mm_{shape.name}_{arithmetic.dtype}"


def task_of(shape: GemmShape, arithmetic: Arithmetic) -> Task:
    """The task; its text is our own, so it is read in this process.

    Raises:
        ValueError: It cannot be read, which is a fault of ours.
    """
    from kernelwright.tools.tasks import import_exporter, trace

    import_exporter()
    name = task_name(shape, arithmetic)
    found = trace(text_of(shape, arithmetic), f"{name}.py", TracePolicy())
    if isinstance(found, Refusal):
        raise ValueError(f"{name}: {found.sentence}")
    return found
