"""What a grid is taken home as: a package, a page, tables; and what the command line says."""

import importlib
import importlib.util
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

from kernelwright.tools.export import ExportRefusedError
from kernelwright.tools.export.gemm import export_grid
from kernelwright.tools.gemm.problem import Arithmetic, arithmetic_of
from kernelwright.tools.gemm.record import GemmRecord, append
from kernelwright.ui.cli.app import run
from kernelwright.ui.report.grid import grid_page

OURS = (64, 2048, 256)  # M, N, K of a shape that the records give to us


@pytest.fixture(scope="module")
def package(
    records: tuple[GemmRecord, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ModuleType]:
    folder = tmp_path_factory.mktemp("exported") / "faster_products"
    assert export_grid(records, folder) > 0
    spec = importlib.util.spec_from_file_location("faster_products", folder / "__init__.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["faster_products"] = module
    spec.loader.exec_module(module)
    yield module
    for name in [name for name in sys.modules if name.startswith("faster_products")]:
        del sys.modules[name]


@pytest.fixture
def on_device(package: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """As if tensors lay on the device; which kernels were called."""
    called: list[str] = []

    def loaded(name: str) -> Callable[..., torch.Tensor]:
        def kernel(a: torch.Tensor, b: torch.Tensor, *bias: torch.Tensor) -> torch.Tensor:
            called.append(name)
            return nn.functional.linear(a, b, *bias)

        return kernel

    monkeypatch.setattr(
        package, "_why_not", lambda found, given: "" if found["kernel"] else "faster"
    )
    monkeypatch.setattr(package, "_loaded", loaded)
    monkeypatch.setattr(package, "_build", lambda name, index: None)
    package.COUNTS.clear()
    return lambda: called


def half(*shape: int) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float16)


def test_every_measured_shape_is_in_the_table(
    package: ModuleType, records: tuple[GemmRecord, ...]
) -> None:
    assert len(package.TABLE) == len(records)
    assert package.CAPABILITY == (9, 0)
    kernels = Path(package.__file__).parent / "kernels"
    for row in package.TABLE:
        assert row["offline"][-1]["beside"] == "cuBLASLt, autotuned"
        if row["kernel"]:
            evidence = json.loads((kernels / row["kernel"] / "evidence.json").read_text())
            assert evidence["evaluation"]["verification"]["verdict"] == "correct"
            assert not row["queued_only"]
    assert sum(bool(row["kernel"]) for row in package.TABLE) == 3


def test_a_linear_layer_runs_the_kernel_of_its_sizes(
    package: ModuleType, on_device: Callable[[], list[str]]
) -> None:
    m, n, k = OURS
    layer = package.Linear(k, n, bias=False).half()
    x = half(2, m // 2, k)
    assert torch.equal(layer(x), x @ layer.weight.mT)
    assert on_device() == [f"mm_{m}x{n}x{k}_nt_fp16"]
    assert torch.equal(
        package.matmul(x.view(m, k), layer.weight.mT), x.view(m, k) @ layer.weight.mT
    )
    assert len(on_device()) == 2
    assert package.COUNTS == {"kernel": 2}


def test_all_other_calls_are_the_librarys(
    package: ModuleType, on_device: Callable[[], list[str]]
) -> None:
    m, n, k = OURS
    a, b = half(m, k), half(k, n)
    assert torch.equal(package.matmul(a, b), a @ b)  # nn was not measured
    assert torch.equal(package.matmul(a[:64], b), a[:64] @ b)
    assert torch.equal(package.bmm(a[None], b[None]), torch.bmm(a[None], b[None]))
    bias = half(n)
    assert torch.equal(
        package.linear(a, b.mT.contiguous(), bias),
        nn.functional.linear(a, b.mT.contiguous(), bias),
    )
    assert on_device() == []
    assert package.COUNTS["library: not measured"] == 4


def test_a_kernels_own_export_guards_its_calls_again(package: ModuleType) -> None:
    m, n, k = OURS
    a, weight = half(m, k), half(n, k)
    kernel = package._loaded(f"mm_{m}x{n}x{k}_nt_fp16")
    assert torch.equal(kernel(a, weight), a @ weight.mT)  # no device: its reference runs
    module = sys.modules[f"faster_products.kernels.mm_{m}x{n}x{k}_nt_fp16"]
    assert module.COUNTS["reference: device of a"] == 1


def test_on_another_device_the_library_runs(package: ModuleType) -> None:
    m, n, k = OURS
    package.COUNTS.clear()
    a, weight = half(m, k), half(n, k)
    assert torch.equal(package.linear(a, weight), a @ weight.mT)
    assert package.COUNTS == {"library: device": 1}


def test_inside_a_compiled_graph_the_library_runs(
    package: ModuleType, on_device: Callable[[], list[str]]
) -> None:
    m, n, k = OURS
    layer = torch.compile(package.Linear(k, n, bias=False).half(), backend="eager", fullgraph=True)
    x = half(m, k)
    assert torch.equal(layer(x), nn.functional.linear(x, layer.weight))
    assert on_device() == []


async def test_sums_in_fp16_run_where_they_are_allowed_and_nowhere_else(
    formula: SimpleNamespace,
    records: tuple[GemmRecord, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terms = formula.terms.model_copy(update={"arithmetic": Arithmetic(accumulate="fp16")})
    halves = await formula.measure(formula.judge(), "64x2048x256", terms=terms)
    export_grid((*records, *halves), tmp_path / "both")
    monkeypatch.syspath_prepend(tmp_path)
    both = importlib.import_module("both")
    assert [row["accumulate"] for row in both.TABLE] == ["fp32"] * 4 + ["fp16"]
    assert both.TABLE[-1]["overflown"] == ["large"]
    assert "in fp16 where `accumulate` says so" in (tmp_path / "both" / "README.md").read_text()
    called: list[str] = []
    monkeypatch.setattr(both, "_why_not", lambda found, given: "")
    monkeypatch.setattr(both, "_build", lambda name, index: None)
    monkeypatch.setattr(both, "_loaded", lambda name: called.append(name) or nn.functional.linear)
    library = torch.backends.cuda.matmul
    m, n, k = OURS
    try:
        for allowed in (False, True):
            library.allow_fp16_accumulation = allowed
            both.linear(half(m, k), half(n, k))
            both.linear(half(m, k).bfloat16(), half(n, k).bfloat16())
    finally:
        library.allow_fp16_accumulation = False
    name = f"mm_{m}x{n}x{k}_nt_fp16"
    assert called == [name, f"{name}_sums16"]


def test_patching_swaps_layers_without_bias_and_can_be_undone(
    package: ModuleType, on_device: Callable[[], list[str]]
) -> None:
    m, n, k = OURS
    model = nn.Sequential(
        nn.Linear(k, n, bias=False), nn.Linear(n, 7, bias=False), nn.Linear(k, n)
    ).half()  # fmt: skip
    before, x = dict(model.state_dict()), half(m, k)
    expected = model[0](x)
    assert package.patch(model) == ["0"]
    assert torch.equal(model[0](x), expected)
    assert on_device()
    assert {name: id(value) for name, value in model.state_dict().items()}.keys() == before.keys()
    assert package.unpatch(model) == ["0"]
    assert type(model[0]) is nn.Linear


async def test_a_kernel_that_is_slower_one_by_one_waits_for_a_graph(
    formula: SimpleNamespace, tmp_path: Path
) -> None:
    found = await formula.measure(formula.judge(latency=0.5), "64x2048x256")
    assert export_grid(found, tmp_path / "alone") == 1
    (row,) = json.loads((tmp_path / "alone" / "table.json").read_text())["shapes"]
    assert row["queued_only"]
    assert row["kernel"]


async def test_layers_with_a_bias_have_kernels_of_their_own(
    formula: SimpleNamespace,
    package: ModuleType,
    on_device: Callable[[], list[str]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    terms = formula.terms.model_copy(
        update={"arithmetic": arithmetic_of("fp16", "fp32", "bias,relu")}
    )
    found = await formula.measure(formula.judge(), "64x2048x256", terms=terms)
    assert export_grid(found, tmp_path / "fused") == 1
    (row,) = json.loads((tmp_path / "fused" / "table.json").read_text())["shapes"]
    assert row["epilogue"] == ["bias", "relu"]
    m, n, k = OURS
    key = (torch.float16, "fp32", "nt", ("bias", "relu"), 1, m, n, k)
    monkeypatch.setitem(package._BY_SHAPE, key, row)
    x, weight, bias = half(m, k), half(n, k), half(n)
    package.linear(x, weight, bias, "relu")
    assert on_device() == ["mm_64x2048x256_nt_fp16_bias_relu"]
    plain = package.linear(x, weight, bias)
    assert torch.equal(plain, nn.functional.linear(x, weight, bias))
    assert len(on_device()) == 1


def test_what_waits_for_a_graph_is_built_before_one_is_captured(
    package: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    capturing, built = False, list[str]()

    def kernels_for(index: int) -> None:
        built.append(f"kernel on {index}")

    class Kernel:
        """Stands for an export's model, whose module builds its kernels."""

    monkeypatch.setitem(sys.modules, Kernel.__module__, SimpleNamespace(kernels_for=kernels_for))
    monkeypatch.setattr(package, "_loaded", lambda name: Kernel())
    monkeypatch.setattr(package, "_BUILT", set())
    monkeypatch.setattr(package, "COUNTS", Counter())
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    (row,) = [one for one in package.TABLE if (one["m"], one["n"], one["k"]) == OURS]
    monkeypatch.setitem(row, "queued_only", True)
    tensor = SimpleNamespace(
        dtype=torch.float16, is_cuda=True, device="cuda:1", requires_grad=False,
        get_device=lambda: 1,
    )  # fmt: skip
    m, n, k = OURS

    def asked() -> bool:
        return package._kernel((tensor, tensor), ("nt", (), 1, m, n, k)) is not None

    capturing = True
    assert not asked()  # building it now would spoil the capture
    capturing = False
    assert not asked()
    assert built == ["kernel on 1"]
    capturing = True
    assert asked()
    assert package.COUNTS == {
        "library: not called before the capture": 1, "library: single calls": 1, "kernel": 1,
    }  # fmt: skip
    capturing = False
    monkeypatch.setattr(package, "ALWAYS", True)
    assert asked()
    assert built == ["kernel on 1"]


def test_nothing_is_written_over_what_is_no_export(
    records: tuple[GemmRecord, ...], tmp_path: Path
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ExportRefusedError, match="is not empty and is no earlier export"):
        export_grid(records, tmp_path)
    with pytest.raises(ExportRefusedError, match="of one device"):
        export_grid((), tmp_path / "new")


async def test_products_of_eight_bits_are_not_exported_yet(
    formula: SimpleNamespace, tmp_path: Path
) -> None:
    terms = formula.terms.model_copy(update={"arithmetic": Arithmetic(dtype="fp8")})
    found = await formula.measure(formula.judge(), "64x64x64", terms=terms)
    with pytest.raises(ExportRefusedError, match="not exported yet"):
        export_grid(found, tmp_path / "eights")


def test_the_page_has_maps_and_means(records: tuple[GemmRecord, ...]) -> None:
    page = grid_page(records)
    assert page.count('<svg class="map"') == 6
    assert "Beside cuBLASLt, autotuned" in page
    assert "3 of 4 shapes run a kernel of ours" in page
    assert "<script" not in page


def test_records_are_summed_up_reported_and_exported_without_a_device(
    records: tuple[GemmRecord, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "grid.jsonl"
    for record in records:
        append(out, record)
    line = ["gemm", "--out", str(out), "--report", str(tmp_path / "grid.html")]
    line += ["--export", str(tmp_path / "exported"), "--predict", "128x2048x256"]
    assert run(line) == 0
    said = capsys.readouterr()
    assert "beside cuBLASLt, autotuned" in said.out
    assert "64x2048x256_nt" in said.out
    assert "exported 3 kernels" in said.err
    assert (tmp_path / "grid.html").exists()
    assert (tmp_path / "exported" / "kernels" / "mm_64x2048x256_nt_fp16" / "verify.py").exists()


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        ((), 2, "name --shapes to measure"),
        (("--shapes", "64x64x64", "--dtype", "fp4"), 2, "--dtype is fp16, bf16, fp8"),
        (("--shapes", "64x64x64", "--layout", "nx"), 2, "layout 'nx' is not one of"),
        (("--shapes", "64x64x64", "--export", "pyproject.toml"), 2, "it is a file"),
        (("--out", "missing.jsonl"), 2, "cannot be read"),
    ],
)
def test_bad_input_gets_one_sentence(
    arguments: tuple[str, ...], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["gemm", *arguments]) == status
    errors = capsys.readouterr().err
    assert said in errors
    assert errors.count("\n") == 1


def test_without_a_gpu_it_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelwright.ui.cli.gemm.grid.detect_gpu", lambda: (None, "no driver"))
    assert run(["gemm", "--shapes", "64x64x64"]) == 3
    said = "gemm measures products on an NVIDIA GPU, and none can be used here: no driver"
    assert capsys.readouterr().err == f"kernelwright: {said}\n"


def test_an_earlier_file_is_gone_on_with_only_when_asked_and_under_its_terms(
    records: tuple[GemmRecord, ...],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hardware = records[0].hardware
    monkeypatch.setattr("kernelwright.ui.cli.gemm.grid.detect_gpu", lambda: (hardware, ""))
    monkeypatch.setattr("kernelwright.ui.cli.gemm.grid.detect", lambda target: hardware)
    out = tmp_path / "grid.jsonl"
    append(out, records[0])
    line = ["gemm", "--shapes", records[0].shape.name.removesuffix("_nt"), "--out", str(out)]
    assert run(line) == 2
    assert "is there already: go on with --resume" in capsys.readouterr().err
    assert run([*line, "--resume"]) == 2
    assert "was made under other terms" in capsys.readouterr().err
