"""Other sizes are traced and judged by the real judge, one worker for all of them."""

from collections.abc import Callable

import pytest

from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.executors.sizes import SizedTasks
from kernelwright.tools.types import Candidate, Task, TracePolicy, Verdict
from kernelwright.tools.types.shapes import SizeCheck

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.exhaustive
async def test_a_candidate_is_judged_at_every_size_that_is_named(
    executor: LocalExecutor, rows: Task, kernel: Callable[..., Candidate]
) -> None:
    policy = TracePolicy(shapes="batch=36..38")
    task = await executor.retrace(rows, policy)
    assert isinstance(task, Task), task
    sizes = SizedTasks(executor, task, policy, 1)
    await sizes.read(sizes.ends)
    assert sizes.at((36,)).outputs[0].shape == (36, 129)
    checks, wrong = await sizes.checked(kernel())
    assert not wrong
    assert {check.sizes for check in checks} == {*sizes.looked_at}
    assert {"task", "heavy_tail", "masked"} <= {*checks[0].distributions}
    found: list[SizeCheck] = []
    assert await sizes.checked(kernel(), checks[1:], found.append) == (checks, "")
    assert found == checks[:1], "what an earlier session saw is not looked at again"
    plan = kernel().plan
    baked = plan.replace("args=(x, y, rows,", "args=(x, y, 37,")
    assert baked != plan
    checks, wrong = await sizes.checked(kernel(plan=baked))
    assert wrong.startswith("at batch=36: ")
    assert checks[-1].verdict is not Verdict.CORRECT
