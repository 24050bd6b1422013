"""What judging a large tensor costs is what its passes over memory cost, and they are counted.

Bounds are a little above what is counted today: another whole pass over a tensor shows.
"""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch

from kernelwright.tools.evaluate.verify.bits import Fingerprints
from kernelwright.tools.evaluate.verify.errors import Nulls, allclose, apart, distance, finite

SCRIPT = Path(__file__).parents[4] / "benchmarks" / "judge" / "judge_traffic.py"
ELEMENTS = 1 << 22
CHUNK = 1 << 17  # so that what is done once more for one chunk hardly counts


@pytest.fixture(scope="module")
def traffic() -> ModuleType:
    spec = importlib.util.spec_from_file_location("judge_traffic", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def bytes_an_element(traffic: ModuleType, work: Callable[[], object]) -> float:
    with traffic.Traffic() as counted:
        work()
    return float(sum(counted.by_operator.values())) / ELEMENTS


@pytest.mark.parametrize(
    ("most", "work"),
    [
        (35, lambda got, own, truth: Fingerprints({"it": got})),
        (200, lambda got, own, truth: distance(got, own, truth, CHUNK)),
        (420, lambda got, own, truth: Nulls([own], [truth], [got], CHUNK)),
        (60, lambda got, own, truth: apart(got, own, CHUNK)),
        (60, lambda got, own, truth: allclose(got, own, 1e-4, CHUNK)),
        (5, lambda got, own, truth: finite(got)),
    ],
    ids=["fingerprint", "distance", "nulls", "apart", "allclose", "finite"],
)
def test_a_step_moves_no_more_bytes_than_it_has_to(
    traffic: ModuleType, most: float, work: Callable[..., object]
) -> None:
    truth = torch.randn(ELEMENTS, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    own = truth.float()
    got = own * (1 + 1e-7)
    moved = bytes_an_element(traffic, lambda: work(got, own, truth))
    assert most / 2 < moved <= most


def test_what_is_counted_is_what_is_read_and_written(traffic: ModuleType) -> None:
    x, y = torch.ones(ELEMENTS), torch.ones(ELEMENTS, dtype=torch.float64)
    assert bytes_an_element(traffic, lambda: x + x) == 12.0
    assert bytes_an_element(traffic, lambda: x + y) == 20.0
    assert bytes_an_element(traffic, lambda: x.view(2, -1).t()) == 0.0
    assert bytes_an_element(traffic, lambda: x.fill_(2.0)) == 4.0
    assert bytes_an_element(traffic, lambda: y.copy_(x)) == 12.0
    assert bytes_an_element(traffic, lambda: x.add_(x.new_ones(()).expand(ELEMENTS))) < 8.1
