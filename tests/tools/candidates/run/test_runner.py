import pytest
import torch

from kernelwright.tools.candidates import ContractError, LaunchRefused
from kernelwright.tools.candidates.run import PlanRunner
from kernelwright.tools.types import Setting

SCALE = """def forward(x):
    y = empty_like(x)
    launch("scale", args=(x, y, x.numel(), 2.0))
    return y
"""


async def test_a_kernel_runs_on_real_tensors(make_runner) -> None:
    runner = await make_runner(SCALE)
    x = torch.randn(3, 5)
    (y,) = runner((x,), {})
    assert torch.equal(y, x * 2)


async def test_gradients_are_off_while_a_plan_runs(make_runner) -> None:
    runner = await make_runner("def forward(x):\n    return aten.relu(x)\n")
    (y,) = runner((torch.randn(3, requires_grad=True),), {})
    assert not y.requires_grad


async def test_outputs_may_be_several(make_runner) -> None:
    runner = await make_runner("def forward(x, k):\n    return x, x.t(), empty(k)\n")
    x = torch.randn(2, 3)
    first, second, third = runner((x, 4), {})
    assert first is x
    assert second.shape == (3, 2)
    assert third.shape == (4,)


async def test_weights_are_read_and_buffers_updated(make_runner) -> None:
    plan = (
        'def forward(x):\n    update("mean", aten.mean(x))\n    return aten.mul(x, weights["w"])\n'
    )
    runner = await make_runner(plan)
    weights = {"w": torch.nn.Parameter(torch.tensor(3.0)), "mean": torch.zeros(())}
    x = torch.randn(8)
    (y,) = runner((x,), weights)
    assert torch.equal(y, x * 3)
    assert torch.equal(weights["mean"], x.mean())


async def test_an_update_must_fit_its_buffer(make_runner) -> None:
    runner = await make_runner('def forward(x):\n    update("mean", x)\n    return x\n')
    with pytest.raises(LaunchRefused, match=r"'mean' has shape \(2,\), not \(8,\)"):
        runner((torch.zeros(8),), {"mean": torch.zeros(2)})


async def test_prepare_runs_once_and_its_tensors_are_read_later(make_runner) -> None:
    plan = (
        'def prepare(weights):\n    w = weights["w"]\n    y = empty_like(w)\n'
        '    launch("scale", args=(w, y, w.numel(), 2.0))\n    return {"twice": y}\n'
        'def forward(x):\n    return aten.add(x, prepared["twice"])\n'
    )
    runner = await make_runner(plan)
    weights = {"w": torch.ones(4)}
    runner.prepare(weights)
    (y,) = runner((torch.zeros(4),), weights)
    assert torch.equal(y, torch.full((4,), 2.0))


async def test_reading_before_prepare_is_a_refusal(make_runner) -> None:
    plan = (
        'def prepare(weights):\n    return {"w": weights["w"]}\n'
        'def forward(x):\n    return prepared["w"]\n'
    )
    runner = await make_runner(plan)
    with pytest.raises(LaunchRefused, match="line 4"):
        runner((torch.zeros(1),), {"w": torch.zeros(1)})


async def test_settings_are_macros_of_the_kernel_and_names_of_the_plan(make_runner) -> None:
    kernel = """// tune: N in 1, 3
extern "C" void fill(int* y) { y[0] = N; }
"""
    plan = (
        'def forward(x):\n    y = empty(N, "int32")\n    launch("fill", args=(y,))\n    return y\n'
    )
    for value in (1, 3):
        runner = await make_runner(plan, kernel, settings=[Setting(name="N", value=value)])
        (y,) = runner((torch.zeros(1),), {})
        assert y.shape == (value,)
        assert y[0] == value


