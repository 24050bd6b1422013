"""Why none of a search's candidates is right: each kind of failure once, with its first reason.

A person who reads "no candidate was correct" wants to know whether a compiler refused them, a
result was wrong and on which inputs, the time was over, or nothing could be written at all. The
same lines stand in a run's log, its trace, its card and in the chat.
"""

from collections.abc import Sequence

from kernelwright.agents.coder.coder import UNWRITTEN
from kernelwright.graphs.run_view.events import one_line
from kernelwright.graphs.run_view.view import RunView
from kernelwright.tools.archive import Standing
from kernelwright.tools.tasks.refusals import complaints
from kernelwright.tools.types import Verdict

_LESS_EXACT = "right, but less exact"
# Of a reason, so much: which output on which inputs, where, and by how much.
_LONGEST = 320


def failure_lines(view: RunView) -> tuple[str, ...]:
    """`2 of 3 wrong result, first v1: output 0 on ...`; () where a candidate is right."""
    kinds: dict[str, list[Standing]] = {}
    for item in view.standings:
        kinds.setdefault(_kind(item), []).append(item)
    if "" in kinds:
        return ()
    judged = len(view.standings)
    said = [f"{_share(len(items), judged)} {kind}{_first(items)}" for kind, items in kinds.items()]
    unwritten = next((words for words in view.notes if UNWRITTEN in words), "")
    return (*said, *([one_line(unwritten, _LONGEST)] if unwritten else []))


def _kind(item: Standing) -> str:
    """What is wrong with a candidate, in words; "" with one that is right."""
    found = item.evaluation.verification
    if found.verdict is Verdict.CORRECT:
        return _LESS_EXACT if found.apart else ""
    return found.verdict.words


def _share(count: int, judged: int) -> str:
    return "the only candidate:" if judged == 1 else f"{count} of {judged}:"


def _first(items: Sequence[Standing]) -> str:
    """The first one's number, unless it is the only one, and its reason."""
    first = items[0]
    found = first.evaluation.verification
    reason = found.apart if found.verdict is Verdict.CORRECT else found.reason
    compiler = complaints(first.evaluation.compiler_log)[:1]
    words = "; ".join(part for part in (reason, *compiler) if part)
    named = f"first v{first.number}" if len(items) > 1 else f"v{first.number}"
    return f", {named}: {one_line(words, _LONGEST)}"
