"""The coder: its question, its answer and its Protocol, and the implementation by rules.

By rules the coder writes the idea's recipe down once and spreads settings over its tunables. It
cannot reason about a compiler's message, so its repair is a fallback: other settings where
resources were the trouble, another form of the task where the result was refused, else the next
strategy of the same loop; the real message is kept in the note.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Protocol

from kernelwright.agents.shared.candidate_priority import Suspect, is_refused, suspect
from kernelwright.agents.shared.facts import Steering, agreement, choices
from kernelwright.tools.archive import Standing
from kernelwright.tools.candidates import ContractError
from kernelwright.tools.codegen.library.kernel_library import (
    FORM,
    Option,
    Recipe,
    Repertoire,
    in_form,
)
from kernelwright.tools.languages import new_candidate, settings_to_try
from kernelwright.tools.types import (
    Analysis,
    Candidate,
    Evaluation,
    Idea,
    LedgerEntry,
    Setting,
    StrategyVersion,
    Symptom,
    Value,
    Verdict,
)

Settings = tuple[Setting, ...]


class CoderRequest(Value):
    """What the coder is asked for: an idea, how many candidates, and what it may learn from.

    `written` are the candidates there are already, so that none is written twice. `parents` are
    the standings worth starting from, the best first; `attempt` counts repairs of this idea in
    this round; `strategy` is the evolving section of a model's prompt; `moves` says in words
    which moves between behaviours paid; `doubts` are forms of the task of which results were
    refused and none was right. From `judged` a fast and a slow one are shown side by side.
    `distinct` says that drafts which do the same as another of the idea's are no candidates.
    """

    idea: Idea
    count: int
    written: tuple[Candidate, ...] = ()
    analysis: Analysis | None = None
    seed: int = 0
    round: int = 0
    attempt: int = 0
    parents: tuple[Standing, ...] = ()
    ledger: tuple[LedgerEntry, ...] = ()
    symptoms: tuple[Symptom, ...] = ()
    steering: Steering = Steering()
    strategy: StrategyVersion | None = None
    moves: tuple[str, ...] = ()
    judged: tuple[Standing, ...] = ()
    doubts: frozenset[Suspect] = frozenset()
    distinct: bool = False


class Failure(Value):
    """A candidate that did not hold, and what the judge said of it.

    `flaw` says what holds one back that is right; "" for one that is not.
    """

    candidate: Candidate
    evaluation: Evaluation
    flaw: str = ""


# How a note says that rules could not write a candidate; the reason stands behind it.
UNWRITTEN = "could not be written"


class CoderAnswer(Value):
    """Candidates, the most promising first; `notes` say what could not be written, and why."""

    candidates: tuple[Candidate, ...]
    notes: tuple[str, ...] = ()


class Coder(Protocol):
    """Writes candidates."""

    async def write(self, request: CoderRequest) -> CoderAnswer:
        """Write an idea down."""
        ...

    async def repair(self, request: CoderRequest, failure: Failure) -> CoderAnswer:
        """Answer a failure; no candidates means that nothing better is known."""
        ...


# Verdicts that other settings of the same kernel may cure.
RESOURCES = frozenset({
    Verdict.COMPILE_ERROR, Verdict.LAUNCH_ERROR, Verdict.OUT_OF_MEMORY, Verdict.TIMED_OUT,
})  # fmt: skip


class PlaybookCoder:
    """Writes from a repertoire's drafts."""

    def __init__(self, repertoire: Repertoire) -> None:
        self._repertoire = repertoire

    async def write(self, request: CoderRequest) -> CoderAnswer:
        """The idea's recipe under settings that lie far apart."""
        recipe = Recipe.from_idea(request.idea)
        if recipe is None:
            return CoderAnswer(
                candidates=(), notes=("the playbook cannot write another mind's idea",)
            )
        return self._write(request, recipe.choices, parents=_parents(request.idea), note="")

    async def repair(self, request: CoderRequest, failure: Failure) -> CoderAnswer:
        """Other settings where resources were the trouble, else another form or strategy."""
        failed, verdict = failure.candidate, failure.evaluation.verdict
        if failure.flaw:
            return CoderAnswer(candidates=(), notes=())
        message = _message(failure.evaluation)
        note = f"instead of {failed.id}, which was {verdict.value.replace('_', ' ')}: {message}"
        chosen = choices(failed)
        if verdict in RESOURCES:
            answer = self._write(request, chosen, parents=(failed.id,), note=note)
            if answer.candidates:
                return answer
        other = self._other(failed, request, refused=is_refused(failure.evaluation))
        if other is None:
            return CoderAnswer(candidates=(), notes=(f"nothing to put {note}",))
        return self._write(request, other, parents=(failed.id,), note=note)

    def _write(
        self, request: CoderRequest, chosen: dict[str, str], *, parents: tuple[str, ...], note: str
    ) -> CoderAnswer:
        try:
            draft = self._repertoire.draft(chosen)
            tried = settings_to_try(draft.kernel, self._repertoire.language)
        except (ValueError, ContractError) as error:
            return CoderAnswer(candidates=(), notes=(f"{request.idea.id} {UNWRITTEN}: {error}",))
        used = {item.settings for item in request.written if item.kernel == draft.kernel}
        settings = spread(
            tried,
            request.count,
            used,
            request.analysis.heeded if request.analysis else ((), ()),
            request.seed,
        )
        return CoderAnswer(
            candidates=tuple(
                new_candidate(
                    self._repertoire.language,
                    draft.kernel,
                    draft.plan,
                    settings=chosen_settings,
                    idea=request.idea.id,
                    parents=parents,
                    strategies=draft.strategies,
                    note=note,
                )
                for chosen_settings in settings
            )
        )

    def _other(
        self, failed: Candidate, request: CoderRequest, *, refused: bool
    ) -> dict[str, str] | None:
        """The next strategy of the loop that the idea changed, or of the dominant one.

        Where a result was refused it is the same with exact products, if factors were rounded;
        else a form that nobody wrote, if there is one: loops of the same form read the same
        results of the library. Nothing more is written of a form in doubt while another is not.
        """
        chosen, written = choices(failed), [choices(item) for item in request.written]
        instead = chain(self._exact(chosen), self._forms(written)) if refused else iter(())
        undoubted = {suspect(item) for item in request.written} - request.doubts
        idle = suspect(failed) in request.doubts and undoubted
        others = chain(instead, () if idle else self._strategies(chosen, request))
        return next((one for one in others if one not in written and one != chosen), None)

    def _exact(self, chosen: dict[str, str]) -> Iterator[dict[str, str]]:
        """The same with the fastest exact strategy where one rounds factors; none without one."""
        options = self._repertoire.options()
        rough = {
            way[0]
            for option in options
            for way in option.change.items()
            if option.strategy.rounds_factors and way in chosen.items()
        }
        exact = [o for o in options if not o.strategy.rounds_factors]
        slower_first = sorted(exact, key=lambda o: -o.predicted_ms)
        ways = (way for option in slower_first for way in option.change.items())
        fastest = {loop: name for loop, name in ways if loop in rough}
        if rough and rough == {*fastest}:
            yield chosen | fastest

    def _forms(self, written: list[dict[str, str]]) -> Iterator[dict[str, str]]:
        """Forms of which nothing was written, each at its fastest, as the repertoire has them."""
        options = self._repertoire.options()
        known = {item.get(FORM) for item in written}
        for option in options:
            if option.loop == FORM and option.strategy.name not in known:
                yield in_form(options, {FORM: option.strategy.name})

    def _strategies(
        self, chosen: dict[str, str], request: CoderRequest
    ) -> Iterator[dict[str, str]]:
        """The same with another strategy of loops that are alike, the fastest predicted first."""
        recipe = Recipe.from_idea(request.idea)
        options = self._repertoire.options()
        loop = (recipe.changed if recipe else "") or (options[0].loop if options else "")
        for option in _by_prediction(options, loop):
            other = chosen | option.change
            yield in_form(options, other) if loop == FORM else other


