"""What cuBLASLt is told of a product, by a library that reads it all back and multiplies itself.

The device's own library is asked in the test marked `gpu`.
"""

import ctypes
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from kernelwright.tools.evaluate.timing import cublaslt
from kernelwright.tools.evaluate.timing.cublaslt import LibraryLacksError, Product, is_alike
from kernelwright.tools.gemm.problem import Arithmetic, arithmetic_of, task_of
from kernelwright.tools.gemm.shapes import LAYOUTS, GemmShape, Layout
from kernelwright.tools.types import DType, Task

ATTRIBUTES = SimpleNamespace(
    TRANSA=3, TRANSB=4, EPILOGUE=7, BIAS_POINTER=8, A_SCALE_POINTER=17, B_SCALE_POINTER=18
)
POINTERS = (8, 17, 18)
KINDS = {2: torch.float16, 14: torch.bfloat16, 28: torch.float8_e4m3fn}
FUSED = {"DEFAULT": 1, "RELU": 2, "BIAS": 4, "RELU_BIAS": 6, "GELU": 32, "GELU_BIAS": 36}


@dataclass
class Layouts:
    rows: int
    columns: int
    leading: int
    batches: int = 1
    step: int = 0
    dtype: torch.dtype = torch.float16


@dataclass
class FakeLibrary:
    """Descriptors as objects, matrices column by column, sums in float32: as the real one."""

    known: list[Layouts] = field(default_factory=list)
    turned: dict[int, int] = field(default_factory=dict)
    named: int = 3
    scales: type = ctypes.c_float
    MatmulDescAttribute = ATTRIBUTES
    Epilogue = FUSED
    MatrixLayoutAttribute = SimpleNamespace(BATCH_COUNT=5, STRIDED_BATCH_OFFSET=6)
    MatmulPreferenceAttribute = SimpleNamespace(MAX_WORKSPACE_BYTES=1)

    def create(self) -> int:
        return 1

    def matmul_desc_create(self, compute: int, scale: int) -> int:
        assert (compute, scale) in ((68, 0), (64, 2))
        self.scales = ctypes.c_float if scale == 0 else ctypes.c_uint16
        return 2

    def matmul_desc_set_attribute(self, desc: int, name: int, buffer: int, size: int) -> None:
        assert size == (8 if name in POINTERS else 4)
        kind = ctypes.c_int64 if size == 8 else ctypes.c_int32
        self.turned[name] = kind.from_address(buffer).value

    def matrix_layout_create(self, kind: int, rows: int, columns: int, leading: int) -> int:
        assert leading >= rows
        self.known.append(Layouts(rows, columns, leading, dtype=KINDS[kind]))
        return len(self.known) - 1

    def matrix_layout_set_attribute(self, of: int, name: int, buffer: int, size: int) -> None:
        kind = {5: ("batches", ctypes.c_int32), 6: ("step", ctypes.c_int64)}[name]
        assert size == ctypes.sizeof(kind[1])
        setattr(self.known[of], kind[0], kind[1].from_address(buffer).value)

    def matmul_preference_create(self) -> int:
        return 3

    def matmul_preference_destroy(self, preference: int) -> None:
        assert preference == 3

    def matmul_preference_set_attribute(self, of: int, name: int, buffer: int, size: int) -> None:
        assert ctypes.c_uint64.from_address(buffer).value == cublaslt.WORKSPACE_BYTES
        assert size == 8

    class MatmulHeuristicResult:
        def __init__(self, size: int) -> None:
            self.data = np.recarray(size, dtype=[("algo", np.uint64), ("workspace", np.uint64)])
            self.ptr = self.data.ctypes.data

        def __getitem__(self, key: slice) -> list[np.ndarray]:
            return [self.data[at : at + 1] for at in range(len(self.data))[key]]

    def matmul_algo_get_heuristic(self, *given: int) -> None:
        ctypes.c_int32.from_address(given[9]).value = min(self.named, given[7])

    def matmul(self, handle, desc, alpha, a, a_of, b, b_of, beta, c, c_of, d, d_of, *rest) -> None:
        one = 1.0 if self.scales is ctypes.c_float else 0x3C00  # of fp16, by its bits
        assert self.scales.from_address(alpha).value == one
        assert self.scales.from_address(beta).value == 0
        first, second = (
            self._read(a, a_of, ATTRIBUTES.TRANSA),
            self._read(b, b_of, ATTRIBUTES.TRANSB),
        )
        result = np.matmul(first.astype(np.float32), second.astype(np.float32))
        into = self.known[d_of]
        for number, one in enumerate(result):
            assert one.shape == (into.rows, into.columns)
            one = self._fused(one)
            text = torch.from_numpy(one.T.copy()).to(into.dtype)  # column after column
            size = text.element_size()
            ctypes.memmove(d + size * number * into.step, text.data_ptr(), size * text.numel())

    def _fused(self, sums: np.ndarray) -> np.ndarray:
        for name in (ATTRIBUTES.A_SCALE_POINTER, ATTRIBUTES.B_SCALE_POINTER):
            if name in self.turned:
                sums = sums * ctypes.c_float.from_address(self.turned[name]).value
        kind = self.turned[ATTRIBUTES.EPILOGUE]
        if kind & FUSED["BIAS"]:
            raw = ctypes.string_at(self.turned[ATTRIBUTES.BIAS_POINTER], 2 * len(sums))
            sums = sums + np.frombuffer(raw, np.float16).astype(np.float32)[:, None]
        made = torch.from_numpy(sums)
        if kind & FUSED["GELU"]:
            made = torch.nn.functional.gelu(made, approximate="tanh")
        return (made.relu() if kind & FUSED["RELU"] else made).numpy()

    def _read(self, pointer: int, of: int, turn: int) -> np.ndarray:
        """Batch x rows x columns, turned where the descriptor says so."""
        how = self.known[of]
        parts = []
        for number in range(how.batches):
            count, size = how.leading * how.columns, how.dtype.itemsize
            raw = ctypes.string_at(pointer + size * number * how.step, size * count)
            flat = torch.frombuffer(bytearray(raw), dtype=how.dtype).float().numpy()
            parts.append(flat.reshape(how.columns, how.leading)[:, : how.rows].T)
        return np.stack([part.T if self.turned[turn] else part for part in parts])


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> FakeLibrary:
    made = FakeLibrary()
    monkeypatch.setattr(cublaslt, "bindings", lambda: made)
    monkeypatch.setattr(cublaslt, "stream", lambda: 0)
    monkeypatch.setattr(cublaslt, "_handle", made.create)
    return made


