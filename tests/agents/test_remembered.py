"""A kernel for other shapes is written anew, with the strategies and settings of the one known."""

from datetime import UTC, datetime

import pytest

from kernelwright.agents.coder.coder import CoderAnswer, CoderRequest
from kernelwright.agents.planner.planner import PlannerInput, Proposal
from kernelwright.agents.roles import GivenCoder
from kernelwright.agents.roles.remembered import (
    Memories,
    RememberingPlanner,
    _nearest,
    memories,
)
from kernelwright.profiles.load import Hardware
from kernelwright.tools.candidates import valid_settings
from kernelwright.tools.codegen.library.kernel_library import Repertoire, repertoire_for
from kernelwright.tools.codegen.library.plan_check import PlanError
from kernelwright.tools.languages import new_candidate, parse_kernel
from kernelwright.tools.memory import Kept, Proof, TaskKey, key_of
from kernelwright.tools.types import (
    Candidate,
    DType,
    Graph,
    Idea,
    InputSpec,
    ListArg,
    Node,
    Ref,
    Scalar,
    Setting,
    Task,
    TensorSpec,
)

HARDWARE = Hardware(
    name="Toy", kind="cpu", source="test", cores=2, cache_mib=8, memory_gib=8,
    bandwidth_gb_s=20, fp32_tflops=0.1,
)  # fmt: skip


def sums(rows: int) -> Task:
    whole = TensorSpec(shape=(rows, 512), dtype=DType.FLOAT32)
    row = TensorSpec(shape=(rows,), dtype=DType.FLOAT32)
    over = ListArg(items=(Scalar(value=1),))
    nodes = (
        Node(name="x", op="input", out=(whole,)),
        Node(name="e", op="aten.exp.default", args=(Ref(node="x"),), out=(whole,)),
        Node(name="s", op="aten.sum.dim_IntList", args=(Ref(node="e"), over), out=(row,)),
    )
    return Task(
        name="sums", path="sums.py", source="", source_sha256="0", entry="Model",
        entry_kind="kernelbench", inputs=(InputSpec(name="x", tensor=whole),), outputs=(row,),
        graph=Graph(nodes=nodes, inputs=("x",), outputs=("s",)), bytes_moved=1, flops=1,
    )  # fmt: skip


def known(task: Task) -> tuple[Kept, Candidate, TaskKey]:
    """The last strategy of every loop, under the last settings."""
    repertoire, key = repertoire_for(task, HARDWARE), key_of(task)
    assert key is not None
    chosen = {option.loop: option.strategy.name for option in repertoire.options()}
    draft = repertoire.draft(chosen)
    settings = valid_settings(parse_kernel(draft.kernel, "cpp"))[-1]
    candidate = new_candidate(
        "cpp", draft.kernel, draft.plan, settings=settings, strategies=draft.strategies
    )
    proof = Proof(
        median_ms=1.0, baseline="eager", ratio=2.0, ci95=(1.9, 2.1), floor_fraction=0.5, method="",
        seconds=30.0,
    )  # fmt: skip
    kept = Kept.of(
        candidate, key, inputs=(), device="Toy", kind="cpu", proof=proof, at=datetime.now(UTC),
        task="sums", run="sums-1",
    )  # fmt: skip
    assert kept is not None
    return kept, candidate, key


def _unasked() -> Repertoire:
    pytest.fail("nothing had to be written")


def test_the_same_task_gets_the_same_candidate():
    kept, candidate, key = known(sums(256))
    (found,) = memories([kept], [], key, _unasked, device="Toy", seconds=60).items
    assert found.candidate.id == candidate.id
    assert found.exact
    assert found.settled
    elsewhere = memories([kept], [], key, _unasked, device="Other", seconds=60)
    assert not elsewhere.alone


def test_other_shapes_get_its_strategies_and_settings():
    kept, candidate, _ = known(sums(256))
    other = sums(64)
    key = key_of(other)
    assert key is not None
    assert key.structure == kept.key.structure
    (found,) = memories(
        [], [kept], key, lambda: repertoire_for(other, HARDWARE), device="Toy", seconds=30
    ).items
    assert found.candidate.strategies == candidate.strategies
    assert found.candidate.settings == candidate.settings
    assert not found.exact
    assert not found.settled
    assert found.candidate.id != candidate.id
    models = kept.model_copy(update={"origin": "model"})
    assert (
        memories(
            [], [models], key, lambda: repertoire_for(other, HARDWARE), device="Toy", seconds=30
        )
        == Memories()
    )