def spread(
    valid: Sequence[Settings],
    count: int,
    used: set[Settings],
    preferences: tuple[tuple[str, ...], tuple[str, ...]] = ((), ()),
    seed: int = 0,
) -> list[Settings]:
    """Settings not used yet that lie far apart, those that the critic prefers first.

    The first declared values come first of all, as the writer of a kernel puts the likeliest
    ones there; each further choice differs in most tunables from those taken before.

    Args:
        valid: Every combination that satisfies the source's requirements.
        count: How many to choose at most.
        used: Combinations that were written before.
        preferences: What the critic prefers and avoids, as `NAME=value`.
        seed: Decides between equals.
    """
    prefer, avoid = preferences
    left = [settings for settings in valid if settings not in used]
    dice = random.Random(f"{seed}:{len(used)}:{len(left)}")
    rank = {settings: dice.random() for settings in left}
    taken: list[Settings] = []
    if left and not used and not prefer and not avoid:
        taken.append(left.pop(0))

    known = [_chosen(settings) for settings in (*taken, *(used if len(used) < 64 else ()))]
    open_ones = [(settings, _chosen(settings), rank[settings]) for settings in left]

    def worth(item: tuple[Settings, frozenset[tuple[str, int]], float]) -> tuple[int, int, float]:
        _, chosen, by_chance = item
        liked = 0
        if prefer or avoid:
            named = {name: str(value) for name, value in chosen}
            liked = agreement(named, prefer) - agreement(named, avoid)
        nearest = min([len(chosen - other) for other in known], default=0)
        return liked, nearest, by_chance

    while open_ones and len(taken) < count:
        best = max(open_ones, key=worth)
        taken.append(best[0])
        known.append(best[1])
        open_ones.remove(best)
    return taken


def _chosen(settings: Settings) -> frozenset[tuple[str, int]]:
    """What two settings are compared by."""
    return frozenset((setting.name, setting.value) for setting in settings)


def _parents(idea: Idea) -> tuple[str, ...]:
    return (idea.parent,) if idea.parent else ()


def _by_prediction(options: tuple[Option, ...], loop: str) -> list[Option]:
    return sorted((o for o in options if loop in o.loops), key=lambda o: o.predicted_ms)


def _message(evaluation: Evaluation) -> str:
    """The judge's reason, and the first error line of the compiler where there is one."""
    log = [line for line in evaluation.compiler_log.splitlines() if "error" in line.lower()]
    return "; ".join((evaluation.verification.reason, *log[:1]))[:600]
