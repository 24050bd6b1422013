"""Modules in memory: written down, searched behind the wall, given back over the own one."""

import copy
import pickle
from collections import Counter
from dataclasses import dataclass
from types import ModuleType

import pytest
import torch
from torch import nn

import kernelwright
from kernelwright.tools.archive import Archive
from kernelwright.tools.tasks import trace
from kernelwright.tools.tasks.inputs.draws import draw
from kernelwright.tools.tasks.loading import watch
from kernelwright.tools.tasks.reference import Reference
from kernelwright.tools.tasks.sources import find
from kernelwright.tools.types import Task, TracePolicy
from kernelwright.ui.api.in_memory import Optimized, written
from kernelwright.ui.cli import optimize as searches
from kernelwright.ui.complaints import Complaint
from kernelwright.ui.terminal.output import remarks


@dataclass
class Answer:
    y: torch.Tensor
    more: dict


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(256))
        self.register_buffer("b", torch.randn(256))
        self.drop, self.power = nn.Dropout(0.5), 1.0
        self.eval()

    def forward(self, x, *, scale):
        y = torch.softmax(self.drop(x) * self.w + self.b, dim=-1) * scale["s"] * self.power
        return Answer(y, {"m": y + 1})


class Branching(nn.Module):
    def forward(self, x):
        return x * 2 if x.sum() > 0 else x


def inputs(rows=64):
    return {"x": torch.randn(rows, 256), "scale": {"s": torch.randn(256)}}


def same(got, right):
    torch.testing.assert_close(got.y, right.y)
    torch.testing.assert_close(got.more["m"], right.more["m"])


def test_a_module_is_written_down_with_its_weights_and_its_call(tmp_path):
    model, given = Net(), inputs()
    kept = written(model, given, tmp_path)
    found = find(kept.file, TracePolicy(inputs=(str(kept.inputs),)))
    task = trace(found.source, str(found.path), found.policy)
    assert isinstance(task, Task), task
    assert [spec.name for spec in task.inputs] == ["x", "scale_s"]
    assert {"net.py", "model.pt2"} & {item.path for item in task.project.files}
    outputs = Reference.build(task, "cpu").forward(draw(task, "task", 0, "cpu"))
    right = model(**given)
    torch.testing.assert_close(outputs[0], right.y)
    torch.testing.assert_close(outputs[1], right.more["m"])


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
@pytest.mark.usefixtures("nothing_compiled")
def test_what_comes_back_runs_kernels_on_the_caller_s_own_weights(tmp_path, capfd):
    model, given = Net(), inputs()
    fast = kernelwright.optimize(
        model, given, seconds=10, rounds=1, target="cpu", run_dir=tmp_path, force=True,
    )  # fmt: skip
    assert fast.is_faster
    with torch.no_grad():
        same(fast(**given), model(**given))
        assert isinstance(fast(**given), Answer)
        model.w.mul_(3)
        same(fast(**given), model(**given))
        assert fast.counts["kernel"] == 3
        odd = inputs(3)
        same(fast(**odd), model(**odd))
        fast.train()
        dropped = fast(**given).y
        assert not torch.allclose(dropped, fast(**given).y), "a dropout that drops"
        assert fast.counts["reference: training mode"] == 2
        fast.eval()
        same(fast(**given), model(**given))
        assert fast.counts["kernel"] == 4
    again = copy.deepcopy(fast)
    with torch.no_grad():
        again.model.w.mul_(2)
        same(again(**given), again.model(**given))
        same(fast(**given), model(**given))
        assert not torch.equal(fast(**given).y, again(**given).y)
        assert fast.counts == again.counts
        assert fast.counts["kernel"] == 8
        model.power = 3.0
        same(fast(**given), model(**given))
        assert fast.counts["reference: attribute inner.inner.power"] == 1
        same(again(**given), again.model(**given))
        assert fast.counts["kernel"] == 9
        vars(model)["power"] = 1.0
        fast.eval()
        same(fast(**given), model(**given))
        assert fast.counts["kernel"] == 10
        model.drop.register_forward_hook(lambda *_: torch.zeros(64, 256))
        same(fast(**given), model(**given))
        assert fast.counts["reference: hooks of inner.inner.drop"] == 1
    fast(**given).y.sum().backward()
    assert model.w.grad is not None
    assert fast.state_dict().keys() == model.state_dict().keys()
    assert "<pre" in fast._repr_html_()
    assert "baselines: eager" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("model", "given", "words"),
    [
        (3, [torch.ones(2)], "a file or an nn.Module can be optimised, not a int"),
        (nn.ReLU(), 3, "inputs must be a tensor, a list of arguments, or a dictionary"),
        (nn.ReLU(), [3], "no input is a tensor"),
        (nn.ReLU(), [torch.ones(2), {1, 2}], "Input 2 is a set"),
        (nn.Linear(3, 4), torch.ones(2), "cannot write the model down: RuntimeError"),
        (Branching(), torch.ones(2), r"it branches or takes shapes .* at test_in_memory.py:\d+$"),
    ],
)
def test_what_cannot_be_written_down_is_one_sentence(tmp_path, model, given, words):
    with pytest.raises(Complaint, match=words) as raised:
        written(model, given, tmp_path)
    assert "\n" not in str(raised.value)


