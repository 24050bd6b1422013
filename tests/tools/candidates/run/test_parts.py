"""Plans for models that are traced in parts: their functions stand for the parts."""

import pytest
import torch

from kernelwright.tools.candidates.arithmetic import ContractError, LaunchRefused
from kernelwright.tools.candidates.plan.validate import validate_plan
from kernelwright.tools.candidates.run import PlanRunner
from kernelwright.tools.languages import new_candidate, parse_kernel

KERNEL = 'extern "C" void nothing(float* y) {}\n'
PLAN = """
def part_3(x0):
    return aten.mul(x0, weights["scale"])

def forward(x):
    return reference(x)
"""


class Host:
    """A model that calls its part twice."""

    def __call__(self, arguments, weights, forwards):
        (x,) = arguments
        assert list(forwards) == [3]
        return forwards[3](forwards[3](x))


def runner(host):
    candidate = new_candidate("cpp", KERNEL, PLAN)
    launchers = {"nothing": lambda *_: None}
    return PlanRunner(
        candidate, parse_kernel(KERNEL, "cpp"), lambda *_: launchers, "cpu", host=host
    )


def test_the_model_calls_the_plans_parts():
    (result,) = runner(Host())((torch.ones(2),), {"scale": torch.full((2,), 3.0)})
    assert result.tolist() == [9.0, 9.0]


def test_a_model_that_is_traced_whole_has_no_parts():
    with pytest.raises(LaunchRefused, match="traced in parts"):
        runner(None)((torch.ones(2),), {"scale": torch.ones(2)})


@pytest.mark.parametrize(
    "plan",
    [
        "def part_0(x0):\n    return reference(x0)\ndef forward(x):\n    return reference(x)\n",
        'def part_0(x0):\n    update("a", x0)\n    return x0\ndef forward(x):\n    return x\n',
        "def part_x(x0):\n    return x0\ndef forward(x):\n    return x\n",
        "def part_0(x0):\n    return x0\ndef forward(x):\n    return part_0(x)\n",
        "def forward(x):\n    return reference(x, scale=2)\n",
        "def forward(x):\n    y = reference\n    return x\n",
    ],
)
def test_parts_are_the_models_to_call(plan):
    with pytest.raises(ContractError):
        validate_plan(plan, parse_kernel(KERNEL, "cpp"))
