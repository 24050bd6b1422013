"""Plans whose call is bound by the host are also called otherwise, and only those."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from kernelwright.agents.coder.coder import PlaybookCoder
from kernelwright.agents.coder.model import CODER
from kernelwright.agents.planner.model import PLANNER
from kernelwright.agents.planner.playbook import PlaybookPlanner
from kernelwright.agents.roles.composed import Composition, Compositions
from kernelwright.graphs.regions.judge import RegionJudge
from kernelwright.graphs.replay import replay
from kernelwright.graphs.run_view.figures import choose
from kernelwright.graphs.search.context import SearchContext
from kernelwright.graphs.search.options.call_modes import modes_of, modes_to_try
from kernelwright.graphs.search.options.run_terms import keep_composed
from kernelwright.graphs.search.run import start_search
from kernelwright.tools.archive import Archive
from kernelwright.tools.candidates.plan import library_calls
from kernelwright.tools.codegen.library.kernel_library import LibraryDraft
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.languages import in_mode, new_candidate
from kernelwright.tools.types import (
    CallMode,
    Candidate,
    Effort,
    Evaluation,
    Idea,
    LaunchShape,
    Measurement,
    TracePolicy,
    Verdict,
    Verification,
)
from kernelwright.tools.types.run import Summary

Search = Callable[..., Awaitable[Summary]]

BARE = "def forward(x):\n    y = empty_like(x)\n    launch('run', args=(x, y))\n    return y\n"
AMONG = """def prepare(weights):
    return {"w": aten.neg(weights["w"])}

def forward(x):
    y = empty_like(x)
    launch('run', args=(aten.neg(x), y))
    return aten.mul.Tensor(aten.relu(y), 2.0)
