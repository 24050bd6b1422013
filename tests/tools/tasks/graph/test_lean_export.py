"""A lean export gives the graph that torch's own gives, and graph modules work all the same."""

import pytest
import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.fx import graph_module

from kernelwright.tools.tasks.graph.aten_graph import trace_graph
from kernelwright.tools.tasks.graph.decompositions import decompositions
from kernelwright.tools.tasks.graph.lean_export import only_graphs


class Mixed(nn.Module):
    """A weight, a buffer that changes, a constant and results of several kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.norm = nn.Linear(4, 6), nn.BatchNorm1d(6)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.norm(self.up(x)) + torch.tensor([1.0, 2, 3, 4, 5, 6])
        return torch.softmax(y, -1), y[:, 2:].mean()


def exported() -> tuple[str, list[tuple[object, ...]]]:
    program = torch.export.export(Mixed(), (torch.randn(3, 4),), strict=False)
    program = program.run_decompositions(decompositions())
    made = [node.meta.get("val") for node in program.graph.nodes]
    specs = [(v.shape, v.dtype, v.stride()) for v in made if isinstance(v, torch.Tensor)]
    return f"{program.graph} {program.graph_signature}", specs


def test_the_graph_is_that_of_torch() -> None:
    theirs = exported()
    with only_graphs():
        assert exported() == theirs


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The Python text of every graph module that torch compiles."""
    texts: list[str] = []
    asked = graph_module._exec_with_source

    def noted(src: str, *rest: object, **named: object) -> None:
        texts.append(src)
        asked(src, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(graph_module, "_exec_with_source", noted)
    return texts


def test_a_trace_compiles_one_graph_and_notes_no_places_in_files(compiled: list[str]) -> None:
    traced = trace_graph(Mixed(), (torch.randn(3, 4),), None)
    # The names of a program's inputs are looked up in the signature of its forward.
    assert len(compiled) == 1
    if hasattr(fx.config, "do_not_emit_stack_traces"):  # which torch 2.11 lacks
        assert not any(node.meta.get("stack_trace") for node in traced.graph.nodes)


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_a_graph_module_is_compiled_when_it_is_run_or_printed(compiled: list[str]) -> None:
    with only_graphs():
        run, shown = fx.symbolic_trace(doubled), fx.symbolic_trace(doubled)
        assert compiled == []
        assert run(torch.ones(1)).item() == 2
        assert "x * 2" in shown.code
        assert len(compiled) == 2
    assert run(torch.ones(1)).item() == 2
    assert len(compiled) == 2


def test_what_was_compiled_follows_a_changed_graph() -> None:
    with only_graphs():
        module = fx.symbolic_trace(doubled)
        assert module(torch.ones(1)).item() == 2
        (node,) = (node for node in module.graph.nodes if node.op == "call_function")
        node.args = (node.args[0], 3)
        module.recompile()
    assert module(torch.ones(1)).item() == 3
    assert "x * 3" in module.code


def test_a_program_can_be_run_that_was_exported_within() -> None:
    x = torch.randn(3, 4)
    model = Mixed().eval()
    with only_graphs():
        module = torch.export.export(model, (x,), strict=False).module()
    for mine, theirs in zip(module(x), model(x), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_torch_is_left_as_it_was() -> None:
    def torchs() -> tuple[object, ...]:
        notes = getattr(fx.config, "do_not_emit_stack_traces", None)
        return fx.GraphModule.recompile, ExportedProgram.module, notes

    before = torchs()
    with only_graphs(), only_graphs():
        assert torchs() != before
    with pytest.raises(ValueError, match="within"), only_graphs():
        raise ValueError("within")
    assert torchs() == before
