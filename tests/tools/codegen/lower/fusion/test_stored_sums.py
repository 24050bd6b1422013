"""The residual of a stack of layers is stored where each layer would read all those before it."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from kernelwright.tools.codegen.ir import Loop
from kernelwright.tools.codegen.lower import Lowering, lower
from kernelwright.tools.codegen.lower.fusion import schedule
from kernelwright.tools.codegen.lower.fusion.inline import inlined
from kernelwright.tools.codegen.lower.fusion.schedule import Fusion
from kernelwright.tools.codegen.lower.nests.expressions import Expr
from kernelwright.tools.codegen.lower.nests.nest import Nest
from kernelwright.tools.codegen.lower.nests.simplify import Ops

Check = Callable[..., Any]


class Stack(nn.Module):
    """Layers in small: a norm and a product on the way, added to what came in."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(48) for _ in range(layers))
        self.products = nn.ModuleList(nn.Linear(48, 48) for _ in range(layers))
        self.last = nn.LayerNorm(48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for norm, product in zip(self.norms, self.products, strict=True):
            x = x + product(norm(x))
        return self.last(x)


class Attending(nn.Module):
    """Layers of attention, which stays a call, and of a product."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(64) for _ in range(2 * layers))
        self.heads = nn.ModuleList(nn.Linear(64, 192) for _ in range(layers))
        self.products = nn.ModuleList(nn.Linear(64, 64) for _ in range(2 * layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for at, heads in enumerate(self.heads):
            q, k, v = heads(self.norms[2 * at](x)).view(3, 32, 3, 2, 32).permute(2, 0, 3, 1, 4)
            attended = nn.functional.scaled_dot_product_attention(q, k, v)
            x = x + self.products[2 * at](attended.transpose(1, 2).reshape(x.shape))
            x = x + self.products[2 * at + 1](self.norms[2 * at + 1](x))
        return x.mean(-1)


def test_a_residual_is_stored_once_beside_calls_too(check: Check, interpret: Any) -> None:
    module, x = Attending(4), torch.randn(3, 32, 64)
    checked = check(module, x)
    program = lower(checked.graph, lowering=Lowering(products=True))
    weights = {key: value.detach() for key, value in module.named_parameters()}
    (mine,), _ = interpret(program, [x], weights)
    torch.testing.assert_close(mine, checked.expected[0], rtol=2e-4, atol=5e-5)
    products = [loop for loop in program.loops if loop.family == "product"]
    assert len(products) == 12
    assert all(len(loop.stores) == 1 for loop in products)
    # From the second layer on: its factor and the residual before it.
    assert max(_whole(loop, program, x.numel()) for loop in products[3:]) <= 2


def test_what_one_attempt_inlined_no_other_inlines_again(
    check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Counter[tuple[Nest, Expr, Nest]] = Counter()
    attempts: list[Fusion] = []

    def counted(ops: Ops, reader: Nest, load: Expr, producer: Nest) -> Nest | None:
        asked[reader, load, producer] += 1
        return inlined(ops, reader, load, producer)

    def run(self: Fusion) -> Fusion:
        attempts.append(self)
        return attempt(self)

    attempt = Fusion.run
    monkeypatch.setattr(schedule, "inlined", counted)
    monkeypatch.setattr(Fusion, "run", run)
    lower(check(Stack(3), torch.randn(32, 48)).graph, lowering=Lowering(products=True))
    assert len(attempts) > 1
    assert set(asked.values()) == {1}


@pytest.mark.parametrize("layers", [3, 40])
def test_a_layer_reads_no_more_in_a_deep_stack_than_in_a_shallow_one(
    layers: int, check: Check, interpret: Any
) -> None:
    module, x = Stack(layers), torch.randn(32, 48)
    checked = check(module, x)
    program = lower(checked.graph, lowering=Lowering(products=True))
    weights = {key: value.detach() for key, value in module.named_parameters()}
    (mine,), _ = interpret(program, [x], weights)
    torch.testing.assert_close(mine, checked.expected[0], rtol=2e-4, atol=5e-5)
    assert max(_whole(loop, program, x.numel()) for loop in program.loops) <= 3


def test_what_is_read_by_one_alone_is_not_stored(check: Check) -> None:
    class Four(nn.Module):
        def forward(self, a: Any, b: Any, c: Any, d: Any) -> torch.Tensor:
            return torch.tanh(a + b + c + d)

    made = lower(check(Four(), *(torch.randn(64, 48) for _ in range(4))).graph)
    (loop,) = made.loops
    assert _whole(loop, made, 64 * 48) == 4


def test_a_norm_takes_its_sum_along_without_storing_it(check: Check) -> None:
    class Norm(nn.Module):
        def forward(self, a: Any, b: Any, c: Any) -> torch.Tensor:
            return nn.functional.layer_norm(a + b + c, (48,))

    (loop,) = lower(check(Norm(), *(torch.randn(64, 48) for _ in range(3))).graph).loops
    assert len({store.access.buffer for store in loop.stores}) == 1


def _whole(loop: Loop, program: Any, numel: int) -> int:
    """How many whole tensors a loop reads."""
    read = {stmt.access.buffer for stmt in loop.body if stmt.access is not None}
    sizes = [program.buffer(name).shape for name in read]
    return sum(torch.Size(shape).numel() == numel for shape in sizes)
