"""Random numbers of a forward: which stay in a graph, how they are spelt, and who draws them."""

import pytest
import torch

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.candidates.plan.vocabulary import ADMITTED
from kernelwright.tools.codegen.library.kernel_library import fastest, repertoire_for
from kernelwright.tools.tasks import Reference, draw
from kernelwright.tools.tasks.outline import outline_of
from kernelwright.tools.tasks.regions import find_regions, in_order
from kernelwright.tools.types import Node
from kernelwright.tools.types.graph import DRAWS, draws

NOISY = """
def forward(self, x):
    scale = torch.rand(8, 1, device=x.device)
    noise = torch.randn_like(x)
    steps = torch.randint(0, 3, x.shape)
    return torch.softmax(x * scale + noise, dim=1) + steps * torch.normal(0.0, 2.0, (32,))
"""
KEPT_OUT = {
    "dropout": "F.dropout(x, 0.5)",
    "a draw from values": "x + torch.bernoulli(x.sigmoid())",
    "a draw in place": "x + torch.empty_like(x).exponential_()",
    "numbers that follow a layout": "x + torch.randn_like(x.t()).t()",
    "numbers that nothing uses": "(torch.randn(3), x + torch.rand(8, 32))[1]",
}


def drawn(task):
    return [node.op for node in task.graph.nodes if draws(node.op)]


def test_draws_stay_in_order_with_their_shapes_and_types(model):
    task = model(NOISY)
    assert drawn(task) == [
        "aten.rand.default",
        "aten.randn.default",
        "aten.randint.low",
        "aten.normal.float_float",
    ]
    assert task.draws_random
    assert not task.unkept_draws
    assert any("compared with the generator's state fixed" in words for words in task.warnings)


@pytest.mark.parametrize("expression", KEPT_OUT.values(), ids=KEPT_OUT.keys())
def test_what_nobody_else_could_draw_alike_is_named(model, expression):
    task = model(f"def forward(self, x):\n    return {expression}")
    assert task.draws_random
    assert task.unkept_draws


def test_a_randomised_relu_draws_in_training_alone(model):
    for training in (True, False):
        task = model(f"def forward(self, x):\n    return F.rrelu(x, training={training})")
        assert task.draws_random is training


def test_the_reference_draws_the_same_numbers_each_time_and_others_under_another_seed(model):
    task = model(NOISY)
    reference = Reference.build(task, "cpu")
    args = draw(task, "task", 3, "cpu")
    (first,), (again,) = reference.forward(args), reference.forward(args)
    assert torch.equal(first, again)
    reference.generators.seed = 1
    assert not torch.equal(first, reference.forward(args)[0])


def test_the_truth_in_float64_draws_the_tasks_own_numbers(model):
    task = model(NOISY)
    reference = Reference.build(task, "cpu")
    args = draw(task, "task", 3, "cpu")
    (own,) = reference.forward(args)
    (truth,) = reference.double().forward(args)
    assert truth.dtype is torch.float64
    torch.testing.assert_close(truth, own.double(), rtol=1e-5, atol=1e-5)
    assert not torch.equal(truth, own.double())


def test_a_forward_without_draws_leaves_the_generators_alone(model):
    task = model("def forward(self, x):\n    return x + 1")
    reference, args = Reference.build(task, "cpu"), draw(task, "task", 3, "cpu")
    before = torch.get_rng_state()
    reference.forward(args)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("device", ["h200", "cpu"])
def test_the_rules_write_the_draws_in_the_references_order(model, device):
    repertoire = repertoire_for(model(NOISY), hardware_profile(device))
    plan = repertoire.draft(fastest(repertoire.options())).plan
    at = [plan.index(f"aten.{name}(") for name in ("rand", "randn", "randint", "normal")]
    assert at == sorted(at)
    assert "launch(" in plan


def test_regions_end_at_draws_and_draws_keep_their_order(model):
    task = model(NOISY)
    reference = Reference.build(task, "cpu")
    outline = outline_of(reference, task, draw(task, "task", 3, "cpu"), ADMITTED)
    regions = find_regions(outline.graph)
    names = {node.name: node.op for node in outline.graph.nodes}
    assert not any(draws(names[name]) for region in regions for name in region.nodes)
    ordered = [one.op for one in in_order(outline.graph, regions) if isinstance(one, Node)]
    assert [op for op in ordered if draws(op)] == drawn(task)


def test_every_draw_of_a_plan_is_told_its_device():
    assert DRAWS < ADMITTED