"""


def test_operators_of_the_forward_are_counted_and_no_launches() -> None:
    assert not library_calls(BARE)
    assert len(library_calls(AMONG)) == 3


def seen(toy: ModuleType, launches: int, ms: float) -> Evaluation:
    time = Measurement(
        median_ms=ms, p10_ms=ms, p90_ms=ms, samples_ms=(ms,), conditions=toy.CONDITIONS
    )
    return Evaluation(
        candidate="c",
        verification=Verification(verdict=Verdict.CORRECT, reason=""),
        launches=(LaunchShape(kernel="run", launches=launches),),
        screen=time,
    )


@pytest.mark.parametrize(
    ("kind", "plan", "launches", "ms", "compile_s", "modes"),
    [
        ("cuda", BARE, 100, 2.0, 9.0, ("graph",)),  # nothing there for torch.compile
        ("cuda", AMONG, 100, 2.0, 9.0, ("compile", "graph")),
        ("cuda", AMONG, 100, 2.0, None, ("graph",)),  # no time for torch.compile
        ("cpu", AMONG, 100, 2.0, 9.0, ("compile",)),
        ("cpu", BARE, 100, 2.0, 9.0, ()),
        ("cuda", AMONG, 100, 20.0, 9.0, ()),  # the host is far ahead
        ("cuda", BARE, 1, 0.01, 9.0, ()),  # a replay copies more than it saves
        ("cuda", BARE, 100, None, 9.0, ()),
    ],
)
def test_a_mode_is_tried_where_the_host_bounds_a_call(
    toy: ModuleType,
    kind: str,
    plan: str,
    launches: int,
    ms: float | None,
    compile_s: float | None,
    modes: tuple[str, ...],
) -> None:
    candidate = Candidate(id="c", language="cpp", kernel="k", plan=plan)
    evaluation = seen(toy, launches, ms or 1.0)
    if ms is None:
        evaluation = evaluation.model_copy(update={"screen": None})
    given = {"compile_s": compile_s, "bandwidth_gb_s": 3000.0}
    assert modes_to_try(toy.TASK, kind, candidate, evaluation, **given) == modes
    inside = candidate.model_copy(update={"mode": "graph"})
    assert modes_to_try(toy.TASK, kind, inside, evaluation, **given) == ()


def test_a_host_that_was_seen_to_add_half_of_a_calls_work_bounds_it(toy: ModuleType) -> None:
    candidate = Candidate(id="c", language="cuda", kernel="k", plan=BARE)
    given = {"compile_s": None, "bandwidth_gb_s": 3000.0}
    for added_ms, modes in ((0.4, ()), (0.6, ("graph",))):
        evaluation = seen(toy, 10, 1.0).model_copy(update={"launch_ms": added_ms})
        assert modes_to_try(toy.TASK, "cuda", candidate, evaluation, **given) == modes


def test_large_arguments_cost_a_replay_more_than_it_saves(toy: ModuleType) -> None:
    candidate = Candidate(id="c", language="cuda", kernel="k", plan=BARE)
    given = {"compile_s": None, "bandwidth_gb_s": 1.0}  # 8 MB take 16 ms to be copied
    assert modes_to_try(toy.TASK, "cuda", candidate, seen(toy, 100, 2.0), **given) == ()


def test_what_draws_or_is_traced_in_parts_keeps_the_modes_that_regions_keep() -> None:
    plain = SimpleNamespace(parts=(), draws_random=False)
    drawing = SimpleNamespace(parts=(), draws_random=True)
    parted = SimpleNamespace(parts=("first",), draws_random=False)
    assert modes_of(plain, "cuda") == ("compile", "graph")
    assert modes_of(drawing, "cuda") == ("graph",)
    assert modes_of(drawing, "cpu") == ()
    assert modes_of(parted, "cuda") == ()


def many_launches(toy: ModuleType, factors: Mapping[CallMode, float], steps: int) -> Executor:
    """A GPU on which plans of so many launches take their time by a factor for each mode."""

    @dataclass
    class Launching(toy.ToyExecutor):  # type: ignore[misc, name-defined]
        modes: list[tuple[CallMode, Effort]] = field(default_factory=list)

        async def hardware(self) -> object:
            return toy.HARDWARE.model_copy(update={"kind": "cuda", "bandwidth_gb_s": 3000.0})

        async def evaluate(self, task: object, candidate: Candidate, effort: Effort) -> Evaluation:
            self.modes.append((candidate.mode, effort))
            found: Evaluation = await super().evaluate(task, candidate, effort)
            shape = LaunchShape(kernel="run", launches=steps)
            return found.model_copy(update={"launches": (shape,)})

        def cost(self, candidate: Candidate) -> float:
            return float(super().cost(candidate) * factors[candidate.mode])

    made: Executor = Launching()
    return made


async def test_a_plan_that_a_graph_makes_faster_ends_as_one_and_is_certified(
    search: Search, toy: ModuleType, tmp_path: Path
) -> None:
    executor = many_launches(toy, {"eager": 1.0, "graph": 0.5}, steps=100)
    summary = await search(executor=executor)
    assert summary.best is not None
    assert (summary.best.mode, summary.best.timed) == ("graph", "certified")
    archive = Archive.open(summary.run, tmp_path)
    chosen = choose(archive.standings())
    made = [item.candidate for item in archive.candidates()]
    archive.close()
    assert chosen is not None
    assert chosen.candidate.id == summary.best.candidate
    # It is one of the plans that the search found, at the end of it, and few of them.
    assert chosen.candidate.plan in [item.plan for item in made if item.mode == "eager"]
    assert 1 <= sum(item.mode == "graph" for item in made) <= 2
    first = next(at for at, (mode, _) in enumerate(executor.modes) if mode == "graph")
    later = {effort for mode, effort in executor.modes[first:] if mode == "eager"}
    assert later <= {"certify"}


@dataclass(frozen=True)
class ManySteps:
    """The toy's repertoire with a plan of its own for one way."""

    toy: ModuleType

    language = "cpp"
    fixed_ms = 0.0

    def options(self) -> object:
        return self.toy.ToyRepertoire(self.toy.LOOPS).options()

    def draft(self, choices: Mapping[str, str]) -> LibraryDraft:
        made: LibraryDraft = self.toy.ToyRepertoire(self.toy.LOOPS).draft(choices)
        if choices["rows"] != "once":
            return made
        return made.model_copy(update={"plan": f"{made.plan}# once\n"})


async def test_a_plan_that_the_host_holds_up_is_called_as_a_graph_though_it_is_ranked_last(
    toy: ModuleType, tmp_path: Path
) -> None:
    executor = many_launches(toy, {"eager": 1.0, "graph": 0.5}, steps=1000)

    def off(candidate: Candidate, effort: Effort) -> float:
        return 6.0 if "# once" in candidate.plan and candidate.mode == "eager" else 1.0

    executor.off = off
    repertoire = ManySteps(toy)
    agents = toy.toy_agents(toy.LOOPS)
    agents = agents.replaced(PLANNER, PlaybookPlanner(repertoire))
    agents = agents.replaced(CODER, PlaybookCoder(repertoire))
    summary = await start_search(
        Path("toy.py"), TracePolicy(), "cpu", toy.PROFILE, home=tmp_path, executor=executor,
        make_agents=lambda around: agents,
    )  # fmt: skip
    assert isinstance(summary, Summary)
    archive = Archive.open(summary.run, tmp_path)
    written = [item.candidate for item in archive.candidates()]
    archive.close()
    graphs = [item for item in written if item.mode == "graph"]
    assert "# once" in graphs[-1].plan
    # What was ranked before it has its turn first, and no more than one is held.
    assert len({item.plan for item in graphs}) == len(graphs) == 2


async def test_a_mode_that_is_slower_has_one_look_and_changes_nothing(
    search: Search, toy: ModuleType
) -> None:
    executor = many_launches(toy, {"eager": 1.0, "graph": 1.5}, steps=100)
    summary = await search(executor=executor)
    assert summary.best is not None
    assert summary.best.mode == "eager"
    assert {effort for mode, effort in executor.modes if mode == "graph"} == {"screen"}


