"""Fresh inputs are the same for the same seed, keep their domain, and try a kernel hard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.tools.tasks import DISTRIBUTIONS, PROBES, SHORTENED, Reference, applicable, draw
from kernelwright.tools.tasks.inputs.draws import _fresh
from kernelwright.tools.types import InputSpec, Task, TensorSpec

Model = Callable[..., Task]


def same(a: Sequence[object], b: Sequence[object]) -> bool:
    return all(
        torch.equal(x, y) if isinstance(x, torch.Tensor) and isinstance(y, torch.Tensor) else x == y
        for x, y in zip(a, b, strict=True)
    )


@pytest.fixture(scope="module")
def mixed(traced_once: Model) -> Task:
    return traced_once(
        "def forward(self, x, i, m, k): return torch.softmax(x[i] * m, -1) * k",
        "[torch.randn(16, 8), torch.randint(2, 9, (5,)), torch.rand(8) > 0.9, 2.5]",
    )


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_draws_repeat_under_their_seed_and_differ_under_another(
    mixed: Task, distribution: str
) -> None:
    first = draw(mixed, distribution, 1, "cpu")
    torch.manual_seed(12345)
    assert same(first, draw(mixed, distribution, 1, "cpu"))
    assert not same(first, draw(mixed, distribution, 2, "cpu"))


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_draws_have_the_shape_type_and_range_of_the_task(mixed: Task, distribution: str) -> None:
    x, i, m, k = draw(mixed, distribution, 1, "cpu")
    assert isinstance(x, torch.Tensor)
    assert isinstance(i, torch.Tensor)
    assert isinstance(m, torch.Tensor)
    assert (x.shape, x.dtype) == ((16, 8), torch.float32)
    assert (i.dtype, m.dtype) == (torch.int64, torch.bool)
    assert 2 <= int(i.min()) <= int(i.max()) <= 8
    assert k == 2.5


def test_the_tasks_own_values_can_have_short_significands(model: Model) -> None:
    task = model(
        "def forward(self, p, x): return p.log() @ x",
        "[torch.rand(8, 4).softmax(-1), 1e-20 * torch.randn(5, 4).t().relu()]",
    )
    p, x = draw(task, SHORTENED, 1, "cpu")
    own_p, own_x = draw(task, "task", 1, "cpu")
    assert isinstance(x, torch.Tensor)
    assert isinstance(own_x, torch.Tensor)
    assert torch.equal(p, own_p)  # type: ignore[arg-type]
    assert (x.stride(), x.dtype) == (own_x.stride(), own_x.dtype)
    assert torch.equal(x == 0, own_x == 0)
    moved = x[x != 0] / own_x[x != 0]
    assert 0.5 < float(moved.min()) <= float(moved.max()) < 1.01
    significands, _ = torch.frexp(x[x != 0].abs().double())
    assert set(significands.tolist()) == {(1 + 2.0**-9 + 2.0**-12) / 2}
    assert applicable(task, PROBES[0])
    short = draw(task, PROBES[0], 1, "cpu")[0]
    torch.testing.assert_close(short.sum(-1), torch.ones(8))  # type: ignore[union-attr]


def test_an_unknown_distribution_is_an_error(mixed: Task) -> None:
    with pytest.raises(ValueError, match="unknown distribution 'odd'"):
        draw(mixed, "odd", 0, "cpu")
    with pytest.raises(ValueError, match="unknown distribution 'odd'"):
        applicable(mixed, "odd")


def test_booleans_keep_their_mean(model: Model) -> None:
    task = model("def forward(self, m): return m * 1.0", "[torch.rand(1000) > 0.9]")
    values = draw(task, "normal", 1, "cpu")[0]
    assert isinstance(values, torch.Tensor)
    assert 0.05 < values.float().mean() < 0.2


def test_offsets_ascend_and_permutations_permute(model: Model) -> None:
    task = model(
        "def forward(self, x, o, p): return self.e(x, o)[0] + p.sum()",
        "[torch.randint(0, 50, (64,)), torch.arange(0, 64, 8), torch.randperm(20) + 5]",
        "self.e = nn.EmbeddingBag(50, 4)",
    )
    _, offsets, order = draw(task, "normal", 7, "cpu")
    assert isinstance(offsets, torch.Tensor)
    assert isinstance(order, torch.Tensor)
    assert offsets[0] == 0
    assert bool((offsets.diff() >= 0).all())
    assert sorted(order.tolist()) == list(range(5, 25))


def test_inputs_of_a_logarithm_keep_their_domain(model: Model) -> None:
    task = model(
        "def forward(self, p, t): return F.kl_div(p.log(), t, reduction='batchmean')",
        "[torch.rand(8, 4).softmax(-1), torch.rand(8, 4).softmax(-1)]",
    )
    reference = Reference.build(task, "cpu")
    for distribution in DISTRIBUTIONS:
        if applicable(task, distribution):
            args = draw(task, distribution, 1, "cpu")
            torch.testing.assert_close(args[0].sum(-1), torch.ones(8))  # type: ignore[union-attr]
            assert reference.is_defined_on(args)
    assert not applicable(task, "large_offset")


def test_a_forward_is_run_for_real_once_and_once_for_every_input_that_may_have_a_domain(
    model: Model, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    forward = f"""
    def forward(self, x, y):
        if type(x) is torch.Tensor:
            with open({str(runs)!r}, "a") as file:
                file.write("run ")
        return x * 2 + y
    """
    task = model(forward, "[torch.rand(8, 32), torch.rand(8, 32)]")
    assert [spec.domain for spec in task.inputs] == ["any", "any"]
    assert runs.read_text().split() == ["run"] * 3


@pytest.mark.parametrize(
    ("forward", "domain"),
    [
        ("return x.sqrt()", "unit"),
        ("return torch.log(x + 1)", "unit"),
        ("return torch.log(x.exp() + 1)", "any"),
        ("return torch.log_softmax(x, -1)", "any"),
        ("return x.var(-1).sqrt()", "any"),
        ("return x.pow(0.5)", "unit"),
        ("return x ** 3", "any"),
        ("return F.binary_cross_entropy(torch.sigmoid(self.w * x), x)", "unit"),
        ("return F.binary_cross_entropy_with_logits(self.w * x, x)", "any"),
        ("return (x * x).mean(-1).rsqrt()", "any"),
        ("return x * 2", "any"),
    ],
)
def test_uniform_inputs_are_freed_unless_the_forward_needs_them(
    model: Model, forward: str, domain: str
) -> None:
    body = f"def forward(self, x):\n    {forward}"
    task = model(body, "[torch.rand(8, 32)]", "self.w = nn.Parameter(torch.ones(32))")
    assert task.inputs[0].domain == domain


def test_a_reference_that_is_undefined_or_raises_is_no_judge(model: Model) -> None:
    reference = Reference.build(model("def forward(self, x): return 1 / x"), "cpu")
    assert reference.is_defined_on([torch.ones(8, 32)])
    assert not reference.is_defined_on([torch.zeros(8, 32)])
    assert not reference.is_defined_on(["not a tensor"])


def test_only_softmax_like_tasks_get_masks(model: Model) -> None:
    assert applicable(model("def forward(self, x): return torch.softmax(x, -1)"), "masked")
    assert not applicable(model("def forward(self, x): return x.exp()"), "masked")


def test_constant_rows_have_no_variance_and_the_offset_is_large(mixed: Task) -> None:
    rows = draw(mixed, "constant_rows", 1, "cpu")[0]
    far = draw(mixed, "large_offset", 1, "cpu")[0]
    assert isinstance(rows, torch.Tensor)
    assert isinstance(far, torch.Tensor)
    assert bool((rows.var(-1) == 0).all())
    assert 900 < far.mean() < 1100


@given(
    shape=st.lists(st.integers(1, 5), max_size=4).map(tuple),
    dtype=st.sampled_from(["float32", "float16", "bfloat16", "float64"]),
    distribution=st.sampled_from([d for d in DISTRIBUTIONS if d != "task"]),
    domain=st.sampled_from(["any", "nonnegative", "unit", "distribution"]),
)
def test_floating_draws_stay_in_their_domain(
    shape: tuple[int, ...], dtype: str, distribution: str, domain: str
) -> None:
    tensor = TensorSpec.model_validate({"shape": shape, "dtype": dtype})
    spec = InputSpec.model_validate({"name": "x", "tensor": tensor, "domain": domain})
    values = _fresh(spec, distribution, torch.Generator().manual_seed(0))
    assert isinstance(values, torch.Tensor)
    assert (tuple(values.shape), str(values.dtype)) == (shape, f"torch.{dtype}")
    assert not bool(values.isnan().any())
    if domain != "any":
        assert bool((values >= 0).all())
    if domain in ("unit", "distribution") and shape:
        assert bool((values <= 1).all())


def test_strides_of_inputs_are_reproduced(model: Model) -> None:
    inputs = "[torch.randn(4, 8).t(), torch.randn(4, 1).expand(4, 8)]"
    task = model("def forward(self, x, y): return x.t() + y", inputs)
    x, y = draw(task, "normal", 1, "cpu")
    assert isinstance(x, torch.Tensor)
    assert isinstance(y, torch.Tensor)
    assert (x.stride(), y.stride()) == ((1, 8), (1, 0))
