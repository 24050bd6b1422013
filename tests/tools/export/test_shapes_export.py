"""An export that serves a range of sizes with kernels that are compiled once."""

import asyncio
import json
from pathlib import Path

import pytest
import torch

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.codegen.library.kernel_library import fastest, repertoire_for
from kernelwright.tools.codegen.library.sizes import AllSizes
from kernelwright.tools.evaluate.executors.sizes import SizedTasks
from kernelwright.tools.export import Material, OwnBackward, export_folder
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.tasks import trace
from kernelwright.tools.tasks.gradients.backward import backward_of
from kernelwright.tools.tasks.reference import Reference
from kernelwright.tools.types import Task, TracePolicy, Verdict
from kernelwright.tools.types.shapes import SizeCheck, VerifiedShapes

from .test_own_backward import BACKWARD_KERNEL, BACKWARD_PLAN

BEGIN = """
mine, theirs = module.Model(), module.reference.Model()

def same(x):
    torch.testing.assert_close(mine(x), theirs(x), rtol=1e-5, atol=1e-6)
"""


class Rereading:
    """Reads the text again in this process."""

    async def retrace(self, task: Task, policy: TracePolicy) -> Task:
        made = trace(task.source, task.path, policy)
        assert isinstance(made, Task), made
        return made


@pytest.fixture(scope="module")
def served(material, softmax) -> Material:
    """A softmax as the playbook writes it, for batches of 1 to 64."""
    policy = TracePolicy(shapes="batch=1..64")
    task = trace(softmax[0], "model.py", policy)
    assert isinstance(task, Task), task
    hardware = hardware_profile("generic CPU")
    repertoire = repertoire_for(task, hardware)
    choices = fastest(repertoire.options())
    draft = repertoire.draft(choices)
    winner = new_candidate(repertoire.language, draft.kernel, draft.plan)
    sizes = SizedTasks(Rereading(), task, policy, 1)  # type: ignore[arg-type]
    asyncio.run(sizes.read(sizes.telling))
    made = AllSizes(sizes.traced, sizes.telling, winner, hardware).written(choices)
    assert made is not None
    candidate, variants = made
    checks = tuple(
        SizeCheck(sizes=found, verdict=Verdict.CORRECT, reason="right") for found in sizes.looked_at
    )
    shapes = VerifiedShapes(
        candidate=candidate.id,
        dimensions=task.dimensions,
        outputs=sizes.outputs,
        variants=variants,
        checks=checks,
    )
    usual = material()
    update = {"task": task, "candidate": candidate, "shapes": shapes}
    return usual.model_copy(update=update)


@pytest.fixture(scope="module")
def folder(served, tmp_path_factory) -> Path:
    return export_folder(served, tmp_path_factory.mktemp("home") / "soft")


def test_a_softmax_for_64_batches_is_compiled_once_and_right_at_all(
    folder, taken_home, tmp_path, served
) -> None:
    assert served.shapes.variants == 1
    code = """
import os
built = tmp = Path(os.environ["KERNELWRIGHT_EXPORT_CACHE"])
before = set(built.rglob("*.so"))
with torch.no_grad():
    for batch in range(1, 65):
        same(torch.randn(batch, 96))
assert module.COUNTS == {"kernel": 64}, module.COUNTS
assert len(set(built.rglob("*.so")) - before) == 1, set(built.rglob("*")) - before
"""
    taken_home(BEGIN + code, folder, cwd=tmp_path)


def test_other_sizes_call_the_reference_and_are_counted(folder, taken_home, tmp_path) -> None:
    code = """
with torch.no_grad():
    for x in (torch.randn(65, 96), torch.randn(0, 96), torch.randn(8, 95), torch.randn(2, 8, 96)):
        same(x)
    same(torch.randn(96, 8).t())
    same(torch.randn(8, 96, dtype=torch.float64))
same(torch.randn(8, 96).requires_grad_())
assert module.COUNTS == {
    "reference: shape of x": 4, "reference: layout of x": 1, "reference: dtype of x": 1,
    "reference: gradient": 1,
}, module.COUNTS
"""
    taken_home(BEGIN + code, folder, cwd=tmp_path)


