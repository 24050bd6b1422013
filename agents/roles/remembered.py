"""Begins a search with kernels of the user's library: verified once, judged again like any other.

A kernel of exactly this task is taken as it was, on this task's weights. One of the same operators
in other shapes is written anew by the rules, with the strategies and settings that were best there:
so only what the playbook wrote is carried over. What is known for this very task and device has the
first round to itself, so that a search that has nothing to add ends soon; all else comes first
among the other ideas. Of a near task it is kept as well what share of its floor was reached there:
a search that reaches as much need not go on.
"""

from collections.abc import Callable, Iterable, Sequence
from math import log2

from kernelwright.agents.coder.coder import UNWRITTEN
from kernelwright.agents.planner.planner import Planner, PlannerInput, Proposal
from kernelwright.agents.shared.facts import choices
from kernelwright.tools.candidates import ContractError
from kernelwright.tools.codegen.library.kernel_library import Recipe, Repertoire
from kernelwright.tools.codegen.library.plan_check import PlanError
from kernelwright.tools.languages import in_mode, new_candidate, settings_to_try
from kernelwright.tools.memory import Kept, TaskKey, is_near
from kernelwright.tools.types import Candidate, Idea, Setting, Value

LIBRARY = "library"
_MOST = 2  # kernels that a search begins with
# A search that was allowed this share of another's time found about what that would.
_THOROUGH = 0.5


class Remembered(Value):
    """A kernel of the library as this search tries it.

    `settled` says that it is of this very task and device, ahead of PyTorch there, and found by a
    search that was allowed half of what this one is, or more.
    """

    idea: Idea
    candidate: Candidate
    kept: str
    exact: bool
    settled: bool = False


class Memories(Value):
    """All that a search begins with; empty where the library has nothing for its task.

    `fresh` says that the library was not asked, as the person wanted it. `notes` say of what the
    library has that it could not be written for this task. `near_share` is what a search of a near
    task on this device came to of its floor, the nearest that a search like this one would hardly
    do better on; 0.0 for none.
    """

    items: tuple[Remembered, ...] = ()
    fresh: bool = False
    notes: tuple[str, ...] = ()
    near_share: float = 0.0

    @property
    def candidates(self) -> dict[str, Candidate]:
        """By their ideas."""
        return {item.idea.id: item.candidate for item in self.items}

    @property
    def alone(self) -> bool:
        """Whether the first round is theirs alone."""
        return any(item.settled for item in self.items)


def memories(
    exactly: Iterable[Kept],
    like: Sequence[Kept],
    key: TaskKey,
    repertoire: Callable[[], Repertoire],
    *,
    device: str,
    seconds: float,
) -> Memories:
    """What a search begins with: the same task's kernels, or else those of its structure.

    Args:
        exactly: of the same task, the best first.
        like: of the same structure in other shapes, the nearest first.
        key: of the task.
        repertoire: what the rules can write for it, asked for where something is carried over.
        device: the name of the device.
        seconds: what the search is allowed.
    """
    found: list[Remembered] = []
    notes: list[str] = []
    for item in exactly:
        candidate = _same(item, key)
        if candidate is None or any(candidate.id == other.candidate.id for other in found):
            continue
        settled = _is_settled(item, device, seconds)
        found.append(_remembered(item, candidate, len(found) + 1, exact=True, settled=settled))
        if len(found) == _MOST:
            break
    share = 0.0
    if not found:
        for item in like:
            try:
                candidate = _carried_over(item, repertoire())
            except PlanError as error:
                notes.append(f"from your library: {item.words} {UNWRITTEN} for this task: {error}")
                continue
            if candidate is not None:
                found = [_remembered(item, candidate, 1, exact=False)]
                break
        near = (i for i in like if is_near(i.key, key) and _is_settled(i, device, seconds))
        share = next((i.proof.screened_share for i in near if i.proof.screened_share), 0.0)
    return Memories(items=tuple(found), notes=tuple(notes), near_share=share if found else 0.0)


def _is_settled(item: Kept, device: str, seconds: float) -> bool:
    """Whether a search of so many seconds would hardly find better for the task it is of."""
    thorough = item.proof.seconds >= _THOROUGH * seconds
    return item.device == device and item.faster and thorough and not item.merged


