"""Modules of our own with the playbook's plain answers, judged by the real executor."""

from pathlib import Path

import pytest

from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.languages import default_language
from kernelwright.tools.learning.judging import Judge
from kernelwright.tools.learning.writing.examples import written
from kernelwright.tools.learning.writing.families import LEARNT, modules


@pytest.mark.parametrize(
    "target",
    [
        pytest.param("cpu", marks=pytest.mark.exhaustive),
        pytest.param("cuda", marks=pytest.mark.gpu),
    ],
)
async def test_answers_are_right_and_what_was_broken_is_mended(target: str, tmp_path: Path) -> None:
    rules = Rules(screen_s=0.03, compile_ahead=False)
    executor = LocalExecutor.create(target, tmp_path, rules=rules)
    try:
        language = default_language((await executor.hardware()).kind).spec.name
        drawn = modules(len(LEARNT), 0, small=True)[::3]
        found = [item async for item in written(drawn, Judge(executor, language), target, seed=0)]
    finally:
        await executor.aclose()
    assert [item.problem.family for item in found] == [module.family for module in drawn]
    for item in found:
        answers = [one for one in item.attempts if "broken" not in one.id and not one.repairs]
        assert {one.verdict.value for one in answers} == {"correct"}
        assert all(one.speedup for one in answers)
        (mended,) = (one for one in item.attempts if one.repairs)
        assert "This answer failed" in mended.question[1].content
