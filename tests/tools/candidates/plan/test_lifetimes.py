"""A plan's names of tensors are deleted where they are read last, as it runs and is printed."""

import ast
import weakref

import torch

from kernelwright.tools.candidates.plan.lifetimes import letting_go
from kernelwright.tools.candidates.run.arguments import TorchAllocator

CHAIN = """def forward(x):
    a = empty_like(x)
    launch("scale", args=(x, a, x.numel(), 2.0))
    b = empty_like(x)
    launch("scale", args=(a, b, x.numel(), 2.0))
    c = empty_like(x)
    launch("scale", args=(b, c, x.numel(), 2.0))
    d = empty_like(x)
    launch("scale", args=(c, d, x.numel(), 2.0))
    return d
"""


def _printed(text: str) -> str:
    (function,) = (node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef))
    return ast.unparse(letting_go(function))


def test_what_nothing_reads_any_more_is_let_go() -> None:
    assert _printed(
        "def forward(x, n):\n"
        "    size = x.shape[0]\n"
        "    a, rows = empty(n), ceil_div(n, 4)\n"
        "    y = x.t()\n"
        "    both = (y, x)\n"
        "    launch('k', grid=rows, args=(y, a))\n"
        "    most = aten.max.dim(both[0], 0)\n"
        "    kept = most[0]\n"
        "    z = a.view(size)\n"
        "    unread = empty(n)\n"
        "    return z, kept\n"
    ).splitlines()[1:] == [
        "    size = x.shape[0]",
        "    a, rows = (empty(n), ceil_div(n, 4))",
        "    y = x.t()",
        "    both = (y, x)",
        "    launch('k', grid=rows, args=(y, a))",
        "    del rows, y",
        "    most = aten.max.dim(both[0], 0)",
        "    del both",
        "    kept = most[0]",
        "    del most",
        "    z = a.view(size)",
        "    del a",
        "    unread = empty(n)",
        "    del unread",
        "    return (z, kept)",
    ]


def test_what_may_not_be_bound_is_left_alone() -> None:
    """And what a loop reads is let go behind the loop."""
    text = (
        "def forward(x, n):\n"
        "    a = empty(n)\n"
        "    for i in range(n):\n"
        "        b = empty(i)\n"
        "        launch('k', args=(a, b))\n"
        "    if n > 3:\n"
        "        c = empty(n)\n"
        "    return x\n"
    )
    lines = _printed(text).splitlines()
    assert [line for line in lines if "del" in line] == ["    del a"]
    assert lines.index("    del a") == lines.index("        launch('k', args=(a, b))") + 1


class Counting(TorchAllocator):
    """Counts how many of its tensors are alive."""

    def __init__(self) -> None:
        self.alive = self.most = 0

    def empty(
        self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        made = super().empty(shape, dtype, device)
        self.alive += 1
        self.most = max(self.most, self.alive)
        weakref.finalize(made, self._gone)
        return made

    def _gone(self) -> None:
        self.alive -= 1


async def test_a_chain_of_kernels_holds_two_buffers(make_runner) -> None:
    counting = Counting()
    runner = await make_runner(CHAIN, allocator=counting)
    x = torch.randn(5)
    (y,) = runner((x,), {})
    assert torch.equal(y, 16 * x)
    assert counting.most == 2
