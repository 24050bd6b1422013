"""A tiny task, a client that reads from a script, and kernels that are really compiled."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from kernelwright.agents.coder.coder import CoderRequest, PlaybookCoder
from kernelwright.agents.coder.model import ModelCoder
from kernelwright.agents.llm.client import LLMError
from kernelwright.agents.shared.facts import Start
from kernelwright.profiles.load import Hardware, all_hardware
from kernelwright.tools.codegen.library.kernel_library import repertoire_for
from kernelwright.tools.types import (
    DType,
    Graph,
    Idea,
    InputSpec,
    Node,
    Prompt,
    Ref,
    Reply,
    Task,
    TensorSpec,
)

KERNEL = """// memory=streamed once
// compute=vector
// parallel=element ranges
#include "kernelwright.hpp"
// tune: GRAIN in 1024, 4096
extern "C" void shift(const float* x, float* y, int64_t n) {
#pragma omp parallel for schedule(static, GRAIN)
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] + 1.0f;
}
"""
PLAN = """def forward(x):
    y = empty_like(x)
    launch("shift", args=(x, y, x.numel()))
    return y
"""
ANSWER = f"I add one in a single pass.\n\n```cpp\n{KERNEL}```\n```python\n{PLAN}```\n"
IDEA = Idea(
    id="r1i1", title="One pass", mechanism="add in one pass", reason="memory bound",
    category="fusion", metric="bytes", round=1, origin="model",
)  # fmt: skip


def make_task() -> Task:
    spec = TensorSpec(shape=(64, 33), dtype=DType.FLOAT32)
    nodes = (
        Node(name="x", op="input", out=(spec,)),
        Node(name="y", op="aten.relu.default", args=(Ref(node="x"),), out=(spec,)),
    )
    return Task(
        name="shift", path="shift.py", source="def forward(x): ...", source_sha256="0",
        entry="Model", entry_kind="kernelbench", inputs=(InputSpec(name="x", tensor=spec),),
        outputs=(spec,), graph=Graph(nodes=nodes, inputs=("x",), outputs=("y",)),
        bytes_moved=2 * spec.size_bytes, flops=spec.numel,
    )  # fmt: skip


@dataclass
class ScriptedClient:
    """Answers by its script; an exception in it is raised."""

    script: list[str | Exception]
    asked: list[Prompt] = field(default_factory=list)

    async def say(self, prompt: Prompt) -> Reply:
        self.asked.append(prompt)
        if not self.script:
            raise LLMError("the script is over")
        line = self.script.pop(0)
        if isinstance(line, Exception):
            raise line
        return Reply(text=line, model="scripted")


@pytest.fixture
def task() -> Task:
    return make_task()


@pytest.fixture
def cpu() -> Hardware:
    return all_hardware()["cpu"]


@pytest.fixture
def answer() -> str:
    """A good answer: one kernel that adds one, with its plan."""
    return ANSWER


@pytest.fixture
def coder_request() -> CoderRequest:
    return CoderRequest(idea=IDEA, count=1, round=1)


MakeCoder = Callable[..., tuple[ModelCoder, ScriptedClient]]


@pytest.fixture
def make_coder(cpu: Hardware) -> MakeCoder:
    """A coder whose model speaks by a script."""

    def make(
        *script: str | Exception, task: Task | None = None, start: Start | None = None
    ) -> tuple[ModelCoder, ScriptedClient]:
        client, known = ScriptedClient(list(script)), task or make_task()
        repertoire = repertoire_for(known, cpu)
        fallback = PlaybookCoder(repertoire)
        return ModelCoder(client, known, cpu, fallback, repertoire, start), client

    return make
