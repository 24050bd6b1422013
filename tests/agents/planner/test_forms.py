"""The planner chooses between a task's forms as it does between strategies."""

from collections.abc import Callable

import pytest

from kernelwright.agents.planner.planner import PlannerInput
from kernelwright.agents.planner.playbook import PlaybookPlanner
from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.archive import Standing
from kernelwright.tools.codegen.library.forms.forms import AS_WRITTEN
from kernelwright.tools.codegen.library.kernel_library import (
    FORM,
    PlaybookRepertoire,
    repertoire_for,
)
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Task, TracePolicy

SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2048, 2048)

    def forward(self, x):
        return torch.relu((self.linear(x) * 0.5).sum(1, keepdim=True)) + x

def get_inputs():
    return [torch.randn(2048, 2048)]
"""


@pytest.fixture(scope="module")
def repertoire() -> PlaybookRepertoire:
    task = trace(SOURCE, "/tmp/summed.py", TracePolicy())
    assert isinstance(task, Task)
    return repertoire_for(task, hardware_profile("h200"))


async def test_the_next_round_begins_with_a_form_that_is_not_in_doubt(
    repertoire: PlaybookRepertoire, standing: Callable[..., Standing]
) -> None:
    planner = PlaybookPlanner(repertoire)
    first = await planner.plan(PlannerInput(round=1, wanted=1, floor_ms=0.001))
    assert '"algebra"' in first.ideas[0].recipe
    wrong = standing((f"{FORM}=algebra",), None)
    situation = PlannerInput(
        round=2, wanted=3, floor_ms=0.001, tried=first.ideas, standings=(wrong,)
    )
    second = await planner.plan(situation)
    assert all(AS_WRITTEN in idea.recipe for idea in second.ideas)


async def test_the_planner_tries_both_forms_and_counts_only_their_own_loops(
    repertoire: PlaybookRepertoire,
) -> None:
    proposal = await PlaybookPlanner(repertoire).plan(
        PlannerInput(round=1, wanted=40, floor_ms=0.001)
    )
    tried = [idea for idea in proposal.ideas if '"form"' in idea.recipe]
    titles = [idea.title for idea in tried]
    assert "the operators as the module wrote them" in titles
    assert len({idea.recipe for idea in tried}) == len(tried)
    for idea in tried:
        both = '"L0"' in idea.recipe and '"AL0"' in idea.recipe
        assert not both, "no recipe speaks of loops of two forms"
