"""Makes a run's result serve other sizes than its example's, and lets the judge verify that.

The winner's strategies are written for several sizes, and what differs between the texts becomes
an argument (`codegen.library.any_size`): one set of kernels serves a range. Single sizes have
kernels of their own, and so does the example where the winner's text is not the general one's. All
of it is one candidate, which the judge verifies on every distribution at each size that is named in
the evidence, and certifies at the example's. Where one way of writing it fails, the next is tried.
What came of it is kept as a term of the run; the run's own result is not touched. What each size
showed is kept as a decision, so that a session that was cut off goes on with the next size.
"""

import asyncio
import itertools
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from kernelwright.graphs.run_view.events import Noted
from kernelwright.graphs.run_view.figures import choose
from kernelwright.graphs.search.context import SearchContext
from kernelwright.tools.archive import Archive
from kernelwright.tools.candidates import ContractError
from kernelwright.tools.codegen.library.kernel_library import FORM, Recipe, fastest, in_form
from kernelwright.tools.codegen.library.sizes import AllSizes
from kernelwright.tools.evaluate.executors.sizes import SizedTasks
from kernelwright.tools.types import (
    Candidate,
    Evaluation,
    Refusal,
    RefusedError,
    Value,
    Verdict,
    refuse,
)
from kernelwright.tools.types.run import Summary
from kernelwright.tools.types.shapes import ServedShapes, SizeCheck, VerifiedShapes

_TERM = "shapes"
# Ways of writing it that are tried: the winner's own, then those predicted fastest.
_MOST_WAYS = 4


class SizedResult(Value):
    """The candidate that serves the sizes, with its certification, or why there is none.

    `winner` is the run's own candidate that it was made from.
    """

    winner: str = ""
    served: ServedShapes
    candidate: Candidate | None = None
    evaluation: Evaluation | None = None


def sized_result(archive: Archive) -> SizedResult | None:
    """What a run's result serves beside its example; None where nobody asked."""
    kept = archive.term(_TERM)
    return SizedResult.model_validate_json(kept) if kept else None


def owes_sizes(archive: Archive) -> bool:
    """Whether a run that has its result was cut off before other sizes had theirs."""
    record, known = archive.record(), sized_result(archive)
    if not record.policy.shapes or record.summary is None or record.status != "finished":
        return False
    return known is None or known.served.interrupted


async def with_shapes(context: SearchContext, summary: Summary | Refusal) -> Summary | Refusal:
    """The summary with what is served beside the example's sizes, where the person asked for it."""
    asked = context.archive.record().policy.shapes
    if isinstance(summary, Refusal) or not asked or summary.status in ("waiting", "stopped"):
        return summary
    known = sized_result(context.archive)
    winner = summary.best.candidate if summary.best else ""
    if known is None or known.winner != winner or known.served.interrupted:
        context.emit(Noted(words=f"sizes beside the example's: {asked}"))
        known = await _until_ended(context, asked, winner)
        context.archive.record_term(_TERM, known.model_dump_json())
        context.emit(Noted(words=known.served.words))
    changed = summary.model_copy(update={"shapes": known.served})
    context.archive.record_summary(changed, context.archive.record().status)
    return changed


async def _until_ended(context: SearchContext, asked: str, winner: str) -> SizedResult:
    """What came of it; nothing where somebody ended it, and the run's own result stands."""
    working = asyncio.create_task(_served(context, asked, winner))
    context.control.watch(working)
    try:
        return await working
    except asyncio.CancelledError:
        if not context.control.stopped_because:
            raise
    why = f"stopped: {context.control.stopped_because}"
    return SizedResult(
        winner=winner, served=ServedShapes(asked=asked, problem=why, interrupted=True)
    )


def _nothing(asked: str, winner: str, why: str) -> SizedResult:
    return SizedResult(winner=winner, served=ServedShapes(asked=asked, problem=why))


async def _served(context: SearchContext, asked: str, winner: str) -> SizedResult:
    nothing = partial(_nothing, asked, winner)
    standing = choose(context.archive.standings())
    if standing is None or standing.candidate.id != winner:
        return nothing("there is no correct candidate to write for them")
    if context.executor.capabilities.remote:
        return nothing("the device is somewhere else, where other sizes are not verified yet")
    context.executor.compile_ahead(False)
    try:
        return await _Serving(context, asked, standing.candidate, standing.evaluation).result()
    except RefusedError as refused:
        return nothing(refused.refusal.sentence)


