"""Rewrites keep results, and apply only where their reason holds."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from kernelwright.tools.codegen.ir import ReduceKind
from kernelwright.tools.codegen.ir.rewrites import rewrite, rounded_alone

Check = Callable[..., Any]
r = torch.randn


def two_pass_norm(x: torch.Tensor) -> torch.Tensor:
    mean = x.mean(1, keepdim=True)
    variance = (x - mean).square().sum(1, keepdim=True) / 7
    return (x - mean) / torch.sqrt(variance + 1e-5)


CASES = {
    "softmax": (lambda x: torch.softmax(x, 1), "online_softmax"),
    "log-softmax": (lambda x: F.log_softmax(x * 2, 1), "online_softmax"),
    "a norm in two passes": (two_pass_norm, "moments"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_rewritten_loop_gives_the_same_results(name: str, check: Check, interpret: Any) -> None:
    function, rewriting = CASES[name]
    x = r(5, 7) * 3
    checked = check(function, x)
    (loop,) = checked.program.loops
    changed = rewrite(loop, rewriting)
    assert changed != loop
    program = checked.program.model_copy(update={"steps": (changed,)})
    (mine,), _ = interpret(program, [x], {})
    torch.testing.assert_close(mine, checked.results[0])


def test_online_softmax_reads_the_row_once_less(check: Check) -> None:
    (loop,) = check(lambda x: torch.softmax(x, 1), r(5, 7)).program.loops
    changed = rewrite(loop, "online_softmax")
    assert max(loop.passes().values()) == 2
    assert max(changed.passes().values()) == 1
    assert [s.reduce for s in changed.body if s.reduce] == [ReduceKind.SOFTMAX]
    assert changed.family == loop.family


def test_two_softmaxes_in_one_loop_are_both_rewritten(check: Check) -> None:
    checked = check(lambda a, b: torch.softmax(a, 1) * torch.softmax(b, 1), r(5, 7), r(5, 7))
    (loop,) = checked.program.loops
    kinds = [s.reduce for s in rewrite(loop, "online_softmax").body if s.reduce]
    assert kinds == [ReduceKind.SOFTMAX, ReduceKind.SOFTMAX]


def test_what_does_not_apply_is_not_offered(check: Check) -> None:
    (loop,) = check(lambda x: torch.relu(x), r(5, 7)).program.loops
    with pytest.raises(ValueError, match="does not apply"):
        rewrite(loop, "online_softmax")
    with pytest.raises(ValueError, match="unknown rewrite"):
        rewrite(loop, "magic")


def test_a_sum_of_other_powers_is_no_softmax(check: Check) -> None:
    def other(x: torch.Tensor) -> torch.Tensor:
        return (x - x.amin(1, keepdim=True)).exp().sum(1)

    (loop,) = check(other, r(5, 7)).program.loops
    with pytest.raises(ValueError, match="does not apply"):
        rewrite(loop, "online_softmax")


def test_products_under_an_exponential_are_rounded_by_themselves(check: Check) -> None:
    """Whether the largest of them is subtracted in the same loop, or was found in another."""
    (softmax,) = check(lambda x, y: torch.softmax(x * y, 1), r(5, 7), r(5, 7)).program.loops
    (apart,) = check(
        lambda x, y, top: torch.exp(x * y - top), r(5, 7), r(5, 7), r(5, 1)
    ).program.loops
    (plain,) = check(lambda x, y, top: (x * y - top).abs(), r(5, 7), r(5, 7), r(5, 1)).program.loops
    for loop in (softmax, rewrite(softmax, "online_softmax"), apart):
        products = {stmt.name for stmt in loop.body if stmt.op == "mul"}
        assert rounded_alone(loop) & products
    assert not rounded_alone(plain)