@pytest.mark.slow
def test_a_compiled_graph_takes_every_batch(folder, taken_home, tmp_path) -> None:
    code = """
graphs = []

def count(graph, inputs):
    graphs.append(graph)
    return graph.forward

compiled = torch.compile(mine, fullgraph=True, backend=count)
with torch.no_grad():
    for batch in (5, 6, 7, 31, 64, 70):
        x = torch.randn(batch, 96)
        torch.testing.assert_close(compiled(x), theirs(x), rtol=1e-5, atol=1e-6)
assert module.COUNTS == {"kernel (compiled)": 5}, module.COUNTS
assert len(graphs) == 3, len(graphs)  # one size, any size, the reference beyond
"""
    taken_home(BEGIN + code, folder, cwd=tmp_path)


def test_the_evidence_names_the_sizes_and_verify_looks_at_them(folder, outside, tmp_path) -> None:
    evidence = json.loads((folder / "evidence.json").read_text())
    (batch,) = evidence["shapes"]["dimensions"]
    assert (batch["name"], batch["low"], batch["high"]) == ("batch", 1, 64)
    looked = [check["sizes"] for check in evidence["shapes"]["checks"]]
    assert [1] in looked
    assert [64] in looked
    words = (folder / "VERIFICATION.md").read_text()
    assert "`batch` = 1..64: `x[0]`" in words
    assert "| 41 | correct |" in words
    text = (folder / "verify.py").read_text()
    code = f"__file__ = {str(folder / 'verify.py')!r}\nimport sys\nsys.argv = ['', '--no-timing']\n"
    said = outside(code + text, cwd=folder)
    assert "batch=1 " in said
    assert "batch=64 " in said
    assert "WRONG" not in said


@pytest.fixture(scope="module")
def trained(served, material, tmp_path_factory) -> Path:
    """The same with kernels for its gradients, which are for the example's sizes."""
    found = backward_of(Reference.build(served.task, "cpu"), served.task, [torch.randn(48, 96)])
    backward = material(found.source, BACKWARD_KERNEL, BACKWARD_PLAN, forced=True)
    slow = found.model_copy(update={"step_ms": 100.0})  # so that the kernels' step pays
    own = OwnBackward(found=slow, material=backward)
    whole = served.model_copy(update={"backward": own})
    return export_folder(whole, tmp_path_factory.mktemp("home") / "trained")


GRADIENTS = """
assert module.GRADIENTS == "own"

def gradient_of(model, batch):
    torch.manual_seed(batch)
    x, g = torch.randn(batch, 96, requires_grad=True), torch.randn(batch, 96)
    return torch.autograd.grad(model(x), x, g)[0]
"""


def test_gradients_are_our_kernels_at_the_examples_size_and_the_references_at_others(
    trained, taken_home, tmp_path
) -> None:
    code = """
for batch in (48, 7, 64, 48):
    torch.testing.assert_close(gradient_of(mine, batch), gradient_of(theirs, batch))
assert module.COUNTS == {"kernel (recorded)": 2, "reference: gradient": 2}, module.COUNTS
assert module.backward.COUNTS == {"kernel": 2}, module.backward.COUNTS
module.GRADIENTS = "recompute"
torch.testing.assert_close(gradient_of(mine, 7), gradient_of(theirs, 7))
with torch.no_grad():
    same(torch.randn(7, 96))
assert module.COUNTS["kernel (recorded)"] == 3, module.COUNTS
assert module.backward.COUNTS == {"kernel": 2}, module.backward.COUNTS
"""
    taken_home(BEGIN + GRADIENTS + code, trained, cwd=tmp_path)
    words = (trained / "VERIFICATION.md").read_text()
    assert "At other sizes than the example's the reference runs both ways" in words


@pytest.mark.exhaustive
def test_compiled_gradients_at_other_sizes_are_the_references(
    trained, taken_home, tmp_path
) -> None:
    code = """
for batch in (48, 7, 64):
    torch._dynamo.reset()
    compiled = torch.compile(mine, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(gradient_of(compiled, batch), gradient_of(theirs, batch))
assert module.COUNTS == {"kernel (compiled)": 1}, module.COUNTS
assert module.backward.COUNTS == {"kernel (compiled)": 1}, module.backward.COUNTS
"""
    taken_home(BEGIN + GRADIENTS + code, trained, cwd=tmp_path)
