"""The coder with everything real but the model: compiled, judged wrong, repaired, judged right."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelwright.agents.coder.coder import CoderRequest, Failure
from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.hardware import detect
from kernelwright.tools.types import Task, TracePolicy, Verdict

MakeCoder = Callable[..., tuple]  # type: ignore[type-arg]
MODULE = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1.0


def get_inputs():
    return [torch.randn(64, 33)]
"""
SHORT = Rules(candidate_s=60.0, screen_s=0.01, screen_samples_max=4, warm_up_s=0.0)
FIX = """The last element was left out.

```edit
base: {base}
<<<<<<< SEARCH
i < n - 1
=======
i < n
>>>>>>> REPLACE
```
"""


@pytest.fixture
def here() -> Hardware:
    update = {"measured": True, "bandwidth_gb_s": 1e6}
    return detect("cpu").model_copy(update=update)


@pytest.mark.exhaustive
async def test_a_compile_error_and_a_wrong_result_are_repaired_from_what_the_judge_said(
    make_coder: MakeCoder, coder_request: CoderRequest, answer: str, here: Hardware, tmp_path: Path
) -> None:
    (tmp_path / "shift.py").write_text(MODULE)
    executor = LocalExecutor(here, tmp_path, seed=7, rules=SHORT)
    try:
        task = await executor.trace(tmp_path / "shift.py", TracePolicy())
        assert isinstance(task, Task)
        broken = answer.replace("i < n;", "i < n - 1;").replace("1.0f", "one")
        coder, client = make_coder(broken, task=task)
        (first,) = (await coder.write(coder_request)).candidates
        judged = await executor.evaluate(task, first, "screen")
        assert judged.verdict is Verdict.COMPILE_ERROR

        client.script = [answer.replace("i < n;", "i < n - 1;")]
        (second,) = (
            await coder.repair(coder_request, Failure(candidate=first, evaluation=judged))
        ).candidates
        assert "was not declared" in client.asked[-1].messages[-1].text
        judged = await executor.evaluate(task, second, "screen")
        assert judged.verdict in (Verdict.WRONG_RESULT, Verdict.NOT_WRITTEN)

        client.script = [FIX.format(base=second.id)]
        failure = Failure(candidate=second, evaluation=judged)
        (third,) = (await coder.repair(coder_request, failure)).candidates
        assert "the last element" in client.asked[-1].messages[-1].text
        judged = await executor.evaluate(task, third, "screen")
        assert judged.verdict is Verdict.CORRECT
        assert third.parents == (second.id,)
    finally:
        await executor.aclose()
