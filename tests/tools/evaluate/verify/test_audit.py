"""The audit's experiments, each on a task that earns the badge and on an honest look-alike."""

import re
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.profiling.coverage import dispatched
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.verify.audit import findings
from kernelwright.tools.evaluate.verify.audit.findings import find
from kernelwright.tools.evaluate.verify.audit.subject import Subject
from kernelwright.tools.evaluate.verify.audit.terms import idle_terms
from kernelwright.tools.evaluate.verify.reference_runtime import ReferenceRuntime
from kernelwright.tools.evaluate.worker.request_handler import in_parts, needs_of, refusal_for
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Refusal, Task, TracePolicy

ROWS = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x * 0.5, dim=-1)

def get_inputs():
    return [torch.randn(37, 129)]
"""

# No deadline here: a slow machine must not change what is found.
RULES = Rules(audit_s=60.0)


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Task]:
    """Trace a Model given as a forward, its inputs and its constructor's body."""

    def maker(forward: str, inputs: str = "[torch.randn(16, 32)]", init: str = "pass") -> Task:
        text = (
            "import torch\nfrom torch import nn\nimport torch.nn.functional as F\n"
            "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            f"        {init}\n    def forward(self, *xs):\n        x = xs[0]\n        {forward}\n"
            f"def get_inputs():\n    return {inputs}\n"
        )
        path = tmp_path / "model.py"
        path.write_text(text)
        task = trace(text, str(path), TracePolicy())
        assert isinstance(task, Task), task
        return task

    return maker


@pytest.fixture
def badges(cpu: Hardware) -> Callable[..., dict[str, str]]:
    """Name and reason of every measured badge."""

    def finder(task: Task, **rules: object) -> dict[str, str]:
        runtime = ReferenceRuntime(task, cpu, RULES.model_copy(update=rules), 7, nullcontext)
        return {badge.name: badge.reason for badge in find(runtime).badges}

    return finder


def test_a_mean_of_what_was_normalised_is_constant(made, badges):
    task = made(
        "return self.norm(x.view(4, 8, 16)).mean(dim=(1, 2))", init="self.norm = nn.GroupNorm(2, 8)"
    )
    assert task.badges == ()
    assert badges(task)["constant"].startswith("0 is within the judge's bound everywhere")


def test_one_number_by_the_chance_of_its_weights_is_not_constant(made, badges):
    """Clamped away by this seed's bias, and not by another's."""
    init = "self.bias = nn.Parameter(torch.rand(1).round() * 100.0)"
    task = made("return torch.clamp(x + self.bias, min=-1.0, max=1.0) + 2", init=init)
    assert "constant" not in badges(task)


@pytest.mark.parametrize(
    ("forward", "init"),
    [
        ("return torch.softmax(x, -1)", "pass"),
        ("return self.norm(x)", "self.norm = nn.LayerNorm(32)"),
        ("return self.norm(x)", "self.norm = nn.BatchNorm1d(32)"),
        ("return x @ x.t()", "pass"),
        ("return F.mse_loss(x, x.flip(0))", "pass"),
        ("return x.argmax(-1)", "pass"),
        ("return torch.relu(self.layer(x)).sum(-1)", "self.layer = nn.Linear(32, 8)"),
    ],
)
def test_honest_tasks_earn_no_badge(made, badges, forward, init):
    assert badges(made(forward, init=init)) == {}


def test_inputs_and_parameters_that_do_not_matter_are_named(made, badges):
    task = made(
        "return self.norm(self.layer(x)) + (xs[1] - xs[1].mean(-1, keepdim=True)).sum() * 1e-9",
        inputs="[torch.randn(16, 32), torch.rand(4, 8)]",
        init="self.layer = nn.Linear(32, 8); self.norm = nn.BatchNorm1d(8, affine=False)",
    )
    found = badges(task)["insensitive"]
    assert "input input_1, " in found
    assert "parameter layer.bias" in found
    assert "layer.weight" not in found


def test_a_loss_over_many_uniform_numbers_is_exploitable(made, badges):
    many = "[torch.rand(1024, 1024), torch.rand(1024, 1024)]"
    found = badges(made("return F.mse_loss(xs[0], xs[1])", inputs=many))
    assert "within KernelBench's 0.01, but not 0.0001" in found["exploitable"]
    few = "[torch.rand(8, 16), torch.rand(8, 16)]"
    assert "exploitable" not in badges(made("return F.mse_loss(xs[0], xs[1])", inputs=few))