class Export(nn.Module):
    """What is exported of a module, as far as copies are concerned: it reads its parts' weights."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Module()

    def forward(self, x):
        COUNTS[self._watch.look(self) or "kernel"] += 1
        return self.inner.inner(x)

    def __setstate__(self, state):
        super().__setstate__(state)
        self._watch = watch.Watch(self, self._watch.was)


COUNTS = Counter()


@pytest.fixture
def optimized(tmp_path):
    model = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8))
    kernels = ModuleType("kernels")
    vars(kernels).update(Model=Export, watch=watch, COUNTS=COUNTS, reads_mode=lambda _: False)
    COUNTS.clear()
    kept = written(model, torch.randn(4, 8), tmp_path)
    return Optimized(model, kernels, kept, None, tmp_path)


def test_a_deep_copy_has_weights_of_its_own_and_shares_the_kernels(optimized):
    x = torch.randn(4, 8)
    again = copy.deepcopy(optimized)
    with torch.no_grad():
        again.model[0].weight.zero_()
        assert not torch.equal(again(x), optimized(x))
        torch.testing.assert_close(again(x), again.model(x))
    assert again.counts == optimized.counts == {"kernel": 3}
    assert again._fast[0].inner.inner is again.model is not optimized.model


def test_a_copy_notices_what_is_changed_in_it_and_measures_by_what_was_searched(optimized):
    x = torch.randn(4, 8)
    optimized.model[1].eps = 1.0
    again = copy.deepcopy(optimized)
    optimized.model[1].eps = 1e-5
    again(x)
    optimized(x)
    assert optimized.counts == {"attribute inner.inner.1.eps": 1, "kernel": 1}
    assert copy.copy(optimized).model is optimized.model


def test_a_call_that_is_packed_otherwise_is_counted_as_the_module_s_own(optimized):
    x = torch.randn(4, 8)
    optimized(x)
    optimized(input=x)
    with pytest.raises(TypeError):
        optimized(x, 2.0)
    with pytest.raises(TypeError):
        optimized({1})
    assert optimized.counts == {"kernel": 1, "reference: arguments": 3}


def test_a_notebook_shows_the_card_once(optimized, monkeypatch, recording, tmp_path):
    shown = []
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda *_: shown.append(1))
    run = recording().archive(tmp_path)
    optimized.summary = recording().events(run)[-1].summary.model_copy(update={"run": run})
    assert "2.00x" in optimized._repr_html_()
    remarks().print("nothing exported")
    assert not shown


def test_a_search_that_was_interrupted_before_a_baseline_gives_the_model_back(
    tmp_path, monkeypatch, recording
):
    model, x = nn.ReLU(), torch.randn(4, 8)
    run = recording().archive(tmp_path, finished=False)
    summary = (
        recording()
        .events(run)[-1]
        .summary.model_copy(update={"run": run, "status": "stopped", "best": None, "baselines": {}})
    )

    async def interrupted(*_, **__):
        return summary

    monkeypatch.setattr(searches, "start_search", interrupted)
    record = Archive.record
    none = {"baselines": None}
    monkeypatch.setattr(Archive, "record", lambda of: record(of).model_copy(update=none))
    fast = kernelwright.optimize(model, x, run_dir=tmp_path, progress=False)
    assert (fast.is_faster, fast.summary.status) == (False, "stopped")
    torch.testing.assert_close(fast(x), model(x))


def test_pickling_is_refused_in_a_sentence(optimized, tmp_path):
    with pytest.raises(TypeError, match=r"cannot be pickled, as its kernels .* state_dict\(\)"):
        pickle.dumps(optimized)
    with pytest.raises(TypeError, match="cannot be pickled"):
        torch.save(optimized, tmp_path / "saved.pt")


def test_a_module_in_memory_takes_no_entry(tmp_path):
    with pytest.raises(kernelwright.KernelwrightError, match="takes neither"):
        kernelwright.optimize(nn.ReLU(), torch.ones(2), entry="Model", run_dir=tmp_path)
