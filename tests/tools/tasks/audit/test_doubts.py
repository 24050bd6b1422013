"""What a graph alone gives away about a task; honest look-alikes stand beside each."""

from __future__ import annotations

import pytest

from kernelwright.tools.types import Task


def names(task: Task) -> set[str]:
    return {badge.name for badge in task.badges}


def reason(task: Task, name: str) -> str:
    return next(badge.reason for badge in task.badges if badge.name == name)


@pytest.mark.parametrize(
    ("forward", "value"),
    [
        ("x = x.amax(1, keepdim=True)\n    return F.gelu(x - x.mean(1, keepdim=True))", "0"),
        ("return torch.clamp(torch.minimum(x, torch.tensor(0.0)), min=0.0, max=1.0)", "0"),
        ("return torch.softmax(x.sum(1, keepdim=True), dim=1)", "1"),
        ("return (x * 0.0) @ x.t()", "0"),
        ("return torch.relu(-torch.relu(x))", "0"),
        ("return torch.clamp(torch.tanh(x), min=2.0, max=2.0)", "2"),
        ("return F.dropout(torch.relu(x) * 0, p=0.0) + 1", "1"),
    ],
)
def test_an_output_that_can_only_be_one_number_is_badged(model, forward, value):
    task = model(f"def forward(self, x):\n    {forward}")
    assert f"elements of the output is {value}, whatever the inputs are" in reason(task, "constant")
    assert any(words.startswith("constant: ") for words in task.warnings)


@pytest.mark.parametrize(
    "forward",
    [
        "return F.gelu(x - x.mean(1, keepdim=True))",
        "return torch.clamp(torch.minimum(x, torch.tensor(1.0)), min=0.0, max=1.0)",
        "return torch.softmax(x, dim=1)",
        "return torch.logsumexp(x, 1)",
        "return F.hardswish(torch.tanh(x)).clamp(min=-0.25)",
        "return torch.relu(x) - torch.relu(-x).abs().sqrt()",
        "return F.layer_norm(x, (32,)) + F.elu(x) + F.softplus(x) + F.mish(x)",
        "return x.masked_fill(x > 0, float('-inf')).softmax(-1)",
        "return torch.cumsum(x, 1)",
        "return x - x.flip(1)",
        "return x.view(32, 8) - x.t()",
        "return x.t().contiguous()",
        "return F.mse_loss(torch.sigmoid(x), x)",
        "return F.batch_norm(x, None, None, training=True)",
    ],
)
def test_honest_forwards_have_no_badge(model, forward):
    assert model(f"def forward(self, x):\n    {forward}").badges == ()


@pytest.mark.parametrize(
    "forward",
    [
        "return x", "return x.clone()", "return x.view(4, 64)", "return x.t()",
        "return x * 1.0", "return torch.relu(x.unsqueeze(0).amax(0) + 0) * 0 + x",
    ],
)  # fmt: skip
def test_a_forward_that_computes_nothing_is_void(model, forward):
    task = model(f"def forward(self, x):\n    {forward}")
    assert "the forward returns input x as it is" in reason(task, "void")


def test_work_that_no_result_needs_is_listed(model):
    task = model(
        """
        def forward(self, x):
            lost = torch.sin(x) @ torch.cos(x).t()
            kept = x.clone()
            kept.add_(1)
            return torch.relu(torch.relu(kept))
        """
    )
    told = reason(task, "dead_operators")
    assert "reaching no result: sin" in told
    assert "mm" in told
    assert "add_" not in told
    assert "changing nothing: relu_1" in told


def test_reductions_over_one_element_are_idle(model):
    task = model(
        """
        def forward(self, x):
            x = x.sum(1, keepdim=True)
            return torch.logsumexp(x.amax(1, keepdim=True) * 2, 1)
        """
    )
    assert "changing nothing: amax" in reason(task, "dead_operators")


def test_an_unused_input_and_updated_buffers_are_badged(model):
    task = model(
        """
        def forward(self, x, y):
            self.seen.add_(1)
            return torch.sin(x)
        """,
        inputs="[torch.randn(8, 32), torch.randn(2)]",
        init="self.register_buffer('seen', torch.zeros(()))",
    )
    assert reason(task, "insensitive") == "the forward does not use y"
    assert reason(task, "updates_buffers") == "the forward updates seen"


def test_randomness_names_the_operator_that_draws(model):
    task = model("def forward(self, x):\n    return F.dropout(x, 0.5, training=True) + x")
    assert task.draws_random
    assert "native_dropout" in reason(task, "draws_random")


def test_dropped_zeros_are_still_zeros(model):
    task = model("def forward(self, x):\n    return F.dropout((x * 0), 0.5, training=True)")
    assert names(task) >= {"constant", "draws_random"}
