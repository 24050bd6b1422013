"""Which shapes words stand for, and what is said of words that stand for none."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.gemm.problem import (
    Arithmetic,
    arithmetic_of,
    check_device,
    check_shapes,
    check_torch,
    factor_shapes,
    task_of,
    text_of,
)
from kernelwright.tools.gemm.shapes import CUDA_L2_SIDES, GemmShape, layouts_of, shapes_of
from kernelwright.tools.memory.structure import key_of
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Refusal, TracePolicy


def sizes(words: str) -> list[tuple[int, int, int]]:
    return [(one.m, one.n, one.k) for one in shapes_of(words, ("nt",))]


def test_a_grid_is_lists_and_ranges_that_double() -> None:
    assert sizes("64..256x512x64,96") == [
        (m, 512, k) for m in (64, 128, 256) for k in (64, 96)
    ]  # fmt: skip
    assert sizes("7x5x3") == [(7, 5, 3)]


def test_each_shape_comes_in_every_layout_and_once() -> None:
    found = shapes_of("64,64x64x64", layouts_of("nt,nn"))
    assert [one.name for one in found] == ["64x64x64_nn", "64x64x64_nt"]


def test_a_draw_is_of_the_thousand_and_follows_from_its_seed() -> None:
    drawn = shapes_of("cuda-l2:125:7", ("nt",))
    assert len(drawn) == 125
    assert drawn == shapes_of("cuda-l2:125:7", ("nt",)) != shapes_of("cuda-l2:125:8", ("nt",))
    assert {side for one in drawn for side in (one.m, one.n, one.k)} == set(CUDA_L2_SIDES)
    assert len(shapes_of("cuda-l2", ("nt",))) == 1000


def test_a_file_has_a_shape_a_line(tmp_path: Path) -> None:
    path = tmp_path / "shapes.txt"
    path.write_text("# of a model\n4096 11008 4096\n64, 64, 128 tn 8  # batches\n\n")
    assert shapes_of(str(path), ("nt",)) == (
        GemmShape(m=4096, n=11008, k=4096, layout="nt"),
        GemmShape(m=64, n=64, k=128, layout="tn", batch=8),
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("64x64", "a grid is MxNxK"),
        ("64x64x128..64", "has no sizes"),
        ("64x64x0", "has no sizes"),
        ("64x64x9999999", "sizes are from"),
        ("64x64x1.5", "is no size"),
        ("cuda-l2:1001", "asks for 1001 of 1000"),
        ("cuda-l2:many", "say cuda-l2"),
        ("missing.txt", "no file of shapes that can be read"),
        ("1..65536x1..65536x" + ",".join(map(str, range(1, 80))), "are the most"),
    ],
)
def test_words_that_are_no_shapes_get_a_sentence(words: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        shapes_of(words, ("nt",))


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "shapes.txt"
    path.write_text("64 64 64\n64 64\n")
    with pytest.raises(ValueError, match=r"shapes\.txt:2: a line is M N K"):
        shapes_of(str(path), ("nt",))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (("fp8", "fp16", ""), "fp8 is summed in fp32"),
        (("fp8", "fp32", "relu"), "scales are all that follows"),
        (("fp32", "fp32", ""), "--dtype is fp16, bf16, fp8"),
        (("bf16", "fp16", ""), "bf16 is summed in fp32"),
        (("fp16", "tf32", ""), "--accumulate is fp32 or fp16"),
        (("fp16", "fp32", "relu,bias"), "as in bias,relu, and not 'relu,bias'"),
        (("fp16", "fp32", "softmax"), "--epilogue is bias, one of relu"),
    ],
)
def test_what_cannot_be_had_is_refused_in_a_sentence(
    asked: tuple[str, str, str], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        arithmetic_of(*asked)


@pytest.mark.parametrize("breaks", [False, True])
def test_a_library_keeps_sums_in_fp16_for_one_call_alone(
    breaks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace: dict[str, Any] = {}
    exec(text_of(GemmShape(m=4, n=4, k=4), arithmetic_of("fp16", "fp16", "relu")), namespace)
    library, seen = torch.backends.cuda.matmul, []

    def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        seen.append(library.allow_fp16_accumulation)
        if breaks:
            raise RuntimeError("no memory")
        return a @ b

    monkeypatch.setattr(torch, "matmul", matmul)
    model = namespace["Model"]()
    for allowed in (True, False):
        model.fp16_sums = allowed
        with pytest.raises(RuntimeError) if breaks else nullcontext():
            model(*namespace["get_inputs"]())
        assert not library.allow_fp16_accumulation
    assert seen == [True, False]


def test_sums_in_fp16_are_another_task_than_sums_in_fp32() -> None:
    shape = GemmShape(m=64, n=64, k=64)
    tasks = [task_of(shape, arithmetic_of("fp16", sums, "")) for sums in ("fp32", "fp16")]
    assert [task.graph.sums.value for task in tasks] == ["float32", "float16"]
    assert tasks[0].name != tasks[1].name
    assert tasks[0].digest != tasks[1].digest
    assert key_of(tasks[0]) != key_of(tasks[1])


@pytest.mark.parametrize(
    "change", [{"layout": "nn"}, {"batch": 2}, {"n": 24}, {"k": 40}, {"m": 3}], ids=str
)
def test_products_of_eight_bits_are_what_tensor_cores_take(change: dict[str, Any]) -> None:
    shape = GemmShape(m=32, n=48, k=64)
    eights = arithmetic_of("fp8", "fp32", "")
    check_shapes([shape], eights)
    with pytest.raises(ValueError, match="products of fp8 are single, of layout nt"):
        check_shapes([shape, shape.model_copy(update=change)], eights)


def test_a_product_of_eight_bits_has_the_truth_of_what_they_stand_for() -> None:
    task = task_of(GemmShape(m=32, n=48, k=64), arithmetic_of("fp8", "fp32", ""))
    assert [spec.tensor.dtype.value for spec in task.tensor_inputs if spec.tensor] == [
        "float8_e4m3fn", "float8_e4m3fn", "float32", "float32",
    ]  # fmt: skip
    assert task.outputs[0].dtype.value == "bfloat16"
    namespace: dict[str, Any] = {}
    exec(task.source, namespace)
    model, inputs = namespace["Model"](), namespace["get_inputs"]()
    left, right = (inputs[at].double() * inputs[at + 2].double() for at in (0, 1))
    truth = model(*(one.double() for one in inputs))
    assert torch.equal(truth, left @ right.mT)
    assert (model(*inputs).double() - truth).abs().max() < 0.02 * truth.abs().max()


def test_a_users_file_of_eight_bits_is_still_refused() -> None:
    text = text_of(GemmShape(m=32, n=48, k=64), arithmetic_of("fp8", "fp32", ""))
    found = trace(text, "scaled.py", TracePolicy())
    assert isinstance(found, Refusal)
    assert found.sentence == ("The forward has the type float8_e4m3fn (a), which is not supported.")


def test_what_a_device_or_a_torch_lacks_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    halves = arithmetic_of("fp16", "fp16", "")
    with pytest.raises(ValueError, match=r"kernels for Hopper \(sm_90a\) alone"):
        check_device(halves, hardware_profile("L40S"))
    with pytest.raises(ValueError, match=r"--dtype fp8 has kernels for Hopper"):
        check_device(arithmetic_of("fp8", "fp32", ""), hardware_profile("B200"))
    check_device(halves, hardware_profile("H200"))
    check_device(Arithmetic(), hardware_profile("L40S"))
    monkeypatch.setattr(torch.backends.cuda, "matmul", object())
    with pytest.raises(ValueError, match=r"needs torch 2\.7 or later"):
        check_torch(halves)
    check_torch(Arithmetic())


def test_a_size_class_goes_by_operations() -> None:
    sizes = ((64, 64, 64), (1024, 1024, 1024), (8192, 8192, 8192))
    classes = [GemmShape(m=m, n=n, k=k).size_class for m, n, k in sizes]
    assert classes == ["small", "medium", "large"]


def test_a_layout_says_how_factors_lie() -> None:
    shape = GemmShape(m=2, n=3, k=5, layout="tn", batch=7)
    assert factor_shapes(shape) == ((7, 5, 2), (7, 5, 3))
    assert "torch.bmm(a.mT, b)" in text_of(shape, Arithmetic())
