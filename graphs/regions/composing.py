"""Puts what regions' searches found together into candidates for the whole model.

Called launch by launch, and as the replay of a CUDA graph, everything that is certainly ahead of
eager is in the whole, as the rest runs eagerly there. Inside torch.compile the rest is Inductor's:
there a region's kernels have to be ahead of what Inductor makes of the region, and one that is not
is left to it. What that is, is estimated (`RegionClass.fused_ms`), so that the whole of all regions
is tried in that mode too, behind the one by the estimate. The judge decides.
"""

from collections.abc import Sequence

from kernelwright.agents.roles.composed import Composition, Compositions
from kernelwright.graphs.regions.listing import Listed
from kernelwright.graphs.regions.results import RegionResult
from kernelwright.graphs.run_view.events import Noted
from kernelwright.graphs.search.context import SearchContext
from kernelwright.graphs.search.options.call_modes import modes_of
from kernelwright.tools.candidates import ContractError
from kernelwright.tools.codegen.library.compose import ComposeError, Part, compose, compose_in_parts
from kernelwright.tools.codegen.library.kernel_library import Recipe
from kernelwright.tools.languages import default_language, in_mode
from kernelwright.tools.types import IN_MODE, CallMode, Idea
from kernelwright.tools.types.outline import RegionClass

# What is not certainly ahead of eager by itself may still be once it is put together.
_HOPEFUL = 0.97

Picked = Sequence[tuple[RegionClass, RegionResult]]


def compositions(
    context: SearchContext, found: Listed, parts: Picked, round: int = 1
) -> Compositions:
    """What was certainly faster, put together and in every mode; then other choices of regions.

    Args:
        context: of the model's search.
        found: its regions.
        parts: each class with what its search found.
        round: of the search over the model, whose ideas these are.
    """
    choices = enumerate(_choices(parts).items(), start=1)
    made = [
        _composition(context, found, words, picked, number) for number, (words, picked) in choices
    ]
    plain = [item for item in made if item is not None]
    if not plain:
        return Compositions(round=round, whole=not context.task.parts)
    first, *others = plain
    modes = modes_of(context.task, context.hardware.kind)
    inside: list[Composition] = []
    if "compile" in modes and (fewer := _ahead_of_torch_compile(parts)):
        words = "what torch.compile would hardly make as fast"
        kept = _composition(context, found, words, fewer, len(made) + 1)
        # Expected with the first: inside torch.compile the rest is faster as well.
        inside = _inside(kept, first.idea.predicted_ms)
    called_so = [called(first, mode, 0) for mode in modes]
    items = [first, *inside, *called_so, *others]
    numbered = tuple(_numbered(item, number, round) for number, item in enumerate(items, start=1))
    # In a later round the model as one has had its try.
    beside = round == 1
    return Compositions(items=numbered, round=round, whole=not context.task.parts, beside=beside)


def _inside(made: Composition | None, expected_ms: float | None) -> list[Composition]:
    """It inside torch.compile, where it could be written."""
    if made is None:
        return []
    inside = called(made, "compile", 0)
    idea = inside.idea.model_copy(update={"predicted_ms": expected_ms})
    return [inside.model_copy(update={"idea": idea})]


def _choices(parts: Picked) -> dict[str, Picked]:
    """What is put together in which ways, the surest first."""
    sure = [(item, result) for item, result in parts if result.faster]
    maybe = [(i, r) for i, r in parts if r.candidate is not None and r.ratio >= _HOPEFUL]
    chosen: dict[str, Picked] = {"what became faster": sure} if sure else {}
    if len(maybe) > len(sure):
        chosen["what became faster, and what may have"] = maybe
    if len(sure) > 1:
        chosen["the region that brings most, alone"] = [max(sure, key=_saved_ms)]
    return chosen


def _saved_ms(picked: tuple[RegionClass, RegionResult]) -> float:
    """What a region's search promises; nothing where it is not certainly ahead of eager."""
    item, result = picked
    return item.time_ms * (1 - 1 / result.ratio) if result.faster else 0.0


def _ahead_of_torch_compile(parts: Picked) -> Picked:
    """Of what became faster, what is also ahead of Inductor by estimate; () where that is all."""
    sure = [(item, result) for item, result in parts if result.faster]
    ahead = [(i, r) for i, r in sure if (r.after_ms(i) or i.time_ms) < i.compiled_ms]
    return ahead if len(ahead) < len(sure) else ()


def called(made: Composition, mode: CallMode, number: int) -> Composition:
    """The same kernels and plan in another mode, which is for the judge to compare."""
    told = {
        "title": f"{made.idea.title}{IN_MODE[mode]}",
        "mechanism": f"{made.idea.mechanism}{IN_MODE[mode]}",
    }
    changed = Composition(
        idea=made.idea.model_copy(update=told), candidate=in_mode(made.candidate, mode)
    )
    return _numbered(changed, number, made.idea.round)


def _numbered(made: Composition, number: int, round: int) -> Composition:
    """The same as that round's idea of that number."""
    told = {"id": f"r{round}i{number}", "round": round}
    return made.model_copy(update={"idea": made.idea.model_copy(update=told)})


def _composition(
    context: SearchContext, found: Listed, words: str, picked: Picked, number: int
) -> Composition | None:
    """One candidate for the whole; None where it cannot be written, which is noted."""
    assert found.outline is not None
    parts = [Part(item, r.candidate) for item, r in picked if r.candidate is not None]
    parameters = tuple(spec.name for spec in context.task.inputs)
    language = default_language(context.hardware.kind).spec.name
    try:
        if found.outline.parts:
            candidate = compose_in_parts(found.outline, parts, parameters, language)
        else:
            candidate = compose(found.outline.graph, parts, parameters, language)
    except (ComposeError, ContractError) as error:
        said = f"{', '.join(part.of.name for part in parts)} cannot be put together: {error}"
        context.emit(Noted(words=said), key=f"composed:{number}")
        return None
    saved_ms = sum(map(_saved_ms, picked))
    named = ", ".join(item.name for item, _ in picked)
    idea = Idea(
        id=f"r1i{number}",
        title=f"regions put together: {named}",
        mechanism=f"{words}: {named}, each in all its places; everything else as eager runs it",
        reason=f"their searches promise {saved_ms:.3g} ms of {found.outline.whole_ms:.3g} ms",
        category="fusion",
        metric="time of the whole model",
        predicted_ms=max(found.outline.whole_ms - saved_ms, 1e-6),
        round=1,
        # The ledger counts what the playbook wrote only where a recipe says that it did.
        recipe=Recipe(picks=()).model_dump_json(),
    )
    return Composition(idea=idea, candidate=candidate)
