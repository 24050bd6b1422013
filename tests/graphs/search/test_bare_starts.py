"""A person's bare kernel as a start without a model: launched by what its source says."""

from types import ModuleType

import pytest

from kernelwright.agents.coder.coder import CoderRequest, PlaybookCoder
from kernelwright.agents.roles import StartingCoder
from kernelwright.agents.shared.facts import Start
from kernelwright.graphs.search.options.run_terms import launched
from kernelwright.tools.types import Refusal

KERNEL = 'extern "C" void twice(const float* x, float* y, long long {size}) {{}}\n'


def bare(size: str) -> Start:
    return Start(language="cpp", kernel=KERNEL.format(size=size), name="twice.cpp")


async def test_its_launches_are_candidates_and_the_idea_says_how(toy: ModuleType) -> None:
    start = launched(bare("batch"), toy.TASK, has_model=False)
    assert isinstance(start, Start)
    assert start.inferred
    assert 'launch("twice", args=(x, out0, 1024))' in start.idea.mechanism
    coder = StartingCoder(PlaybookCoder(toy.ToyRepertoire(toy.LOOPS)), start)
    written = (await coder.write(CoderRequest(idea=start.idea, count=1))).candidates
    assert [item.origin for item in written] == ["person"] * (1 + len(start.others))
    assert len({item.plan for item in written}) == len(written)


def test_what_cannot_be_told_is_asked_for_in_a_sentence(toy: ModuleType) -> None:
    answer = launched(bare("what"), toy.TASK, has_model=False)
    assert isinstance(answer, Refusal)
    assert answer.sentence.startswith("twice.cpp has no plan, and which size what is")
    assert "// launch:" in answer.sentence
    broken = Start(language="cpp", kernel="int x;", name="x.cpp")
    assert isinstance(launched(broken, toy.TASK, has_model=False), Refusal)


@pytest.mark.parametrize("plan", ["", "def forward(x):\n    return x\n"])
def test_a_model_writes_plans_itself_and_a_plan_stays(toy: ModuleType, plan: str) -> None:
    start = bare("n").model_copy(update={"plan": plan})
    assert launched(start, toy.TASK, has_model=True) == start
    assert launched(None, toy.TASK, has_model=False) is None
