"""One text for every size, in both languages, from texts that were written for a few."""

import asyncio
from collections.abc import Callable
from functools import cache

import pytest

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.candidates.plan import validate_plan
from kernelwright.tools.codegen.library.any_size import Text, any_size, same, settled
from kernelwright.tools.codegen.library.kernel_library import fastest, repertoire_for
from kernelwright.tools.codegen.library.sizes import AllSizes
from kernelwright.tools.codegen.library.variants import Variant, size_name, together
from kernelwright.tools.evaluate.executors.sizes import SizedTasks
from kernelwright.tools.languages import Built, compile_candidate, new_candidate, parse_kernel
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Candidate, Setting, Task, TracePolicy

MODULE = """
import torch
from torch import nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(96)
    def forward(self, x, y):
        return {}
def get_inputs():
    return [torch.randn(64, 3, 96), torch.randn(64, 3, 96)]
"""
FORWARDS = {
    "softmax": "torch.softmax(x + y, -1)",
    "pointwise": "nn.functional.gelu(x) * y",
    "a norm and a reduction": "self.norm(x), (x * y).sum(-1)",
    "a mean over all but the batch": "x.mean((1, 2)), y.transpose(1, 2).contiguous()",
}


class Rereading:
    """Reads the text again in this process."""

    async def retrace(self, task: Task, policy: TracePolicy) -> Task:
        made = trace(task.source, task.path, policy)
        assert isinstance(made, Task), made
        return made


@cache
def read(forward: str, shapes: str) -> SizedTasks:
    """The task at all sizes for which kernels are written."""
    policy = TracePolicy(shapes=shapes)
    task = trace(MODULE.format(forward), "model.py", policy)
    assert isinstance(task, Task), task
    sizes = SizedTasks(Rereading(), task, policy, 1)  # type: ignore[arg-type]
    asyncio.run(sizes.read(sizes.telling))
    return sizes


def written(forward: str, shapes: str, device: str) -> tuple[Candidate, int, Candidate]:
    """The candidate for all sizes with its variants, and the one for the example's."""
    sizes = read(forward, shapes)
    task = sizes.traced[sizes.example]
    hardware = hardware_profile(device)
    repertoire = repertoire_for(task, hardware)
    choices = fastest(repertoire.options())
    draft = repertoire.draft(choices)
    winner = new_candidate(repertoire.language, draft.kernel, draft.plan)
    made = AllSizes(sizes.traced, sizes.telling, winner, hardware).written(choices)
    assert made is not None
    return *made, winner


ONE_ON_CPU = ("a norm and a reduction", "generic_cpu")
OTHERS_ON_CPU = [(forward, "generic_cpu") for forward in FORWARDS if forward not in ONE_ON_CPU]


@pytest.mark.parametrize(
    ("forward", "device"),
    [
        *((forward, "H200") for forward in FORWARDS),
        ONE_ON_CPU,
        *(pytest.param(*one, marks=pytest.mark.exhaustive) for one in OTHERS_ON_CPU),
    ],
)
def test_a_batch_of_any_size_takes_one_set_of_kernels(forward: str, device: str) -> None:
    made, variants, winner = written(FORWARDS[forward], "batch=1..64", device)
    assert variants == 1  # the winner's own text is one of these
    assert "= x.shape[0]" in made.plan
    validate_plan(made.plan, parse_kernel(made.kernel, made.language))
    assert {*made.settings} == {*winner.settings}
    assert "53" not in made.kernel
    assert "53" not in made.plan


def test_cuda_text_with_a_size_as_argument_compiles() -> None:
    made, *_ = written(FORWARDS["softmax"], "batch=1..64", "H200")
    built = asyncio.run(compile_candidate(made, architecture="sm_90a", timeout_s=90))
    assert isinstance(built, Built), built


@pytest.mark.parametrize(
    "device", [pytest.param("generic_cpu", marks=pytest.mark.exhaustive), "H200"]
)
def test_single_sizes_have_kernels_of_their_own(device: str) -> None:
    forward = "torch.softmax(x * y, -1)"
    made, variants, *_ = written(forward, "batch=1..64, x[2]=32|96|100", device)
    assert variants == 3
    assert "if x_2 == 32:" in made.plan
    kernels = parse_kernel(made.kernel, made.language).functions
    assert len({function.name for function in kernels}) == len(kernels) >= 3
    architecture = hardware_profile(device).architecture
    built = asyncio.run(compile_candidate(made, architecture=architecture, timeout_s=90))
    assert isinstance(built, Built), built