async def test_helpers_give_what_their_names_say(make_runner) -> None:
    plan = """def forward(x):
    a = zeros((2, 3))
    b = full([2], -inf, dtype="float64")
    c = full_like(x, 7)
    d = zeros_like(x, dtype="bool")
    e = empty_like(x.t())
    f = x[0, 1:3]
    g = x.to("float16")
    h = aten.arange(3, dtype="int64")
    i = aten.sum.dim_IntList(x, [0], dtype="float64")
    j = empty((1,), x.dtype) if x.dtype == "float32" else x
    return a, b, c, d, e, f, g, h, i, j
"""
    x = torch.randn(3, 4)
    a, b, c, d, e, f, g, h, i, j = (await make_runner(plan))((x,), {})
    assert torch.equal(a, torch.zeros(2, 3))
    assert torch.equal(b, torch.full((2,), float("-inf"), dtype=torch.float64))
    assert torch.equal(c, torch.full((3, 4), 7.0))
    assert d.dtype == torch.bool
    assert e.is_contiguous()
    assert e.shape == (4, 3)
    assert torch.equal(f, x[0, 1:3])
    assert g.dtype == torch.float16
    assert torch.equal(h, torch.arange(3))
    assert torch.equal(i, x.sum(0, dtype=torch.float64))
    assert j.dtype == torch.float32


async def test_strided_tensors_reach_the_kernel_as_they_are(make_runner) -> None:
    kernel = """extern "C" void gather(const float* x, float* y, long long n, long long step) {
    for (long long i = 0; i < n; ++i) y[i] = x[i * step];
}
"""
    plan = (
        "def forward(x):\n    y = empty(x.shape[0])\n"
        '    launch("gather", args=(x, y, x.shape[0], x.stride(0)))\n    return y\n'
    )
    x = torch.randn(5, 3)[:, 1]
    (y,) = (await make_runner(plan, kernel))((x,), {})
    assert torch.equal(y, x)


async def test_memory_comes_from_the_allocator_that_was_given(make_runner) -> None:
    class Poisoned:
        def __init__(self) -> None:
            self.shapes: list[tuple[int, ...]] = []

        def empty(
            self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device
        ) -> torch.Tensor:
            self.shapes.append(tuple(shape))
            return torch.full(shape, 99, dtype=dtype, device=device)

    plan = "def forward(x):\n    return empty((2, 2)), zeros(3), empty_like(x)\n"
    allocator = Poisoned()
    runner = await make_runner(plan, allocator=allocator)
    a, b, c = runner((torch.zeros(4, dtype=torch.int32),), {})
    assert allocator.shapes == [(2, 2), (3,), (4,)]
    assert a.unique().tolist() == [99.0]
    assert b.unique().tolist() == [0.0]
    assert c.unique().tolist() == [99]


def types(**changes: str) -> str:
    """A launch of the kernel with one parameter of every kind, some arguments changed."""
    values = {
        "d": 'empty(1, "float64")',
        "h": 'empty(1, "bfloat16")',
        "b": 'empty(1, "bool")',
        "i": 'empty(1, "int32")',
        "l": 'empty(1, "int64")',
        "u": 'empty(1, "uint8")',
        "c": 'empty(1, "int8")',
        "any": "x",
        "n": "1",
        "k": "-1",
        "flag": "True",
        "z": "1",
    } | changes
    return (
        f'def forward(x):\n    launch("types", args=({", ".join(values.values())}))\n    return x\n'
    )


