"""What torch registers for composite operators is remembered, and taken away after every trace."""

import torch
from torch import nn
from torch._subclasses.fake_impls import op_implementations_dict
from torch.export import exported_program

from kernelwright.tools.tasks.graph import composites
from kernelwright.tools.tasks.graph.aten_graph import trace_graph, trace_outline
from kernelwright.tools.tasks.graph.composites import remembered_composites
from kernelwright.tools.tasks.graph.decompositions import decompositions


class Mixed(nn.Module):
    """Composite operators that stay whole, that are broken down, and a buffer that changes."""

    def __init__(self) -> None:
        super().__init__()
        self.attend, self.norm = nn.MultiheadAttention(8, 2, batch_first=True), nn.BatchNorm1d(5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.gelu(self.norm(self.attend(x, x, x)[0])).square().mean(-1)


def traced(*, remembered: bool) -> str:
    program = torch.export.export(Mixed(), (torch.randn(2, 5, 8),), strict=False)
    if not remembered:
        return str(program.run_decompositions(decompositions()).graph)
    with remembered_composites():
        return str(program.run_decompositions(decompositions()).graph)


def test_a_trace_from_memory_is_that_of_torch_and_leaves_nothing() -> None:
    theirs = traced(remembered=False)
    split = exported_program._split_decomp_table_to_cia_and_python_decomp
    linear = torch.ops.aten.linear.default
    kernels, rules = dict(linear.py_kernels), set(op_implementations_dict)
    for _ in range(2):
        assert traced(remembered=True) == theirs
        assert linear.py_kernels == kernels
        assert set(op_implementations_dict) == rules
    assert exported_program._split_decomp_table_to_cia_and_python_decomp is split


def test_an_operator_that_was_registered_meanwhile_is_found() -> None:
    before = traced(remembered=True)
    library = torch.library.Library("composites_of_tests", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")

    class Custom(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.composites_of_tests.twice(x)

    program = torch.export.export(Custom(), (torch.randn(3),), strict=False)
    theirs = program.run_decompositions(decompositions())
    with remembered_composites():
        ours = program.run_decompositions(decompositions())
    assert str(ours.graph) == str(theirs.graph)
    assert traced(remembered=True) == before


def test_graphs_and_outlines_in_turns_are_both_remembered() -> None:
    inputs = (torch.randn(2, 5, 8),)
    for name in ("mul", "add", "sum", "exp"):  # as full as it may be
        trace_outline(Mixed(), inputs, {name})

    def both() -> tuple[str, str]:
        outline, _ = trace_outline(Mixed(), inputs, {"gelu"})
        return str(trace_graph(Mixed(), inputs, None).graph), str(outline.graph)

    def remembered() -> list[object]:
        return [*composites._found, *composites._registered]

    first, held = both(), remembered()
    assert both() == first
    assert remembered() == held
