"""Cutting steps at regions, so that every part has one producer; see `regions`.

A step may be cut where it reads what rows make, on conditions of position, or a tensor that was
written in pieces. Whether a cut pays is not known here: `lower` tries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernelwright.tools.codegen.lower.fusion.inline import inlined
from kernelwright.tools.codegen.lower.fusion.regions import Parts, cut, cuts_of
from kernelwright.tools.codegen.lower.nests.context import Context, Step
from kernelwright.tools.codegen.lower.nests.nest import Nest, where_of

Writers = Mapping[str, list[Nest]]
# Expressions of a part: as many as inlining allows elsewhere.
_LIMIT = 240


def in_regions(
    context: Context, steps: Sequence[Step], wanted: frozenset[str]
) -> tuple[list[Step], list[str]]:
    """The steps, those that make a buffer of `wanted` cut, and what else could be cut so.

    Args:
        context: the translation.
        steps: what makes a buffer before what reads it.
        wanted: names of buffers whose makers are cut.

    Returns:
        The steps, and the name of a buffer of each step that can be cut.
    """
    result: list[Step] = []
    cuttable: list[str] = []
    writers: dict[str, list[Nest]] = {}
    for step in steps:
        name = min(step.targets, default="")
        nests = _parts(context, step.nest, writers) if step.nest is not None else []
        if nests and name not in cuttable:
            cuttable.append(name)
        if not nests or name not in wanted:
            result.append(step)
            nests = [step.nest] if step.nest is not None else []
        else:
            result += [Step(step.number, nest, stage=step.stage) for nest in nests]
        for nest in nests:
            for buffer in nest.targets:
                writers.setdefault(buffer, []).append(nest)
    return result, cuttable


def _parts(context: Context, nest: Nest, writers: Writers) -> list[Nest]:
    """The parts of a nest; none where it reads nothing in regions."""
    made = {name: writers[name] for name in sorted(nest.reads) if name in writers}
    pieces = {name: nests for name, nests in made.items() if len(nests) > 1}
    if not pieces and not any(nests[0].inner for nests in made.values()):
        return []
    parts = [
        Parts(context.buffers[name], tuple(one.writes[0].address for one in nests))
        for name, nests in pieces.items()
    ]
    found = cut(context.ops, nest, cuts_of(context.ops, nest, parts))
    complete = [one for part in found if (one := _of_pieces(context, part, pieces)) is not None]
    return complete if len(complete) == len(found) else []


def _of_pieces(context: Context, nest: Nest, pieces: Writers) -> Nest | None:
    """The nest with what it reads of tensors made in pieces computed; None where it cannot."""
    while True:
        load = next((load for load in nest.loads if where_of(load).buffer in pieces), None)
        if load is None:
            return nest
        name = where_of(load).buffer
        made = (
            inlined(context.ops, nest, load, piece)
            for piece in pieces[name]
            if not piece.inner and len(piece.writes) == 1 and name not in context.exact
        )
        new = next((one for one in made if one is not None), None)
        if new is None or len(new.exprs) > _LIMIT:
            return None
        nest = new