@pytest.mark.parametrize(
    ("rows", "device", "seconds", "share"),
    [
        (128, "Toy", 30, 0.4),
        (64, "Toy", 30, 0.0),  # a quarter of it
        (128, "Other", 30, 0.0),  # from another device
        (128, "Toy", 100, 0.0),  # which this one may search far longer for
    ],
)
def test_what_a_near_task_reached_of_its_floor_is_known(
    rows: int, device: str, seconds: float, share: float
) -> None:
    kept, _, _ = known(sums(256))
    reached = kept.proof.model_copy(update={"screened_share": 0.4})
    cut = kept.model_copy(update={"run": "cut"})  # ended as a near task's
    like = [cut, kept.model_copy(update={"proof": reached})]
    other = sums(rows)
    key = key_of(other)
    assert key is not None
    found = memories(
        [], like, key, lambda: repertoire_for(other, HARDWARE), device=device, seconds=seconds
    )
    assert len(found.items) == 1
    assert found.near_share == share


def test_settings_that_do_not_fit_give_way_to_the_nearest() -> None:
    def of(threads: int, splits: int) -> tuple[Setting, ...]:
        return (Setting(name="THREADS", value=threads), Setting(name="SPLITS", value=splits))

    valid = [of(64, 8), of(64, 240), of(128, 8), of(128, 240), of(128, 480)]
    assert _nearest(valid, of(128, 264)) == of(128, 240)
    assert _nearest(valid, of(256, 480)) == of(128, 480)


class Other:
    """Plans and writes everything else."""

    async def plan(self, planner_input: PlannerInput) -> Proposal:
        assert all(idea.origin == "library" for idea in planner_input.tried)
        idea = Idea(id="r1i1", title="", mechanism="", reason="", category="", metric="")
        return Proposal(ideas=(idea,), reasoning="other")

    async def write(self, request: CoderRequest) -> CoderAnswer:
        return CoderAnswer(candidates=(), notes=("other",))


@pytest.mark.parametrize(("rounds", "alone"), [(3, True), (1, False)])
async def test_what_is_known_of_this_very_task_has_the_first_round_to_itself(
    rounds: int, alone: bool
):
    kept, candidate, key = known(sums(256))
    given = memories([kept], [], key, _unasked, device="Toy", seconds=30)
    planner, coder = RememberingPlanner(Other(), given), GivenCoder(Other(), given.candidates)
    proposal = await planner.plan(PlannerInput(round=1, rounds=rounds, wanted=4, floor_ms=0.0))
    assert len(proposal.ideas) == (1 if alone else 2)
    first = await coder.write(CoderRequest(idea=proposal.ideas[0], count=1))
    assert [item.id for item in first.candidates] == [candidate.id]
    assert first.candidates[0].idea == proposal.ideas[0].id
    later = await planner.plan(PlannerInput(round=2, rounds=rounds, wanted=4, floor_ms=0.0))
    other = await coder.write(CoderRequest(idea=later.ideas[0], count=1))
    assert other.notes == ("other",)


def test_what_cannot_be_assembled_for_other_shapes_is_told_and_the_next_is_taken():
    kept, candidate, _ = known(sums(256))
    other = sums(64)
    key = key_of(other)
    assert key is not None
    good = repertoire_for(other, HARDWARE)

    class Broken:
        """Cannot assemble the first plan that it is asked for."""

        language, asked = good.language, 0
        options = staticmethod(good.options)

        def draft(self, choices: object) -> object:
            self.asked += 1
            if self.asked == 1:
                raise PlanError("the plan cannot be assembled: in forward, `y = x` names y twice")
            return good.draft(choices)  # type: ignore[arg-type]

    broken = Broken()
    given = memories([], [kept, kept], key, lambda: broken, device="Toy", seconds=30)  # type: ignore[arg-type,return-value]
    (found,) = given.items
    assert found.candidate.strategies == candidate.strategies
    (note,) = given.notes
    assert note.startswith("from your library: sums of ")
    assert "could not be written for this task: the plan cannot be assembled" in note
