"""Which form of a task a search tries next, from the first candidate to the last."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.agents.coder.coder import PlaybookCoder
from kernelwright.agents.critic.critic import PlaybookCritic
from kernelwright.agents.planner.planner import PlannerInput
from kernelwright.agents.planner.playbook import PlaybookPlanner
from kernelwright.agents.profiler.profiler import PlaybookProfiler
from kernelwright.agents.roles import AgentSet
from kernelwright.agents.shared.candidate_priority import suspect
from kernelwright.graphs.search.run import start_search
from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.archive import Archive
from kernelwright.tools.codegen.library.kernel_library import (
    PlaybookRepertoire,
    Recipe,
    repertoire_for,
)
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Candidate, Effort, Task, TracePolicy, Verdict
from kernelwright.tools.types.run import Summary

SOURCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(64, 128, 3)

    def forward(self, x):
        return torch.nn.functional.mish(self.conv(x))

def get_inputs():
    return [torch.randn(64, 64, 126, 126)]
"""
TURNED, WRITTEN = "channels_last", "as_written"
Tried = Callable[..., Awaitable[list[str]]]


def name_of(candidate: Candidate) -> str:
    """A candidate's form, and whether it rounds the factors of products."""
    found = suspect(candidate)
    return f"{found.form}_rounded" if found.rounded else found.form


@pytest.fixture(scope="module")
def task() -> Task:
    found = trace(SOURCE, "/tmp/convolved.py", TracePolicy())
    assert isinstance(found, Task)
    return found


@pytest.fixture(scope="module")
def repertoire(task: Task) -> PlaybookRepertoire:
    # A card on which the library convolves, in one layout or the other.
    return repertoire_for(task, hardware_profile("A100"))


@pytest.fixture
def tried(repertoire: PlaybookRepertoire, toy: ModuleType, tmp_path: Path) -> Tried:
    """The forms of one round in the order in which the device was asked about them.

    The device's answer is a time for each form; a form without one gives wrong results.
    """

    async def run(among: PlaybookRepertoire = repertoire, **times_ms: float) -> list[str]:
        class Device(toy.ToyExecutor):  # type: ignore[name-defined, misc]
            def cost(self, candidate: Candidate) -> float:
                return times_ms[name_of(candidate)]

        def wrong(candidate: Candidate, effort: Effort) -> Verdict | None:
            return None if name_of(candidate) in times_ms else Verdict.WRONG_RESULT

        device = Device(wrong=wrong, eager_ms=20.0, compile_ms=None)
        agents = AgentSet.of_search(
            planner=PlaybookPlanner(among),
            coder=PlaybookCoder(among),
            profiler=PlaybookProfiler(),
            critic=PlaybookCritic(),
        )
        profile = toy.PROFILE.model_copy(
            update={"rounds": 1, "ideas_per_round": 4, "candidates_per_idea": 1, "tuning_trials": 0}
        )
        summary = await start_search(
            Path("toy.py"), TracePolicy(), "cpu", profile, home=tmp_path, executor=device,
            make_agents=lambda around: agents,
        )  # fmt: skip
        assert isinstance(summary, Summary)
        archive = Archive.open(summary.run, tmp_path)
        forms = {item.candidate.id: name_of(item.candidate) for item in archive.candidates()}
        archive.close()
        return [forms[id] for id, effort in device.asked if effort == "screen" and id in forms]

    return run


async def test_the_second_candidate_has_the_other_layout(tried: Tried) -> None:
    first, second, *others = await tried(channels_last=3.0, as_written=4.0)
    assert (first, second) == (TURNED, WRITTEN)
    assert set(others) == {TURNED}


async def test_a_refused_layout_is_not_tried_again_before_the_other(tried: Tried) -> None:
    first, second, *others = await tried(as_written=4.0)
    assert (first, second) == (TURNED, WRITTEN)
    assert len(others) == 2, "no repair writes more of a form in doubt"


async def test_where_every_form_is_refused_each_was_tried_before_any_other_strategy(
    tried: Tried,
) -> None:
    forms = await tried()
    assert set(forms[:2]) == {TURNED, WRITTEN}


async def test_what_takes_next_to_no_time_is_not_done_in_another_way(task: Task) -> None:
    """Turned in every call, the weight's few kilobytes take microseconds beside milliseconds."""
    repertoire = repertoire_for(task, hardware_profile("A100"), prepares=False)
    ways = [option for option in repertoire.options() if option.loop == "CL1"]
    assert len(ways) > 1
    planner_input = PlannerInput(round=1, wanted=40, floor_ms=0.001)
    ideas = (await PlaybookPlanner(repertoire).plan(planner_input)).ideas
    recipes = [recipe for idea in ideas if (recipe := Recipe.from_idea(idea))]
    assert {recipe.changed for recipe in recipes} >= {"CL0", "CL2"}
    assert "CL1" not in {recipe.changed for recipe in recipes}


@pytest.mark.exhaustive
async def test_rounded_factors_that_are_refused_send_for_the_forms_exact_products(
    task: Task, tried: Tried
) -> None:
    """PyTorch's own convolution may be exact where TF32 is allowed, and no halves hold then."""
    hopper = repertoire_for(task, hardware_profile("h200"))
    first, second, *_ = await tried(among=hopper, convolutions=2.0, channels_last=9.0)
    assert (first, second) == ("convolutions_rounded", "convolutions")
    right = await tried(among=hopper, convolutions_rounded=1.0, convolutions=2.0)
    assert right[0] == "convolutions_rounded"