async def test_every_c_type_takes_what_matches_it(make_runner) -> None:
    for plan in (types(), types(h='empty(1, "float16")', u='empty(1, "bool")', z="2.5")):
        (await make_runner(plan))((torch.zeros(1),), {})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"d": "x"}, r"double\* d takes float64, not float32"),
        ({"h": "x"}, r"uint16_t\* h takes bfloat16 or float16 or int16, not float32"),
        ({"l": 'empty(1, "int32")'}, r"int64|long long\* l takes int64, not int32"),
        ({"d": "x.shape[0]"}, "takes a tensor, not int 1"),
        ({"n": "x"}, "size_t n takes an integer, not a float32 tensor"),
        ({"n": "-1"}, "size_t n cannot hold -1"),
        ({"k": "2 ** 31"}, "int k cannot hold 2147483648"),
        ({"k": "1.5"}, "int k takes an integer, not float 1.5"),
        ({"flag": "2"}, "bool flag cannot hold 2"),
        ({"z": "x"}, "double x takes a number, not a float32 tensor"),
        ({"any": "1 + 1"}, r"void\* any takes a tensor"),
    ],
)
async def test_what_does_not_match_is_refused_in_a_sentence(
    make_runner, changes: dict[str, str], words: str
) -> None:
    runner = await make_runner(types(**changes))
    with pytest.raises(LaunchRefused, match=words) as caught:
        runner((torch.zeros(1),), {})
    assert caught.value.line == 2


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("y = x + 1", "cannot be used in arithmetic"),
        ("y = x.view(7)", "RuntimeError: shape '\\[7\\]' is invalid"),
        ("y = x.shape[9]", "IndexError"),
        ("y = empty(1 // (x.shape[0] - 4))", "ZeroDivisionError"),
        ('y = weights["absent"]', "there is no 'absent' here"),
        ('y = empty(1, "float31")', "'float31' is no element type"),
        ("y = empty(-1)", "-1 is not a shape"),
        ("y = x.to(2)", "2 is no element type"),
        ("y = aten.mm(x, x)", "RuntimeError"),
        ("y = aten.relu(x, x, x)", "relu"),
        ("y = 1", "forward returns int 1, not a tensor"),
        ("y = (x, 1)", "forward returns int 1 among its outputs"),
        ("y = ()", "forward returns tuple"),
    ],
)
async def test_an_impossible_step_is_a_refusal_with_its_line(
    make_runner, line: str, words: str
) -> None:
    runner = await make_runner(f"def forward(x):\n    {line}\n    return y\n")
    with pytest.raises(LaunchRefused, match=words) as caught:
        runner((torch.zeros(4),), {})
    assert caught.value.line in (0, 2)


async def test_too_few_inputs_are_a_refusal(make_runner) -> None:
    runner = await make_runner(SCALE)
    with pytest.raises(LaunchRefused, match="argument"):
        runner((), {})


async def test_memory_that_is_not_there_is_not_the_plans_refusal(make_runner) -> None:
    runner = await make_runner("def forward(x):\n    return empty((1 << 48,))\n")
    with pytest.raises(RuntimeError, match="memory"):
        runner((torch.zeros(1),), {})


async def test_a_policy_narrows_what_a_runner_admits(make_runner) -> None:
    plan = "def forward(x):\n    return aten.relu(x)\n"
    with pytest.raises(ContractError, match="admitted"):
        await make_runner(plan, operators=frozenset({"convolution"}))


async def test_a_plan_sees_no_builtins(make_runner) -> None:
    runner: PlanRunner = await make_runner(SCALE)
    space = runner._forward.__globals__  # type: ignore[attr-defined]
    # It cannot say this name either; torch needs it to be there (see `run.imports`).
    assert set(space["__builtins__"]) == {"__import__"}
    assert "open" not in space


async def test_a_weight_that_changed_between_calls_is_prepared_again(make_runner) -> None:
    plan = (
        'def prepare(weights):\n    return {"twice": aten.mul(weights["w"], 2.0)}\n'
        'def forward(x):\n    return aten.add(x, prepared["twice"])\n'
    )
    runner = await make_runner(plan)
    weights = {"w": torch.ones(4)}
    runner.prepare(weights)
    before = runner.kept(weights)["twice"].data_ptr()
    weights["w"].mul_(3)  # in place, as an optimiser does
    (y,) = runner((torch.zeros(4),), weights)
    assert torch.equal(y, torch.full((4,), 6.0))
    # A graph may have captured where it lies.
    assert runner.kept(weights)["twice"].data_ptr() == before
    (y,) = runner((torch.zeros(4),), {"w": torch.full((4,), 5.0)})
    assert torch.equal(y, torch.full((4,), 10.0))
