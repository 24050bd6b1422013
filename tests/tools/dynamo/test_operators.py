"""A region's operator, of as many tensors as there are."""

from types import ModuleType

import pytest
import torch
from torch import fx

from kernelwright.tools.dynamo.operators import Loaded, _registered
from kernelwright.tools.types import TensorSpec


@pytest.mark.parametrize("count", [3, 150])  # a schema of torch's has at most 64 arguments
def test_a_graph_calls_an_operator_of_many_tensors(count: int):
    module = ModuleType(f"kernelwright_spliced_sum{count}")
    module._operator = lambda *tensors: torch.stack(tensors).sum(0)
    module._fake = lambda *tensors: torch.empty_like(tensors[0])
    spec = TensorSpec(shape=(2, 3), dtype="float32")
    operator = _registered(module, [spec] * count, (spec,), "cpu")
    kernel = Loaded(operator, (), in_list=count > 48)
    graph = fx.Graph()
    given = [graph.placeholder(f"x{number}") for number in range(count)]
    graph.output(graph.call_function(kernel.operator, kernel.arguments(given)))
    tensors = [torch.full((3, 2), float(number)).t() for number in range(count)]
    compiled = torch.compile(fx.GraphModule(torch.nn.Module(), graph), backend="aot_eager")
    torch.testing.assert_close(compiled(*tensors), torch.stack(tensors).sum(0))
