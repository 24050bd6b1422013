"""Honest float32 norms pass where PyTorch's own error is nothing; unstable ones do not."""

from collections.abc import Callable, Mapping, Sequence

import pytest
import torch
from torch import Tensor

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.process_setup import no_new_processes
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.verify.comparison import ResultComparator
from kernelwright.tools.evaluate.verify.memory import GuardedMemory
from kernelwright.tools.evaluate.verify.reasons import RejectedError
from kernelwright.tools.evaluate.verify.reference_runtime import Draw, ReferenceRuntime
from kernelwright.tools.evaluate.verify.trials import Trials
from kernelwright.tools.tasks import DISTRIBUTIONS, applicable, trace
from kernelwright.tools.types import Task, TracePolicy

SOURCE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.{norm}

    def forward(self, x):
        return self.norm(x)

def get_inputs():
    return [torch.randn{shape}]
"""
NORMS = {
    "layer": ("LayerNorm(257)", "(32, 257)"),
    "group": ("GroupNorm(4, 8)", "(4, 8, 9, 11)"),
    "instance": ("InstanceNorm2d(5)", "(4, 5, 9, 11)"),
    "batch": ("BatchNorm2d(5)", "(4, 5, 9, 11)"),
}
LONG = "(4, 5, 26, 26)"  # 2704 numbers a channel
RULES = Rules()
Moments = Callable[[Tensor], tuple[Tensor, Tensor]]
Sum = Callable[[Tensor], Tensor]


def in_order(rows: Tensor) -> Tensor:
    total = torch.zeros_like(rows[..., :1])
    for column in range(rows.shape[-1]):
        total = total + rows[..., column : column + 1]
    return total


def in_pairs(rows: Tensor) -> Tensor:
    while rows.shape[-1] > 1:
        rows = torch.nn.functional.pad(rows, (0, rows.shape[-1] % 2))
        rows = rows[..., ::2] + rows[..., 1::2]
    return rows


def deviations(total: Sum) -> Moments:
    def moments(rows: Tensor) -> tuple[Tensor, Tensor]:
        mean = total(rows) / rows.shape[-1]
        return mean, total((rows - mean) ** 2) / rows.shape[-1]

    return moments


def welford(rows: Tensor) -> tuple[Tensor, Tensor]:
    mean, spread = torch.zeros_like(rows[..., :1]), torch.zeros_like(rows[..., :1])
    for column in range(rows.shape[-1]):
        value = rows[..., column : column + 1]
        off = value - mean
        mean = mean + off / (column + 1)
        spread = spread + off * (value - mean)
    return mean, spread / rows.shape[-1]


def by_squares(rows: Tensor) -> tuple[Tensor, Tensor]:
    mean = in_pairs(rows) / rows.shape[-1]
    return mean, in_pairs(rows * rows) / rows.shape[-1] - mean * mean


def in_half(rows: Tensor) -> tuple[Tensor, Tensor]:
    return deviations(in_pairs)(rows.half().float())


def in_blocks(rows: Tensor) -> Tensor:
    """52 chains next to each other, as the threads of a block or the lanes of a vector add."""
    blocks = rows.reshape(*rows.shape[:-1], 52, -1)
    return in_order(in_order(blocks).transpose(-1, -2))[..., 0, :]


class Norm:
    """A runner that normalises with these moments."""

    def __init__(self, kind: str, moments: Moments) -> None:
        self._kind = kind
        self._moments = moments

    def prepare(self, weights: Mapping[str, Tensor]) -> None:
        """Nothing."""

    def __call__(
        self, arguments: Sequence[object], weights: Mapping[str, Tensor], /
    ) -> tuple[Tensor, ...]:
        (x,) = arguments
        assert isinstance(x, Tensor)
        across = x.transpose(0, 1) if self._kind == "batch" else x
        shape = {"layer": (32,), "group": (4, 4), "instance": (4, 5), "batch": (5,)}[self._kind]
        rows = across.reshape(*shape, -1)
        mean, spread = self._moments(rows)
        y = ((rows - mean) * torch.rsqrt(spread + 1e-5)).reshape(across.shape)
        if self._kind == "batch":
            count = rows.shape[-1]
            weights["norm.running_mean"].mul_(0.9).add_(0.1 * mean[:, 0])
            weights["norm.running_var"].mul_(0.9).add_(0.1 * spread[:, 0] * (count / (count - 1)))
            weights["norm.num_batches_tracked"].add_(1)
            y = y.transpose(0, 1).contiguous()
        if "norm.weight" in weights:
            column = (-1, *[1] * (y.dim() - 2)) if y.dim() > 2 else (-1,)
            y = y * weights["norm.weight"].view(column) + weights["norm.bias"].view(column)
        return (y,)


@pytest.fixture(scope="module")
def rejections(tmp_path_factory: pytest.TempPathFactory, cpu: Hardware) -> Callable[..., list[str]]:
    """Every distribution on which a norm with these moments is turned away."""
    tasks: dict[str, Task] = {}

    def traced(kind: str) -> Task:
        if kind not in tasks:
            norm, shape = (NORMS["batch"][0], LONG) if kind == "long" else NORMS[kind]
            text = SOURCE.format(norm=norm, shape=shape)
            found = trace(text, str(tmp_path_factory.mktemp("task") / "model.py"), TracePolicy())
            assert isinstance(found, Task), found
            tasks[kind] = found
        return tasks[kind]

    def run(
        kind: str, moments: Moments, rules: Rules = RULES, names: Sequence[str] = DISTRIBUTIONS
    ) -> list[str]:
        task, reasons = traced(kind), []
        runtime = ReferenceRuntime(task, cpu, rules, 3, no_new_processes)
        for name in (n for n in names if applicable(task, n)):
            memory = GuardedMemory("cpu", runtime.rules.guard_bytes)
            runner = Norm("batch" if kind == "long" else kind, moments)
            trials = Trials(runtime, memory, runner, lambda _: None)
            try:
                for seed in (1, 2):
                    trials.run(
                        Draw(name, seed),
                        ResultComparator(runtime),
                        twice=False,
                        settle=lambda: None,
                        weights=5,
                    )
            except RejectedError as found:
                reasons.append(f"{name}: {found.reason}")
        return reasons

    return run


@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize(
    "moments",
    [deviations(in_order), deviations(in_pairs), welford],
    ids=["in order", "in pairs", "welford"],
)
def test_a_plain_float32_norm_is_right_everywhere(rejections, kind, moments):
    assert rejections(kind, moments) == []


@pytest.mark.parametrize("kind", NORMS)
def test_a_variance_by_squares_is_wrong_far_from_zero(rejections, kind):
    assert any(reason.startswith("large_offset") for reason in rejections(kind, by_squares))


@pytest.mark.parametrize("kind", NORMS)
def test_moments_in_half_precision_are_wrong(rejections, kind):
    reasons = rejections(kind, in_half)
    assert [reason.split(":")[0] for reason in reasons][:2] == ["task", "normal"]


HARSH = ("constant_rows", "extremes")


@pytest.mark.parametrize("total", [in_blocks, in_pairs], ids=["in blocks", "in pairs"])
def test_a_sum_of_thousands_in_any_parts_is_right_where_one_chain_is_not(rejections, total):
    assert rejections("long", deviations(total), names=HARSH) == []


def test_one_chain_of_thousands_is_further_off_than_the_protocol_allows(rejections):
    reasons = rejections("long", deviations(in_order), names=("normal", *HARSH))
    assert [reason.split(":")[0] for reason in reasons] == list(HARSH)


def test_a_bound_for_one_long_chain_would_admit_half_precision_on_usual_values(rejections):
    wide, usual = Rules(error_bound=12.0), ("task", "normal")
    assert rejections("long", deviations(in_order), wide, HARSH) == []
    assert rejections("long", in_half, wide, usual) == []
    assert len(rejections("long", in_half, names=usual)) == len(usual)
