"""Runs a graph as it stands, in float64: a rewrite must agree to many more digits than rounding."""

from collections.abc import Callable, Mapping

import pytest
import torch

from kernelwright.tools.tasks.graph.convert import constants_of
from kernelwright.tools.types import Arg, DTypeArg, Graph, ListArg, Ref, Scalar

from ..quick_tracing import graph_of

Values = Mapping[str, torch.Tensor]


def _plain(arg: Arg, values: Mapping[str, object]) -> object:
    if isinstance(arg, Ref):
        return values[arg.node]
    if isinstance(arg, ListArg):
        return [_plain(item, values) for item in arg.items]
    if isinstance(arg, DTypeArg):
        return getattr(torch, arg.value.value)
    assert isinstance(arg, Scalar)
    # Layouts are written as words in a graph.
    return getattr(torch, arg.value) if isinstance(arg.value, str) else arg.value


def _run(graph: Graph, given: Values) -> dict[str, torch.Tensor]:
    values: dict[str, object] = dict(given)
    for node in graph.nodes:
        if node.name in values:
            continue
        args = [_plain(arg, values) for arg in node.args]
        named = {key: _plain(arg, values) for key, arg in node.kwargs}
        if node.op == "getitem":
            source = args[0]
            assert isinstance(source, tuple | list)
            values[node.name] = source[args[1]]
        else:
            _, name, overload = node.op.split(".")
            operator = getattr(getattr(torch.ops.aten, name), overload)
            values[node.name] = operator(*args, **named)
        result = values[node.name]
        if isinstance(result, torch.Tensor):
            assert tuple(result.shape) == node.out[0].shape, f"{node.name} has the shape it says"
            dtype = getattr(torch, node.out[0].dtype.value)
            assert result.dtype is dtype, f"{node.name} has the type it says"
    return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}


@pytest.fixture
def run() -> Callable[[Graph, Values], dict[str, torch.Tensor]]:
    """`run(graph, inputs)` gives every value by its node's name."""
    return _run


class Traced:
    """A module in float64: its graph, the values of its leaves, and what it gives."""

    def __init__(self, module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        module = module.double()
        self.graph = graph_of(module, inputs)
        state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        state |= constants_of(self.graph, "cpu")
        self.given = dict(zip(self.graph.inputs, inputs, strict=True))
        for node in self.graph.nodes:
            if node.target is not None:
                self.given[node.name] = state[node.target].detach().clone()
        with torch.no_grad():
            self.expected: torch.Tensor = module(*inputs)

    def agrees(self, changed: Graph) -> None:
        """Whether a rewritten graph gives what the module gives."""
        (mine,) = (_run(changed, self.given)[name] for name in changed.outputs)
        torch.testing.assert_close(mine, self.expected, rtol=1e-9, atol=1e-10)


class _Function(torch.nn.Module):
    def __init__(self, function: Callable[..., torch.Tensor], part: torch.nn.Module | None) -> None:
        super().__init__()
        self.function, self.part = function, part

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.function(*args) if self.part is None else self.function(self.part, *args)


@pytest.fixture
def traced() -> Callable[..., Traced]:
    """`traced(function, *inputs, part=module)`: the function gets the part first."""

    def make(
        function: Callable[..., torch.Tensor],
        *inputs: torch.Tensor,
        part: torch.nn.Module | None = None,
    ) -> Traced:
        return Traced(_Function(function, part), inputs)

    return make
