"""`torch.compile(model, backend="kernelwright")` with a library of kernels for its regions."""

import inspect
import sys
import tomllib
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch
from torch import nn

from kernelwright.tools.codegen.library.kernel_library import repertoire_for
from kernelwright.tools.dynamo import Spliced, spliced
from kernelwright.tools.dynamo import backend as backends
from kernelwright.tools.dynamo.backend import backend
from kernelwright.tools.dynamo.graphs import outlined
from kernelwright.tools.dynamo.operators import task_of
from kernelwright.tools.hardware import detect
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.memory import Kept, KernelLibrary, Proof, device_of, forget, key_of
from kernelwright.tools.tasks.regions import find_regions, region_source
from kernelwright.tools.types import Task
from kernelwright.tools.types.outline import Outline

ROOT = Path(__file__).parents[3]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up = nn.LayerNorm(64), nn.Linear(64, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.tanh(self.up(self.norm(x))) * 2.0


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(Block(), Block(), Block())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.blocks(x)


class Heads(nn.Module):
    """What a region reads and makes lies as attention's result does, so that a view is free."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.view(2, 16, 4, 8).transpose(1, 2) for part in x.split(32, 2))
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return torch.tanh(y * 2.0).transpose(1, 2).view(2, 16, 32)


def keep_all(gm: torch.fx.GraphModule, inputs: list[torch.Tensor], home: Path) -> None:
    """A kernel for every region of a graph."""
    found = outlined(gm, inputs)
    outline = Outline(graph=found.graph, seen=(), whole_ms=1.0)
    for region in find_regions(found.graph):
        keep(task_of(region_source(outline, region, "a region")), home)


def keep(task: Task, home: Path) -> None:
    """The playbook's first kernel for a task, as if a search had certified it."""
    hardware = detect("cpu")
    key, repertoire = key_of(task), repertoire_for(task, hardware)
    assert key is not None
    draft = repertoire.draft({})
    candidate = new_candidate("cpp", draft.kernel, draft.plan, strategies=draft.strategies)
    proof = Proof(
        median_ms=1.0, baseline="compile", ratio=2.0, ci95=(1.9, 2.1), floor_fraction=0.5,
        method="", certified=True,
    )  # fmt: skip
    kept = Kept.of(
        candidate, key, inputs=(), device=device_of(hardware), kind="cpu", run="test-1",
        proof=proof, at=datetime.now(UTC), task="region",
    )  # fmt: skip
    assert kept is not None
    KernelLibrary(home).keep([kept])


@pytest.fixture(autouse=True)
def home(home_of_tests: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    torch._dynamo.reset()
    # Each has its own library; what is compiled, the prelude above all, is that of all tests.
    shared = home_of_tests / "cache"
    shared.mkdir(parents=True, exist_ok=True)
    (tmp_path / "cache").symlink_to(shared)
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path))
    return tmp_path


def filled(model: nn.Module, x: torch.Tensor, home: Path) -> None:
    def keeping(gm: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> object:
        keep_all(gm, inputs, home)
        return gm.forward

    with torch.no_grad():
        torch.compile(model, backend=keeping)(x)
    torch._dynamo.reset()


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Inductor, whose compiler takes ten seconds."""
    monkeypatch.setattr(backends, "_inductor", lambda gm, *_: gm.forward)


def calls() -> int:
    """How often compiled graphs called kernels of the library in this process."""
    modules = [item for name, item in sys.modules.items() if "kernelwright_spliced_" in name]
    counts = (getattr(item, "COUNTS", None) for item in modules)
    return sum(item["kernel (compiled)"] for item in counts if item)


def told() -> list[Spliced]:
    return [item for item in spliced() if item.graph == spliced()[-1].graph]


def in_a_model(home: Path) -> None:
    model, x = Model().eval(), torch.randn(32, 64)
    filled(model, x, home)
    with torch.no_grad():
        expected, fast, before = model(x), torch.compile(model, backend=backend), calls()
        torch.testing.assert_close(fast(x), expected)
        assert calls() == before + 4
        model.blocks[0].norm.weight.mul_(3.0)  # weights are read where they are
        torch.testing.assert_close(fast(x), model(x))
        torch.testing.assert_close(fast(x.t().contiguous().t()), model(x))
    known = [item for item in spliced() if item.places][-3:]
    assert sorted(item.places for item in known) == [1, 1, 2]
    assert {item.source for item in known} == {"region of 32 x 64 float32, run test-1"}


@pytest.mark.usefixtures("plain")
def test_regions_run_the_librarys_kernels(home: Path):
    in_a_model(home)


@pytest.mark.usefixtures("plain")
def test_a_view_behind_a_kernel_takes_the_layout_that_the_kernel_makes(home: Path):
    model, x = Heads().eval(), torch.randn(2, 16, 96)
    filled(model, x, home)
    with torch.no_grad():
        before, found = calls(), torch.compile(model, backend=backend)(x)
    torch.testing.assert_close(found, model(x))
    assert calls() == before + 1, told()


class Residual(nn.Module):
    """Returns what it makes last first."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = x + y
        return torch.tanh(z) * 2.0, z


@pytest.mark.exhaustive
@pytest.mark.usefixtures("plain")
def test_a_kernel_whose_results_come_in_another_order_is_found(home: Path):
    text = "import torch\nfrom torch import nn\n" + inspect.getsource(Residual)
    text += "Model = Residual\ndef get_inputs():\n"
    text += "    return [torch.randn(32, 64), torch.randn(32, 64)]\n"
    keep(task_of(text), home)
    x, y = torch.randn(32, 64), torch.randn(32, 64)
    with torch.no_grad():
        before, found = calls(), torch.compile(Residual(), backend=backend)(x, y)
    torch.testing.assert_close(found, Residual()(x, y))
    assert calls() == before + 1, told()


@pytest.mark.exhaustive
def test_regions_run_the_librarys_kernels_and_inductor_compiles_the_rest(home: Path):
    in_a_model(home)


@pytest.mark.exhaustive
@pytest.mark.usefixtures("plain")
def test_what_was_not_certified_here_as_faster_is_left_to_inductor(home: Path):
    model, x = nn.LayerNorm(64).eval(), torch.randn(32, 64)
    filled(model, x, home)
    library = KernelLibrary(home)
    (kept,) = library.every()
    for change in ({"certified": False}, {"ci95": (0.9, 1.1)}):
        proof = kept.proof.model_copy(update=change)
        forget(home)
        library.keep([kept.model_copy(update={"proof": proof})])
        torch._dynamo.reset()
        with torch.no_grad():
            torch.compile(model, backend=backend)(x)
        assert [(item.places, "no kernel" in item.why) for item in told()] == [(0, True)]


@pytest.mark.usefixtures("plain")
def test_gradients_and_unknown_sizes_are_left_to_inductor(home: Path):
    model, x = nn.LayerNorm(64), torch.randn(32, 64)
    filled(model, x, home)
    fast = torch.compile(model, backend=backend)
    fast(x).sum().backward()
    assert model.weight.grad is not None
    assert "need gradients" in told()[0].why
    with torch.no_grad():
        dynamic = torch.compile(model, backend=backend, dynamic=True)
        torch.testing.assert_close(dynamic(x), model(x))
    assert "sizes are not known" in told()[0].why


def test_torch_finds_it_by_its_name():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = project["entry-points"]["torch_dynamo_backends"]["kernelwright"]
    assert named == f"{backend.__module__}:{backend.__name__}"