def product_task(layout: Layout, batch: int = 1) -> Task:
    return task_of(GemmShape(m=24, n=40, k=16, layout=layout, batch=batch), Arithmetic())


def drawn(task: Task) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = [spec.tensor.shape for spec in task.inputs if spec.tensor is not None]
    return [torch.randn(shape, dtype=torch.float16) for shape in shapes]


def expected(inputs: list[torch.Tensor], layout: Layout) -> torch.Tensor:
    left, right = (
        one.float() if letter == "n" else one.float().mT
        for one, letter in zip(inputs, layout, strict=True)
    )
    return (left @ right).half()


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_library_is_told_the_product_that_the_task_is(
    layout: Layout, batch: int, library: FakeLibrary
) -> None:
    task = product_task(layout, batch)
    inputs = drawn(task)
    call = cublaslt.first_choice(Product(task.graph, "cpu"))
    assert is_alike(call(inputs), expected(inputs, layout))
    assert not is_alike(call(inputs), -expected(inputs, layout))


@pytest.mark.parametrize("sums", [DType.FLOAT16, DType.FLOAT32])
def test_sums_in_fp16_are_asked_for_by_their_own_type(sums: DType, library: FakeLibrary) -> None:
    task = task_of(GemmShape(m=24, n=40, k=16), arithmetic_of("fp16", "fp16", ""))
    inputs = drawn(task)
    call = cublaslt.first_choice(Product(task.graph, "cpu", sums))
    assert (library.scales is ctypes.c_uint16) == (sums is DType.FLOAT16)
    assert is_alike(call(inputs), expected(inputs, "nt"))


@pytest.mark.parametrize("epilogue", ["bias", "relu", "bias,relu", "gelu_tanh", "bias,gelu_tanh"])
def test_what_the_library_can_fuse_it_is_asked_for(epilogue: str, library: FakeLibrary) -> None:
    arithmetic = arithmetic_of("fp16", "fp32", epilogue)
    task = task_of(GemmShape(m=24, n=40, k=16), arithmetic)
    inputs = drawn(task)
    namespace: dict[str, Any] = {}
    exec(task.source, namespace)
    call = cublaslt.first_choice(Product(task.graph, "cpu"))
    assert is_alike(call(inputs), namespace["Model"]()(*inputs))


def test_each_factor_of_eight_bits_has_its_scale(library: FakeLibrary) -> None:
    task = task_of(GemmShape(m=24, n=48, k=32), arithmetic_of("fp8", "fp32", ""))
    namespace: dict[str, Any] = {}
    exec(task.source, namespace)
    inputs = namespace["get_inputs"]()
    found = cublaslt.first_choice(Product(task.graph, "cpu"))(inputs)
    assert found.dtype is torch.bfloat16
    assert is_alike(found, namespace["Model"]()(*inputs))


def test_what_it_cannot_fuse_is_said(library: FakeLibrary) -> None:
    task = task_of(GemmShape(m=24, n=40, k=16), arithmetic_of("fp16", "fp32", "bias,gelu"))
    with pytest.raises(LibraryLacksError, match="what follows this product"):
        Product(task.graph, "cpu")


def test_the_fastest_of_those_named_is_taken(library: FakeLibrary) -> None:
    asked: list[int] = []
    times = iter([3.0, 1.0, 2.0, 1.5, 1.25, 9.0])

    def median_ms(call: cublaslt.Multiply, samples: int) -> float:
        asked.append(samples)
        return next(times)

    task = product_task("nt")
    call = cublaslt.fastest(Product(task.graph, "cpu"), median_ms)
    assert asked == [1, 1, 1, 7, 7, 7]
    assert is_alike(call(drawn(task)), expected(drawn(task), "nt"))


def test_no_algorithm_and_no_binding_are_sentences(
    library: FakeLibrary, monkeypatch: pytest.MonkeyPatch
) -> None:
    library.named = 0
    task = product_task("nt")
    with pytest.raises(LibraryLacksError, match="names no algorithm"):
        cublaslt.first_choice(Product(task.graph, "cpu"))
    monkeypatch.undo()
    monkeypatch.setattr(cublaslt, "import_module", lambda name: 1 / 0)
    with pytest.raises(LibraryLacksError, match='install the extra "gemm"'):
        cublaslt.bindings()


@pytest.mark.gpu
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_devices_own_library_multiplies(layout: Layout) -> None:
    pytest.importorskip("nvmath")
    task = product_task(layout, 3)
    inputs = [one.cuda() for one in drawn(task)]
    product = Product(task.graph, "cuda")
    for algorithm in product.algorithms(10):
        assert is_alike(product.call(algorithm)(inputs), expected(inputs, layout))