def _same(item: Kept, key: TaskKey) -> Candidate | None:
    """The kernel on this task's weights."""
    plan = item.plan_for(key)
    if plan is None:
        return None
    try:
        made = new_candidate(
            item.language,
            item.kernel,
            plan,
            settings=item.settings,
            origin=item.origin,
            strategies=item.strategies,
            note=f"from your library: {item.words}",
        )
        return in_mode(made, item.mode)
    except ContractError:  # of another version, or out of somebody's file
        return None


def _carried_over(item: Kept, repertoire: Repertoire) -> Candidate | None:
    """The same strategies written for this task; None where they do not fit it.

    Raises:
        PlanError: They fit, and the plan cannot be assembled, which is a bug of ours.
    """
    if item.origin != "playbook" or item.language != repertoire.language:
        return None
    chosen = _choices(item)
    known = {way for option in repertoire.options() for way in option.change.items()}
    if not chosen or not set(chosen.items()) <= known:
        return None
    try:
        draft = repertoire.draft(chosen)
        valid = settings_to_try(draft.kernel, repertoire.language)
        return new_candidate(
            repertoire.language,
            draft.kernel,
            draft.plan,
            settings=_nearest(valid, item.settings),
            strategies=draft.strategies,
            note=f"strategies and settings from your library: {item.words}",
        )
    except PlanError:
        raise
    except (ValueError, ContractError):
        return None


def _nearest(
    valid: Sequence[tuple[Setting, ...]], wanted: tuple[Setting, ...]
) -> tuple[Setting, ...]:
    """Those that agree with most of the wanted ones, then the nearest; the first of equals."""
    values = {setting.name: setting.value for setting in wanted}

    def agree(settings: tuple[Setting, ...]) -> tuple[int, float]:
        known = [(item.value, values[item.name]) for item in settings if item.name in values]
        apart = sum(abs(log2(1 + abs(own)) - log2(1 + abs(other))) for own, other in known)
        return sum(own == other for own, other in known), -apart

    return max(valid, key=agree, default=())


def _choices(item: Kept) -> dict[str, str]:
    plain = Candidate(id="", language=item.language, kernel="", plan="", strategies=item.strategies)
    return choices(plain)


def _remembered(
    item: Kept,
    candidate: Candidate,
    number: int,
    *,
    exact: bool,
    settled: bool = False,
) -> Remembered:
    """With its idea, which nobody predicts a time for: what is known was measured elsewhere."""
    how = "as it was" if exact else "its strategies and settings written for these shapes"
    proof = item.proof
    shown = f"{proof.median_ms:.3g} ms, {proof.ratio:.2f} times as fast as {proof.baseline}"
    idea = Idea(
        id=f"r1k{number}",
        title=f"From your library: {item.words}",
        mechanism=f"a kernel that was verified on {item.device}, {how}",
        reason=f"there it took {shown}; here it is judged anew",
        category="remembered",
        metric="time",
        round=1,
        origin=LIBRARY,
        recipe=Recipe.of(choices(candidate), 0.0).model_dump_json(),
    )
    given = candidate.model_copy(update={"idea": idea.id})
    return Remembered(idea=idea, candidate=given, kept=item.id, exact=exact, settled=settled)


class RememberingPlanner:
    """Puts the library's ideas before another planner's, or into a first round of their own."""

    def __init__(self, planner: Planner, given: Memories) -> None:
        self._planner = planner
        self._given = given

    async def plan(self, planner_input: PlannerInput) -> Proposal:
        """The library's ideas in the first round, and the other planner's as they fit."""
        if planner_input.round > 1:
            return await self._planner.plan(planner_input)
        ideas = tuple(item.idea for item in self._given.items)
        told = f"{'; '.join(idea.title for idea in ideas)}."
        if self._given.alone and planner_input.rounds > 1:
            return Proposal(ideas=ideas, reasoning=f"{told} Anything else comes after it.")
        tried = (*planner_input.tried, *ideas)
        proposal = await self._planner.plan(planner_input.model_copy(update={"tried": tried}))
        return Proposal(
            ideas=(*ideas, *proposal.ideas), reasoning=f"{told} {proposal.reasoning}".strip()
        )
