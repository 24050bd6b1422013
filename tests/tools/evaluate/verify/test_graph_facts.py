"""What a task's graph tells the judge: memory foreseen, floors, null answers, labels."""

import pytest
import torch

from kernelwright.tools.evaluate.finalists import reads_partly
from kernelwright.tools.evaluate.verify.errors import passing_nulls
from kernelwright.tools.evaluate.verify.memory import peak_double_bytes
from kernelwright.tools.evaluate.verify.precision import candidate_precision
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.types import DType, Graph, InputSpec, Node, Ref, Scalar, Task, TensorSpec

MATRIX = TensorSpec(shape=(4, 6), dtype=DType.FLOAT32)

POSITIONS = TensorSpec(shape=(4,), dtype=DType.INT64)


def graph(*nodes: Node, output: str, inputs: tuple[str, ...] = ("x",)) -> Graph:
    start = tuple(Node(name=name, op="input", out=(MATRIX,)) for name in inputs)
    return Graph(nodes=(*start, *nodes), inputs=inputs, outputs=(output,))


def node(name: str, op: str, *args: object, out: TensorSpec = MATRIX) -> Node:
    listed = tuple(Ref(node=a) if isinstance(a, str) else Scalar(value=a) for a in args)  # type: ignore[arg-type]
    return Node(name=name, op=op, args=listed, out=(out,))


def task(of: Graph) -> Task:
    return Task(
        name="t", path="t.py", source="", source_sha256="0", entry="Model",
        entry_kind="kernelbench", inputs=(InputSpec(name="x", tensor=MATRIX),),
        outputs=of.node(of.outputs[0]).out, graph=of, bytes_moved=192, flops=24,
    )  # fmt: skip


ARGMAX = graph(node("i", "aten.argmax.default", "x", 1, out=POSITIONS), output="i")


def test_memory_is_foreseen_from_what_is_alive_at_once() -> None:
    chain = graph(
        node("a", "aten.exp.default", "x"),
        node("b", "aten.exp.default", "a"),
        node("c", "aten.exp.default", "b"),
        output="c",
    )
    assert peak_double_bytes(chain) == 3 * MATRIX.numel * 8


def test_a_floor_is_no_bound_where_inputs_are_read_in_part() -> None:
    assert reads_partly(graph(node("y", "aten.gather.default", "x"), output="y"))
    assert not reads_partly(graph(node("y", "aten.exp.default", "x"), output="y"))


def test_null_answers_that_pass_are_named() -> None:
    zeros, ramp = torch.zeros(9), torch.arange(9.0)
    assert not passing_nulls([ramp], [ramp.double()], [torch.randn(9)], 4)
    (zero, mean) = passing_nulls([zeros], [zeros.double()], [torch.randn(9)], 4)
    assert "zeros" in zero
    assert "mean" in mean
    (same,) = passing_nulls([ramp], [ramp.double()], [ramp.clone()], 4)
    assert "input 0" in same


@pytest.mark.parametrize(
    ("text", "precision"),
    [
        ("float half_of = x[0] * 0.5f; // half precision? no", "fp32"),
        ("_Float16 h = x[0]; y[0] = h;", "fp16"),
        ("__nv_bfloat16 h = x[0]; y[0] = h;", "bf16"),
        ('asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32");', "tf32"),
    ],
)
def test_a_lower_precision_in_the_source_is_labelled(text: str, precision: str) -> None:
    kernel = f'extern "C" void f(const float* x) {{ {text} }}'
    candidate = new_candidate("cpp", kernel, "def forward(x):\n    return x\n")
    assert candidate_precision(task(ARGMAX), candidate) == precision
