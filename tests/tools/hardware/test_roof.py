"""The roof is that of the arithmetic which a task's own precision takes."""

import pytest

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.hardware import floor_ms, roof_of
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Task, TracePolicy

FILE = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = {layer}

    def forward(self, x):
        return {forward}


def get_inputs():
    return [torch.randn{shape}{type}]
"""
PRODUCT = {"layer": "torch.nn.Identity()", "forward": "x @ x", "shape": "(2048, 2048)"}
CONVOLVED = {
    "layer": "torch.nn.Conv2d(512, 512, 3)",
    "forward": "self.layer(x)",
    "shape": "(4, 512, 32, 32)",
}
H200 = hardware_profile("H200")


def traced(made_of: dict[str, str], kind: str = "") -> Task:
    task = trace(FILE.format(**made_of, type=kind), "/tmp/roof.py", TracePolicy())
    assert isinstance(task, Task), task
    return task


@pytest.mark.parametrize(
    ("made_of", "kind", "share", "words"),
    [
        (PRODUCT, "", 1 / 3, "three fp16 products for each of float32"),
        (PRODUCT, ".half()", 1.0, "fp16 products"),
        (CONVOLVED, "", 1.0, "one fp16 product for each, as exact as TF32"),
    ],
)
def test_the_rate_is_the_precisions_own(
    made_of: dict[str, str], kind: str, share: float, words: str
) -> None:
    task = traced(made_of, kind)
    roof = roof_of(task, H200)
    assert roof is not None
    assert H200.tensor_tflops is not None
    assert roof.how == words
    assert roof.ms == pytest.approx(task.flops / (share * H200.tensor_tflops * 1e9))
    # What is refused as impossible stays what it was, and is never above the roof.
    assert roof.ms >= 0.999 * floor_ms(task.bytes_moved, task.flops, H200)


def test_a_person_who_allows_a_lower_precision_is_told_its_roof() -> None:
    task = traced(PRODUCT)
    roof = roof_of(task.model_copy(update={"allow": ("fp16",)}), H200)
    assert roof is not None
    assert roof.ms == pytest.approx(floor_ms(0, task.flops, H200))


def test_cores_that_are_faster_than_three_products_set_the_roof() -> None:
    roof = roof_of(traced(PRODUCT), H200.model_copy(update={"fp32_tflops": 400.0}))
    assert roof is not None
    assert roof.how == "float32 products"


def test_what_multiplies_nothing_or_in_float64_has_no_roof_of_its_own() -> None:
    assert roof_of(traced(PRODUCT | {"forward": "torch.softmax(x, -1)"}), H200) is None
    assert roof_of(traced(PRODUCT, ".double()"), H200) is None
    assert roof_of(traced(PRODUCT), hardware_profile("H200").model_copy(
        update={"tensor_tflops": None})) is None  # fmt: skip