async def test_where_launches_are_few_no_mode_is_asked_about(
    search: Search, toy: ModuleType
) -> None:
    executor = many_launches(toy, {"eager": 1.0, "graph": 0.5}, steps=2)
    summary = await search(executor=executor)
    assert summary.best is not None
    assert summary.best.mode == "eager"
    assert {mode for mode, _ in executor.modes} == {"eager"}


async def test_a_region_is_called_launch_by_launch_as_its_whole_has_the_modes(
    search: Search, toy: ModuleType
) -> None:
    executor = many_launches(toy, {"eager": 1.0, "graph": 0.5}, steps=100)
    await search(executor=RegionJudge(executor))
    assert {mode for mode, _ in executor.modes} == {"eager"}


class PutTogether:
    """Leaves what regions might have been put together to."""

    choice = "on"

    def __init__(self, items: tuple[Composition, ...]) -> None:
        self._items = items

    async def __call__(self, context: SearchContext, round: int, *, now: bool = False) -> None:
        keep_composed(context.archive, Compositions(items=self._items))


@pytest.mark.parametrize("seconds", [0.01, 600.0])
async def test_the_modes_of_what_regions_were_put_together_to_have_a_look_however_late_it_is(
    toy: ModuleType, tmp_path: Path, seconds: float
) -> None:
    executor = many_launches(toy, {"eager": 1.0, "compile": 0.7, "graph": 0.5}, steps=2)
    draft = toy.ToyRepertoire(toy.LOOPS).draft({"rows": "once", "tail": "flat"})
    whole = new_candidate("cpp", draft.kernel, draft.plan, strategies=draft.strategies)
    modes: tuple[CallMode, ...] = ("eager", "compile", "graph")
    idea = Idea(id="", title="", mechanism="", reason="", category="fusion", metric="")
    # Of fewer regions, which stands nowhere as it is called launch by launch.
    fewer = new_candidate("cpp", draft.kernel, f"{draft.plan}\n", strategies=draft.strategies)
    made = (*(in_mode(whole, mode) for mode in modes), in_mode(fewer, "compile"))
    items = tuple(
        Composition(
            idea=idea.model_copy(update={"id": f"r1i{number}", "round": 1}), candidate=candidate
        )
        for number, candidate in enumerate(made, start=1)
    )
    profile = toy.PROFILE.model_copy(update={"seconds": seconds, "tuning_trials": 0})
    summary = await start_search(
        Path("toy.py"), TracePolicy(), "cpu", profile, home=tmp_path, executor=executor,
        make_agents=lambda around: toy.toy_agents(toy.LOOPS), prepare=PutTogether(items),
    )  # fmt: skip
    assert isinstance(summary, Summary)
    assert summary.best is not None
    assert summary.best.mode == "graph"
    assert {mode for mode, effort in executor.modes if effort == "screen"} == {*modes}
    screened = [what for what, effort in executor.asked if effort == "screen"]
    # torch.compile's baseline is built before what is mostly the same inside of it.
    inside = [screened.index(item.id) for item in made if item.mode == "compile"]
    assert screened.index("compile") < min(inside)


async def test_a_mode_does_not_take_the_time_in_which_the_best_is_certified(
    toy: ModuleType, tmp_path: Path
) -> None:
    executor = many_launches(toy, {"eager": 1.0, "graph": 0.5}, steps=100)
    changes = {"seconds": 0.01, "seconds_hold": "everything", "tuning_trials": 0}
    summary = await start_search(
        Path("toy.py"), TracePolicy(), "cpu", toy.PROFILE.model_copy(update=changes),
        home=tmp_path, executor=executor,
        make_agents=lambda around: toy.toy_agents(toy.LOOPS),
    )  # fmt: skip
    assert isinstance(summary, Summary)
    assert {mode for mode, _ in executor.modes} == {"eager"}


async def test_what_was_called_otherwise_replays(
    search: Search, toy: ModuleType, tmp_path: Path
) -> None:
    executor = many_launches(toy, {"eager": 1.0, "graph": 0.5}, steps=100)
    summary = await search(executor=executor)
    found = await replay(
        summary.run, home=tmp_path, make_agents=lambda around: toy.toy_agents(toy.LOOPS)
    )
    assert found.difference is None


async def test_going_on_after_the_end_asks_about_no_mode_twice(
    search: Search,
    resume: Callable[..., Awaitable[Summary]],
    toy: ModuleType,
) -> None:
    executor = many_launches(toy, {"eager": 1.0, "graph": 0.5}, steps=100)
    first = await search(executor=executor, rounds=1)
    asked = [item for item in executor.asked if item[1] == "screen"]
    again = await resume(first.run, executor=executor, rounds=2)
    assert again.best is not None
    assert again.best.mode == "graph"
    screened = [item for item in executor.asked if item[1] == "screen"]
    assert len(screened) == len(set(screened)) > len(asked)