class _Serving:
    """Has candidates for all sizes judged until one is right at all of them."""

    def __init__(
        self, context: SearchContext, asked: str, winner: Candidate, evaluation: Evaluation
    ) -> None:
        self._context, self._asked = context, asked
        self._winner, self._evaluation = winner, evaluation
        policy = context.archive.record().policy
        self._sizes = SizedTasks(context.executor, context.task, policy, context.seed + 1)

    async def result(self) -> SizedResult:
        """The candidate that is right at every size that was looked at; RefusedError if none is."""
        sizes = self._sizes
        await sizes.read((*sizes.telling, *sizes.ends))
        why = "no way of writing it holds for all of them"
        for candidate, variants in self._ways():
            checks, wrong = await self._checked(candidate)
            if wrong:
                why = wrong
                continue
            evaluation = await self._certified(candidate)
            if evaluation.verdict is not Verdict.CORRECT:
                why = f"at the example's size: {evaluation.verification.reason}"
                continue
            timed = [
                await sizes.beside_eager(check, candidate) if check.sizes in sizes.ends else check
                for check in checks
            ]
            return self._found(candidate, evaluation, variants, timed)
        raise refuse(why)

    async def _checked(self, candidate: Candidate) -> tuple[list[SizeCheck], str]:
        """The candidate at every size, of which an earlier session may have seen to some."""
        archive, key = self._context.archive, f"size:{candidate.id}"
        kept = (value for name, value in archive.decisions() if name == key)

        known = [SizeCheck.model_validate_json(value) for value in kept]
        done, count = itertools.count(len(known) + 1), len(self._sizes.looked_at)

        def keep(check: SizeCheck) -> None:
            archive.record_decision(key, check.model_dump_json())
            where = f"size {next(done)} of {count}, {self._sizes.words(check.sizes)}"
            self._context.emit(Noted(words=f"{where}: {check.verdict.words}"))

        return await self._sizes.checked(candidate, known, keep)

    def _found(
        self,
        candidate: Candidate,
        evaluation: Evaluation,
        variants: int,
        checks: Sequence[SizeCheck],
    ) -> SizedResult:
        verified = VerifiedShapes(
            candidate=candidate.id,
            dimensions=self._sizes.dimensions,
            outputs=self._sizes.outputs,
            variants=variants,
            checks=tuple(checks),
        )
        served = ServedShapes(asked=self._asked, verified=verified)
        checked = evaluation.verification.model_copy(update={"shapes": served.words})
        return SizedResult(
            winner=self._winner.id,
            served=served,
            candidate=candidate,
            evaluation=evaluation.model_copy(update={"verification": checked}),
        )

    def _ways(self) -> Iterator[tuple[Candidate, int]]:
        """Candidates for all sizes, with how many variants each holds; the winner's own first."""
        if self._evaluation.verification.shapes.startswith("shape-generic"):
            yield self._winner, 1
        writer = AllSizes(
            self._sizes.traced, self._sizes.telling, self._winner, self._context.hardware
        )
        seen: set[str] = set()
        for choices in self._strategies(writer):
            try:
                found = writer.written(choices, note=f"for {self._asked}")
            except (ContractError, ValueError):
                continue
            if found is not None and found[0].id not in seen:
                seen.add(found[0].id)
                yield found
            if len(seen) >= _MOST_WAYS:
                return

    def _strategies(self, writer: AllSizes) -> Iterator[Mapping[str, str]]:
        """The winner's strategies, then others of its form, the fastest by prediction first."""
        ideas = {idea.id: idea for idea in self._context.archive.ideas()}
        idea = ideas.get(self._winner.idea)
        recipe = Recipe.from_idea(idea) if idea and self._winner.origin == "playbook" else None
        options = writer.options
        first = recipe.choices if recipe else fastest(options)
        yield first
        form = first.get(FORM, "")
        for option in sorted(options, key=lambda item: item.predicted_ms):
            if option.loop != FORM and option.form in ("", form):
                yield in_form(options, {**first, **option.change})

    async def _certified(self, candidate: Candidate) -> Evaluation:
        if candidate.id == self._winner.id:
            return self._evaluation
        return await self._context.executor.evaluate(self._context.task, candidate, "certify")
