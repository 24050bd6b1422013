"""A language that Kernelwright does not know, brought by a package, from its text to its export.

The package is one file with an entry point, put where both this process and the workers behind
their wall look for packages; nothing of Kernelwright's is edited.
"""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernelwright.agents.coder import answers
from kernelwright.agents.prompting.templates import contract, craft
from kernelwright.tools.candidates import ContractError
from kernelwright.tools.candidates.plan import validate_plan
from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.export import Material, export_folder, kernelbench
from kernelwright.tools.hardware import detect
from kernelwright.tools.languages import (
    Built,
    CompileFailure,
    Language,
    compile_candidate,
    default_language,
    language_named,
    languages,
    load_candidate,
    new_candidate,
    parse_kernel,
    register,
    registry,
)
from kernelwright.tools.types import Candidate, EnvironmentLacksError, Task, TracePolicy, Verdict

KERNEL = """
// tune: STEP in 4, 1
kernel void scale(global const float* x, global float* y, long n, float by) {
    for (long i = 0; i < n; i += STEP)
        for (long j = i; j < n && j < i + STEP; ++j) y[j] = x[j] * by;
}
"""
PLAN = """def forward(x):
    y = empty_like(x)
    launch("scale", args=(x, y, x.numel(), 3.0))
    return y
"""
TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 3.0

def get_inputs():
    return [torch.randn(64, 33)]
"""
RULES = Rules(
    candidate_s=60.0, screen_s=0.01, screen_samples_max=4, precise_s=0.02, pairs_min=3, pairs_max=5,
    warm_up_s=0.0,
)  # fmt: skip


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Language]:
    """The toy, installed as a package with an entry point."""
    site = tmp_path / "site"
    described = site / "toy_language-0.1.dist-info"
    described.mkdir(parents=True)
    shutil.copy(Path(__file__).with_name("toy_language.py"), site)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-language\nVersion: 0.1\n")
    (described / "entry_points.txt").write_text(
        f"[{registry.ENTRY_POINTS}]\ntoy = toy_language:TOY\n"
    )
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.setattr(registry, "_known", dict(registry._known))
    monkeypatch.setattr(registry, "_asked_packages", False)
    answers.kernel_words.cache_clear()
    yield language_named("toy")
    answers.kernel_words.cache_clear()
    sys.modules.pop("toy_language", None)


@pytest.fixture
def candidate(toy: Language) -> Candidate:
    return new_candidate("toy", KERNEL, PLAN)


def test_a_package_adds_a_language_and_ours_stay_first(toy: Language) -> None:
    assert [item.spec.name for item in languages()] == ["cuda", "cpp", "toy"]
    assert default_language("cpu").spec.name == "cpp"
    with pytest.raises(ValueError, match="'cpp' already"):
        register(type("Other", (), {"spec": default_language("cpu").spec})())


def test_a_language_that_nobody_brings_is_what_the_machine_lacks() -> None:
    with pytest.raises(EnvironmentLacksError, match="no kernel language 'rust' here"):
        new_candidate("rust", KERNEL, PLAN)


def test_its_signatures_tunables_and_plans_are_held_against_the_contract(
    candidate: Candidate,
) -> None:
    source = parse_kernel(KERNEL, "toy")
    assert source.letters == {"scale": "PPqf"}
    assert [(item.name, item.value) for item in candidate.settings] == [("STEP", 4)]
    assert validate_plan(PLAN, source).launches == ("scale",)
    with pytest.raises(ContractError, match="takes 4 arguments"):
        validate_plan(PLAN.replace(", 3.0", ""), source)
    with pytest.raises(ContractError, match="no `extern"):
        new_candidate("toy", "float helper(float x) { return x; }", PLAN)


def test_what_a_model_writes_in_it_is_recognised(toy: Language) -> None:
    text = f"```opencl\n{KERNEL}```\n\n```python\n{PLAN}```\n"
    (draft,) = answers.read_answer(text, "", lambda _: None).drafts
    assert draft.language == "toy"
    assert "kernelwright.hpp" in contract("toy")
    assert craft("toy") == ""


async def test_it_is_compiled_loaded_and_inspected(candidate: Candidate) -> None:
    built = await compile_candidate(candidate, architecture=None, timeout_s=120)
    assert isinstance(built, Built), built
    x = torch.randn(1000)
    (y,) = load_candidate(candidate, built, "cpu")((x,), {})
    assert torch.equal(y, x * 3)
    readings = await language_named("toy").inspect(candidate, None)
    assert "vectorised_loops" in {item.name for item in readings}
    wrong = new_candidate("toy", KERNEL.replace("* by", "* nothing"), PLAN)
    failed = await compile_candidate(wrong, architecture=None, timeout_s=120)
    assert isinstance(failed, CompileFailure)
    assert "nothing" in failed.message


VERIFY = """
import importlib.util, sys, torch
spec = importlib.util.spec_from_file_location("m", sys.argv[1] + "/module.py")
module = importlib.util.module_from_spec(spec)
sys.modules["m"] = module
spec.loader.exec_module(module)
x = torch.randn(64, 33)
with torch.no_grad():
    assert torch.equal(module.Model()(x), x * 3)
assert module.COUNTS == {"kernel": 1}, module.COUNTS
"""


@pytest.mark.exhaustive
async def test_the_real_judge_finds_it_correct_and_an_export_runs_without_us(
    candidate: Candidate, tmp_path: Path
) -> None:
    (tmp_path / "task.py").write_text(TASK)
    hardware = detect("cpu").model_copy(update={"measured": True, "bandwidth_gb_s": 1e6})
    executor = LocalExecutor(hardware, tmp_path / "scratch", seed=7, rules=RULES)
    try:
        task = await executor.read(tmp_path / "task.py", TracePolicy())
        assert isinstance(task, Task), task
        evaluation = await executor.evaluate(task, candidate, "screen")
        baselines = await executor.baselines(task, eager_only=True)
    finally:
        await executor.aclose()
    assert evaluation.verdict is Verdict.CORRECT, evaluation.verification.reason
    assert evaluation.median_ms is not None
    material = Material(
        task=task,
        candidate=candidate,
        evaluation=evaluation,
        baselines=baselines,
        hardware=hardware,
        forced=True,
    )
    folder = export_folder(material, tmp_path / "faster")
    assert (folder / "kernel.cl").read_text() == language_named("toy").with_settings(
        KERNEL, candidate.settings
    )
    runs_without_us(folder)
    assert "class ModelNew" in kernelbench(material)


def runs_without_us(folder: Path) -> None:
    command = [sys.executable, "-I", "-c", VERIFY, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
