"""A C++ family added by its own file alone is proposed, written, compiled and judged right."""

from pathlib import Path

import pytest

from kernelwright.agents.coder.coder import CoderRequest, PlaybookCoder
from kernelwright.agents.planner.planner import PlannerInput
from kernelwright.agents.planner.playbook import PlaybookPlanner
from kernelwright.tools.codegen.cpp import CppEmitter
from kernelwright.tools.codegen.cpp.emitter import FAMILIES
from kernelwright.tools.codegen.cpp.expressions import expression
from kernelwright.tools.codegen.cpp.frame import Frame
from kernelwright.tools.codegen.cpp.strategies import Case, emitted
from kernelwright.tools.codegen.ir import Access, Emitted, Loop, Strategy
from kernelwright.tools.codegen.ir.kernel_family import Fit, LoopFamily
from kernelwright.tools.codegen.library.kernel_library import repertoire_for
from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.hardware import detect
from kernelwright.tools.types import DType, Task, TracePolicy, Verdict

SOURCE = """
import torch

class Model(torch.nn.Module):
    def forward(self, x, bias):
        return torch.relu(x) + bias

def get_inputs():
    return [torch.randn(33, 17), torch.randn(17)]
"""
SHORT = Rules(candidate_s=60.0, screen_s=0.01, screen_samples_max=4, warm_up_s=0.0)
NAIVE = Strategy(
    name="naive",
    title="one loop over the elements",
    mechanism="one thread computes one element after the other",
    reason="it is the shortest kernel there is",
    category="arithmetic",
    metric="time",
    memory="single pass",
    compute="scalar",
    parallel="none",
    efficiency=1.0,
)


def _fit(case: Case) -> Fit:
    plain = all(stmt.dtype is DType.FLOAT32 for stmt in case.loop.body)
    return Fit.NO if case.loop.inner or not plain else Fit.BEST


def _emit(case: Case, name: str, prefix: str) -> Emitted:
    frame = Frame(case.loop, prefix)
    step = frame.tune("STEP", (1, 2))
    lines = [f"for (int64_t i = 0; i < {frame.loop.rows}; i += {step})"]
    lines += [f"for (int64_t j = i; j < i + {step} && j < {frame.loop.rows}; ++j) {{"]
    lines += [*frame.decoded(frame.loop.outer, "j"), *_statements(frame.loop), "}"]
    body = "\n".join(f"    {line}" for line in lines)
    head = f'extern "C" void {frame.function}({frame.signature(exported=True)})'
    tunables = "\n".join(one.line for one in frame.tunables)
    return emitted(frame, f"{tunables}\n{head} {{\n{body}\n}}\n")


def _at(loop: Loop, access: Access) -> str:
    names = Frame(loop, "k").coordinates(loop.outer)
    terms = [f"{names[stride.by]} * {stride.step}" for stride in access.strides]
    return f"{access.buffer}[{' + '.join([str(access.offset), *terms])}]"


def _statements(loop: Loop) -> list[str]:
    lines = []
    for stmt in loop.body:
        args, types = [f"v_{name}" for name in stmt.args], ["float"] * len(stmt.args)
        given = _at(loop, stmt.access) if stmt.access is not None else ""
        text = given or expression(stmt, args, types, None)
        lines.append(f"const float v_{stmt.name} = {text};")
    return [*lines, *(f"{_at(loop, store.access)} = v_{store.value};" for store in loop.stores)]


TOY = LoopFamily((NAIVE.name,), _fit, lambda case: [NAIVE], _emit)


@pytest.mark.exhaustive
async def test_a_family_is_proposed_written_and_judged_right(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(SOURCE)
    here = detect("cpu").model_copy(update={"measured": True, "bandwidth_gb_s": 1e6})
    executor = LocalExecutor(here, tmp_path, seed=7, rules=SHORT)
    try:
        task = await executor.trace(tmp_path / "module.py", TracePolicy())
        assert isinstance(task, Task)
        repertoire = repertoire_for(task, here, CppEmitter((TOY, *FAMILIES)))
        planned = await PlaybookPlanner(repertoire).plan(
            PlannerInput(round=1, wanted=1, floor_ms=1e-9)
        )
        order = CoderRequest(idea=planned.ideas[0], count=2)
        written = (await PlaybookCoder(repertoire).write(order)).candidates
        assert len(written) == 2
        for candidate in written:
            assert "L0=naive" in candidate.strategies
            judged = await executor.evaluate(task, candidate, "screen")
            assert judged.verdict is Verdict.CORRECT, judged.reason
    finally:
        await executor.aclose()