def test_inputs_that_no_seed_changes_are_exploitable(made, badges):
    task = made("return torch.sin(x)", inputs="[torch.arange(512.0).view(16, 32)]")
    assert "the same values under every seed" in badges(task)["exploitable"]


def test_a_large_task_is_tried_out_on_fewer_rows(made, cpu):
    task = made(
        "return self.norm(self.layer(x)).sum(-1) * 0.5",
        inputs="[torch.rand(4096, 64)]",
        init="self.layer = nn.Linear(64, 8); self.norm = nn.LayerNorm(8, bias=False)",
    )
    slow = cpu.model_copy(update={"bandwidth_gb_s": 1e-2})
    rules = RULES.model_copy(update={"audit_s": 9.0})
    found = find(ReferenceRuntime(task, slow, rules, 7, nullcontext))
    assert any("of 4096 rows" in note for note in found.notes)
    # The sum of what was normalised, times one weight that is all ones, is zero for any input.
    assert [badge.name for badge in found.badges] == ["constant"]


class _Slow:
    """Versions of a task whose draws take these seconds on a clock of their own, each in turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *draws_s: float) -> None:
        self.now, self.made, self.left = 0.0, 0, list(draws_s)
        monkeypatch.setattr(findings, "subject_of", self.version)
        monkeypatch.setattr(findings.time, "monotonic", lambda: self.now)

    def version(self, *_: object) -> "_Slow":
        self.made += 1
        return self

    def sample(self, *_: object) -> str:
        self.now += self.left.pop(0)
        return "a draw"


@pytest.mark.parametrize(
    ("draws_s", "versions", "spent_s"),
    [
        ((0.3,), 1, 0.0),  # quick at once
        ((2.0, 0.2), 1, 0.2),  # a device that had to be opened
        ((2.0, 1.0, 0.2), 2, 1.2),  # really slow: a smaller one, and that is paid
        ((9.0, 0.2), 2, 0.2),  # far too slow to be drawn once more
    ],
)
def test_what_the_first_draw_costs_is_not_the_audits_and_makes_no_version_smaller(
    monkeypatch, made, cpu, draws_s, versions, spent_s
):
    runtime = ReferenceRuntime(made("return torch.sin(x)"), cpu, RULES, 7, nullcontext)
    slow = _Slow(monkeypatch, *draws_s)
    monkeypatch.setattr(runtime, "device", "cuda")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    _, first, spent = findings._affordable(runtime, 3.0)
    assert (first, slow.made, slow.left) == ("a draw", versions, [])
    assert spent == pytest.approx(spent_s)


def test_a_term_is_left_open_where_time_runs_out_between_distributions(made, cpu):
    task = made("return x + 1e-9 * torch.tanh(x)")
    runtime = ReferenceRuntime(task, cpu, RULES, 7, nullcontext)
    subject = Subject(runtime, None)
    for asked, found in ((1, False), (100, True)):
        turns = iter([True] * asked + [False] * 100)
        assert bool(list(idle_terms(subject, runtime, 7, lambda t=turns: next(t)))) is found


def test_parameters_are_as_before_after_the_experiments(made, cpu):
    task = made("return self.layer(x)", init="self.layer = nn.Linear(32, 8)")
    runtime = ReferenceRuntime(task, cpu, RULES, 7, nullcontext)
    before = {name: tensor.clone() for name, tensor in runtime.reference.weights().items()}
    find(runtime)
    for name, tensor in runtime.reference.weights().items():
        assert torch.equal(tensor, before[name]), name


@pytest.mark.exhaustive
@pytest.mark.asyncio(loop_scope="module")
async def test_the_executor_hands_on_badges_and_what_runs(executor, write):
    text = ROWS.replace("torch.softmax(x * 0.5, dim=-1)", "torch.relu(-torch.relu(x @ x.t()))")
    task = await executor.trace(write(text), TracePolicy())
    assert isinstance(task, Task)
    assert task.badges[0].name == "constant"
    assert task.warnings[0] == task.badges[0].words
    seen = await executor.dispatch(task)
    assert any(item.name in ("aten::mm", "aten::addmm") for item in seen.kernels)
    assert seen.runs > 1
    assert seen.needs is not None
    assert seen.needs.judge_bytes >= seen.needs.least_bytes


def test_what_pytorch_runs_is_listed_with_times():
    x = torch.randn(256, 256)
    seen, runs = dispatched(lambda: torch.softmax(x @ x, -1), "cpu")
    assert runs > 1
    names = [item.name for item in seen]
    assert any(name in ("aten::mm", "aten::_softmax") for name in names)
    assert "aten::view" not in names
    assert all(item.time_ms > 0 and item.calls >= 1 for item in seen)
    assert [item.time_ms for item in seen] == sorted((i.time_ms for i in seen), reverse=True)


def test_what_pytorch_runs_is_timed_warm_and_several_times_but_not_for_ever():
    calls = []

    def forward():
        calls.append(None)
        if len(calls) == 1:
            time.sleep(0.2)  # a first call, which loads and compiles
        return torch.exp(torch.ones(64, 64) * len(calls))

    seen, runs = dispatched(forward, "cpu")
    assert runs == 9
    assert len(calls) == 3 + 9
    (exp,) = (item for item in seen if item.name == "aten::exp")
    assert exp.calls == 1
    calls.clear()
    _, runs = dispatched(forward, "cpu", seconds=0.1)
    assert runs >= 1
    assert len(calls) == 1 + runs  # the first took all the time for warming up
    _, runs = dispatched(lambda: time.sleep(0.05), "cpu", seconds=0.0)
    assert runs == 1


def test_a_task_that_cannot_fit_is_refused_with_the_numbers(made, cpu):
    task = made("return torch.sin(x)", inputs="[torch.rand(2**21, 2**21)]")
    needs = needs_of(task, cpu, Rules())
    refusal = refusal_for(task, needs, "this host")
    assert refusal is not None
    assert refusal.exit_status == 3
    # Input, and an output each for PyTorch and the candidate: 3 x 2^42 x 4 bytes.
    assert needs.least_bytes == 3 * 4 * 2**42
    assert "model needs 52776.6 GB" in refusal.sentence
    assert "this host has" in refusal.sentence


def test_a_task_that_fits_in_parts_only_is_judged_in_parts(made, cpu):
    task = made("return torch.sin(x)", inputs="[torch.rand(64, 64)]")
    needs = needs_of(task, cpu, Rules())
    assert in_parts(needs) == ""
    assert refusal_for(task, needs, "") is None
    tight = needs.model_copy(update={"available_bytes": needs.least_bytes})
    assert "judged in parts" in in_parts(tight)
    assert refusal_for(task, tight, "") is None


def test_a_term_that_may_be_left_out_is_named(made, badges):
    init = "self.layer = nn.Linear(32, 32)"
    task = made("return self.layer(x) * 100 + torch.sigmoid(x) * 1e-7", init=init)
    assert "without the second operand of add number 1" in badges(task)["null_passes"]


def test_a_bias_that_is_zero_at_first_and_a_maximum_that_only_stabilises_are_missed(made, badges):
    init = "self.norm = nn.LayerNorm(32)"
    assert badges(made("return torch.softmax(self.norm(x) * 9, -1)", init=init)) == {}
    assert badges(made("return torch.logsumexp(x, -1)")) == {}


PICKED = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = nn.Sequential(nn.Linear(129, 64), nn.LayerNorm(64), nn.GELU())

    def forward(self, x):
        y = self.part(x)
        return y[y.mean(-1) > 0.28] * 2

def get_inputs():
    return [torch.randn(512, 129)]
"""


@pytest.mark.asyncio(loop_scope="module")
async def test_results_whose_size_depends_on_values_are_refused_in_words(executor, write):
    found = await executor.trace(write(PICKED), TracePolicy())
    assert isinstance(found, Refusal), found
    sizes = r"output 1 depends on what the inputs hold: (\d+) x 64 in the example, (\d+) x 64 on"
    told = re.search(sizes, found.sentence)
    assert told, found.sentence
    assert told[1] != told[2]
    fixed = PICKED.replace("y[y.mean(-1) > 0.28] * 2", "y * (y.mean(-1, keepdim=True) > 0.28)")
    assert isinstance(await executor.trace(write(fixed), TracePolicy()), Task)