def test_a_winner_of_another_text_stays_for_its_own_sizes() -> None:
    """As one does that was written for the example alone."""
    own = Text(kernel="// tune: L0_N in 1\nvoid l0() {}\n", plan="def forward(x):\n    return x\n")
    general = Text(
        kernel="// tune: L0_N in 2\nvoid l0() {}\n", plan='def forward(x):\n    launch("l0")\n'
    )
    variants = [Variant(sizes=(("n", 8),), text=own), Variant(sizes=(), text=general)]
    made = together(variants, {"n": (0, 0)})
    assert made is not None
    assert made.plan.splitlines()[1:4] == [
        "    n = x.shape[0]",
        "    if n == 8:",
        "        return x",
    ]
    assert "launch('l0s1')" in made.plan
    assert "void l0s1()" in made.kernel
    assert "tune: L0s1_N in 2" in made.kernel


def text(kernel: Callable[[int], str]) -> Text | None:
    plan = 'def forward(x):\n    launch("f", args=(x,))\n    return x\n'
    texts = {n: Text(kernel=kernel(n), plan=plan) for n in (5, 7, 11)}
    return any_size(texts, "n", (0, 1), "cpp")


def test_a_size_is_handed_through_the_functions_that_need_it() -> None:
    made = text(
        lambda n: (
            f"static void g(float* x) {{ x[1 + {3 * n}] = {n + 2}; }}\n"
            'extern "C" void f(float* x) { g(x); }\n'
        )
    )
    assert made is not None
    assert "g(float* x, const int64_t n) { x[1 + (3 * n)] = (n + 2); }" in made.kernel
    assert "f(float* x, const int64_t n) { g(x, n); }" in made.kernel
    assert "args=(x, n)" in made.plan
    assert "n = x.shape[1]" in made.plan


@pytest.mark.parametrize(
    "kernel",
    [
        lambda n: f'extern "C" void f(float* x) {{ float y[{n}]; }}',  # the compiler wants a number
        lambda n: f'extern "C" void f(float* x) {{ x[0] = {n * n}; }}',
        lambda n: f'extern "C" void f(float* x) {{ x[0] = {1 / n:.9f}f; }}',
        lambda n: 'extern "C" void f(float* x) { ' + "x[0] += 1; " * n + "}",
        lambda n: f"struct S {{ int a = {n}; }};\n" + 'extern "C" void f(float* x) {}',
    ],
)
def test_what_a_size_decides_otherwise_has_no_such_text(kernel: Callable[[int], str]) -> None:
    assert text(kernel) is None


def test_a_count_that_a_mean_divides_by_is_a_floating_argument() -> None:
    made = text(lambda n: f'extern "C" void f(float* x) {{ x[0] /= {10 * n}.0f; x[1] = {n}.0; }}')
    assert made is not None
    assert "x[0] /= float(10 * n); x[1] = double(n);" in made.kernel
    plans = [f"def forward(x):\n    return aten.mul(x, {3 * n}.0)\n" for n in (5, 7, 11)]
    texts = {n: Text(kernel="", plan=plan) for n, plan in zip((5, 7, 11), plans, strict=True)}
    whole = any_size(texts, "n", (0, 0), "cpp")
    assert whole is not None
    assert "aten.mul(x, 1.0 * (3 * n))" in whole.plan


def test_a_strategy_that_small_sizes_lack_is_written_for_the_others() -> None:
    assert "x.shape[0]" in written("(x * y).sum()", "batch=1..64", "generic_cpu")[0].plan


def test_settings_are_fixed_and_names_are_free() -> None:
    given = Text(
        kernel="#include <a>\n// tune: N in 1, 2\n// require: N < 2\nvoid f() {}\n", plan="batch"
    )
    made = settled(given, (Setting(name="N", value=2),))
    assert made.kernel == "#include <a>\n// tune: N in 2\nvoid f() {}\n"
    assert size_name("batch", [given]) == "batch_size"
    assert size_name("x[1]", [given], ["x_1"]) == "x_1_size"
    plan = "def forward(x):\n    return x\n"
    one = Text(kernel="a  b // c\n", plan=plan)
    assert same(one, Text(kernel="a b", plan=plan.replace("x", "x")))
