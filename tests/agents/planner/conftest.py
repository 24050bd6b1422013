"""A task that nothing had to trace, and a client that says what a test lets it say."""

from collections.abc import Callable

import pytest

from kernelwright.agents.planner.model import ModelPlanner
from kernelwright.agents.planner.planner import PlannerInput
from kernelwright.agents.planner.playbook import PlaybookPlanner
from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.types import (
    DType,
    Graph,
    InputSpec,
    Node,
    Prompt,
    Ref,
    Reply,
    Scalar,
    Task,
    TensorSpec,
    WeightSpec,
)

SOURCE = '''class Model(nn.Module):
    """Adds a bias, then one; ``` closes no fence of ours, {{ nothing }} is filled in."""
'''


class Scripted:
    """Says the given texts one after another, and keeps what it was asked."""

    def __init__(self, *texts: str | Exception) -> None:
        self.texts = list(texts)
        self.asked: list[Prompt] = []

    async def say(self, prompt: Prompt) -> Reply:
        self.asked.append(prompt)
        text = self.texts.pop(0)
        if isinstance(text, Exception):
            raise text
        return Reply(text=text, model="scripted")


@pytest.fixture
def scripted() -> type[Scripted]:
    return Scripted


def ref(node: str) -> Ref:
    return Ref(node=node)


@pytest.fixture
def task() -> Task:
    rows = TensorSpec(shape=(64, 128), dtype=DType.FLOAT32)
    bias = TensorSpec(shape=(128,), dtype=DType.FLOAT32)
    nodes = (
        Node(name="x", op="input", out=(rows,)),
        Node(name="p_bias", op="weight", out=(bias,), target="bias"),
        Node(name="add", op="aten.add.Tensor", args=(ref("x"), ref("p_bias")), out=(rows,)),
        Node(name="more", op="aten.add.Scalar", args=(ref("add"), Scalar(value=1)), out=(rows,)),
    )  # fmt: skip
    return Task(
        name="bias", path="bias.py", source=SOURCE, source_sha256="0", entry="Model",
        entry_kind="kernelbench", inputs=(InputSpec(name="x", tensor=rows, minimum=-1, maximum=1),),
        outputs=(rows,), weights=(WeightSpec(name="bias", tensor=bias),),
        graph=Graph(nodes=nodes, inputs=("x",), outputs=("more",)),
        bytes_moved=2 * rows.size_bytes, flops=2 * rows.numel,
    )  # fmt: skip


@pytest.fixture
def hardware() -> Hardware:
    return hardware_profile("h200")


@pytest.fixture
def planner_of(task, hardware, repertoire) -> Callable[[Scripted], ModelPlanner]:
    def make(client: Scripted) -> ModelPlanner:
        return ModelPlanner(client, task, hardware, PlaybookPlanner(repertoire), repertoire)

    return make


@pytest.fixture
def planner_input() -> PlannerInput:
    return PlannerInput(round=2, wanted=2, floor_ms=0.01, baseline_ms=0.05)
