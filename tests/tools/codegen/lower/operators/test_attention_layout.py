"""What attention makes lies with a row's heads together, as the product behind it reads it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from kernelwright.tools.codegen.ir import PlanLine
from kernelwright.tools.codegen.lower import Lowering, lower

Check = Callable[..., Any]
HEADS, ROWS, WIDTH = 4, 10, 64


class Block(nn.Module):
    """Attention over heads, and what a module does with its result."""

    def __init__(self, then: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype) -> None:
        super().__init__()
        self.made, self.then = nn.Linear(HEADS * WIDTH, HEADS * WIDTH, dtype=dtype), then

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q = x.view(2, ROWS, HEADS, WIDTH).transpose(1, 2)
        y = self.then(F.scaled_dot_product_attention(q, q * 0.5, q))
        return self.made(y.transpose(1, 2).reshape(2, ROWS, -1))


@pytest.mark.parametrize("products", [False, True])
@pytest.mark.parametrize("then", [lambda y: y, torch.tanh, lambda y: y.contiguous()])
def test_a_result_is_right_and_read_as_it_lies(
    then: Callable[[torch.Tensor], torch.Tensor], products: bool, check: Check, interpret: Any
) -> None:
    module = Block(then, torch.float32)
    x = torch.randn(2, ROWS, HEADS * WIDTH)
    checked = check(module, x)
    program = lower(checked.graph, lowering=Lowering(products=products, calls_attention=True))
    weights = {key: value.detach() for key, value in module.named_parameters()}
    (mine,), _ = interpret(program, [x], weights)
    torch.testing.assert_close(mine, checked.expected[0], rtol=2e-4, atol=5e-5)
    (call,) = (s for s in program.steps if isinstance(s, PlanLine) and "attention(" in s.text)
    assert program.buffer(call.makes[0]).shape == (2, HEADS, ROWS, WIDTH)
    turned = program.buffer(f"{call.makes[0]}_rows")
    assert turned.shape == (2, ROWS, HEADS, WIDTH)
    loops = [loop for loop in program.loops
             if turned.name in {s.access.buffer for s in loop.body if s.access}]  # fmt: skip
    assert not any(call.makes[0] in {s.access.buffer for s in loop.body if s.access}
                   for loop in program.loops)  # fmt: skip
    if products and then is not torch.tanh:
        (loop,) = loops
        assert loop.inner, "the product reads it, and nothing copies it before"


def test_attention_returned_as_it_is_has_the_shape_of_its_result(
    check: Check, interpret: Any
) -> None:
    class Alone(nn.Module):
        def forward(self, q: torch.Tensor) -> torch.Tensor:
            return F.scaled_dot_product_attention(torch.tanh(q), q, q)

    q = torch.randn(2, HEADS, ROWS, WIDTH)
    checked = check(Alone(), q)
    (mine,), _ = interpret(lower(checked.graph), [q], {})
    torch.testing.assert_close(mine, checked.expected[0], rtol=2e-4, atol=5e-5)
