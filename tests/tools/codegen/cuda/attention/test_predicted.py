"""Predicted times of attention, the library's and ours, beside what an H200 took."""

import json
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path

import pytest

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.ir import Buffer, LibraryCall, PlanLine
from kernelwright.tools.codegen.ir.library_attention import AttentionSizes
from kernelwright.tools.codegen.ir.roofline import line_ms
from kernelwright.tools.types import DType

RESULTS = Path(__file__).parents[5] / "benchmarks" / "results" / "h200"
FILES = ("attention", "attention_bias", "attention_far", "attention_single", "attention_models")
H200, EMITTER = hardware_profile("H200"), CudaEmitter()
# By how much either side is off at most, and from where on one counts as ahead.
OFF, AHEAD = 1.15, 1.1


@dataclass(frozen=True)
class Shape:
    """As in `benchmarks/codegen/kernels/attention.py`."""

    batch: int
    heads: int
    length: int
    width: int
    is_causal: bool = False
    kind: str = "float16"
    key_heads: int = 0
    mask: str = ""

    def call(self) -> LibraryCall:
        """The call as lowering makes it."""
        kind, heads = DType(self.kind), self.key_heads or self.heads
        query = (self.batch, self.heads, self.length, self.width)
        keys = (self.batch, heads, self.length, self.width)
        sizes = {"q": (query, kind), "k": (keys, kind), "v": (keys, kind)}
        masks = {
            "bias": ((1, self.heads, self.length, self.length), kind),
            "padding": ((self.batch, 1, 1, self.length), DType.BOOL),
            "padding_rows": ((self.batch, 1, self.length, self.length), DType.BOOL),
        }
        if self.mask:
            sizes["mask"] = masks[self.mask]
        buffers = tuple(
            Buffer(name=name, shape=shape, dtype=dtype, role="input")
            for name, (shape, dtype) in sizes.items()
        )
        moved = (*sizes.values(), (query, kind))
        words = f"q, k, v, {'mask' if self.mask else None}, 0.0, {self.is_causal}"
        flags = self.batch * self.length * (self.length if self.mask == "padding_rows" else 1)
        line = PlanLine(
            text=f"y = aten.scaled_dot_product_attention({words})",
            makes=("y",),
            uses=tuple(sizes),
            operator="aten.scaled_dot_product_attention.default",
            cost_bytes=sum(prod(shape) * of.itemsize_bytes for shape, of in moved),
            attention=AttentionSizes(
                dtype=kind,
                heads=self.batch * self.heads,
                queries=self.length,
                keys=self.length,
                width=self.width,
                value_width=self.width,
                is_causal=self.is_causal,
                mask="row" if self.mask == "padding" else "rows" if self.mask else "",
                flags=flags if self.mask.startswith("padding") else 0,
            ),
        )
        result = buffers[0].model_copy(update={"name": "y", "role": "output"})
        return LibraryCall(line=line, operands=buffers, results=(result,))


SHAPES = {
    "short_64": Shape(32, 16, 512, 64),
    "short_causal_128": Shape(16, 16, 1024, 128, is_causal=True),
    "long_64": Shape(4, 16, 4096, 64),
    "long_causal_64": Shape(4, 16, 4096, 64, is_causal=True),
    "long_128": Shape(4, 16, 4096, 128),
    "long_causal_128": Shape(4, 16, 4096, 128, is_causal=True, kind="bfloat16"),
    "longest_128": Shape(4, 8, 8192, 128),
    "longest_causal_128": Shape(4, 8, 8192, 128, is_causal=True, kind="bfloat16"),
    "shared_heads_128": Shape(4, 32, 4096, 128, is_causal=True, kind="bfloat16", key_heads=8),
    "bias_64": Shape(4, 16, 2048, 64, mask="bias"),
    "padding_64": Shape(8, 16, 2048, 64, mask="padding"),
    "odd_128": Shape(8, 16, 1999, 128, is_causal=True),
    "bert_64": Shape(16, 12, 512, 64, kind="bfloat16", mask="padding_rows"),
    "vit_64": Shape(64, 12, 197, 64, kind="bfloat16"),
    "patches_72": Shape(32, 16, 256, 72, kind="bfloat16"),
    "single_64": Shape(4, 16, 2048, 64, kind="float32"),
    "single_causal_96": Shape(16, 8, 512, 96, is_causal=True, kind="float32"),
    "single_causal_128": Shape(4, 16, 2048, 128, is_causal=True, kind="float32"),
    "single_short_64": Shape(32, 16, 512, 64, kind="float32"),
    "single_image_32": Shape(2, 4, 8192, 32, kind="float32"),
    "single_bias_64": Shape(4, 16, 1024, 64, kind="float32", mask="bias"),
    "single_windows_32": Shape(640, 3, 49, 32, kind="float32", mask="bias"),
    "single_padding_odd_64": Shape(8, 16, 999, 64, kind="float32", mask="padding"),
}


@cache
def measured_ms() -> dict[tuple[str, str], float]:
    """The fastest of each kind and shape."""
    found: dict[tuple[str, str], float] = {}
    for name in FILES:
        for line in (RESULTS / f"{name}.jsonl").read_text().splitlines():
            entry = json.loads(line)
            key = entry["problem"], entry["kind"]
            if "ms" in entry:
                found[key] = min(entry["ms"], found.get(key, entry["ms"]))
    return found


def predicted_ms(name: str) -> tuple[float, float]:
    """The library's and ours."""
    call = SHAPES[name].call()
    (way, *_) = EMITTER.strategies(call, H200)
    return line_ms(call.line, H200), EMITTER.predicted_ms(call, way, H200)


@pytest.mark.parametrize("name", SHAPES)
def test_predictions_are_near_what_was_measured(name: str) -> None:
    for kind, told in zip(("library", "ours"), predicted_ms(name), strict=True):
        took = measured_ms().get((name, kind))
        if took is not None:
            assert took / OFF < told < took * OFF, (kind, told, took)


@pytest.mark.parametrize("name", SHAPES)
def test_who_was_ahead_is_predicted_to_be(name: str) -> None:
    library, ours = (measured_ms().get((name, kind)) for kind in ("library", "ours"))
    if library is None or ours is None or max(library / ours, ours / library) < AHEAD:
        pytest.skip("neither was clearly ahead")
    theirs, own = predicted_ms(name)
    assert (theirs > own) == (library > ours)


def test_a_gpu_that_is_twice_as_large_takes_half_the_time() -> None:
    line = SHAPES["long_128"].call().line
    rates = {"tensor_tflops": 2 * 989.0, "sm_count": 264, "bandwidth_gb_s": 9600.0}
    twice = H200.model_copy(update=rates)
    launch_ms = H200.launch_us / 1e3
    assert line_ms(line, twice) - launch_ms == pytest.approx((line_ms(line, H200) - launch_ms) / 2)


def test_a_few_heads_leave_most_of_a_gpu_idle() -> None:
    one, many = (line_ms(Shape(1, heads, 512, 64).call().line, H200) for heads in (1, 33))
    assert one == pytest.approx(many)
