"""Bytes, operations and the floor."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernelwright.profiles.load import Hardware
from kernelwright.tools.hardware import floor_ms
from kernelwright.tools.types import Task

Model = Callable[..., Task]


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        # Each: read x once, write the result once.
        (("def forward(self, x): return torch.softmax(x, -1)",), 2 * 8 * 32 * 4),
        (("def forward(self, x): return x.sum()",), 8 * 32 * 4 + 4),
        # An input that is read by several operators is still read once.
        (("def forward(self, x): return x.exp() * x + x.mean()",), 2 * 8 * 32 * 4),
        # An unused weight costs nothing, an unused part of an input neither.
        (
            ("def forward(self, x): return x + 1", "[torch.randn(4)]", "self.l = nn.Linear(9, 9)"),
            2 * 4 * 4,
        ),
        (("def forward(self, x): return x[:, :4] * 2",), 2 * 8 * 4 * 4),
        # Of a table, only the rows that are looked up.
        (
            (
                "def forward(self, i): return self.e(i)",
                "[torch.randint(0, 1000, (4, 7))]",
                "self.e = nn.Embedding(1000, 16)",
            ),
            28 * 8 + 2 * 28 * 16 * 4,
        ),
        # Updated buffers are written too: two statistics and a counter, read and written.
        (
            (
                "def forward(self, x): return self.n(x)",
                "[torch.randn(4, 8)]",
                "self.n = nn.BatchNorm1d(8, affine=False)",
            ),
            2 * 4 * 8 * 4 + 2 * (2 * 8 * 4 + 8),
        ),
    ],
)
def test_every_byte_is_counted_once(model: Model, case: tuple[str, ...], expected: int) -> None:
    assert model(*case).bytes_moved == expected


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (("def forward(self, x): return x * 2 + 1",), 2 * 8 * 32),
        (("def forward(self, x): return x @ x.T",), 2 * 8 * 32 * 8),
        (("def forward(self, x): return x.T.reshape(-1)",), 0),
        (
            (
                "def forward(self, q): return F.scaled_dot_product_attention(q, q, q)",
                "[torch.randn(2, 3, 16, 8)]",
            ),
            2 * 2 * 2 * 3 * 16 * 16 * 8,
        ),
        (
            (
                "def forward(self, x): return self.c(x)",
                "[torch.randn(2, 3, 8, 8)]",
                "self.c = nn.Conv2d(3, 5, 3, bias=False)",
            ),
            2 * 2 * 5 * 6 * 6 * 3 * 9,
        ),
        (
            (
                "def forward(self, x): return self.l(x)[0]",
                "[torch.randn(5, 3, 8)]",
                "self.l = nn.RNN(8, 16)",
            ),
            2 * 15 * (8 * 16 + 16 * 16),
        ),
    ],
)
def test_operations_are_counted(model: Model, case: tuple[str, ...], expected: int) -> None:
    assert model(*case).flops == expected


def machine(tensor_tflops: float | None) -> Hardware:
    return Hardware(
        name="a machine",
        kind="cuda",
        source="a test",
        cache_mib=1,
        memory_gib=1,
        bandwidth_gb_s=1000,
        fp32_tflops=10,
        tensor_tflops=tensor_tflops,
    )


def test_the_floor_is_the_slower_of_memory_and_arithmetic() -> None:
    assert floor_ms(10**9, 1, machine(None)) == pytest.approx(1.0)
    assert floor_ms(1, 10**10, machine(None)) == pytest.approx(1.0)
    assert floor_ms(1, 10**10, machine(100)) == pytest.approx(0.1)
