"""Attempts of our own: random modules, the playbook's plain answers, and answers that are broken.

Each answer is judged like anybody's. An answer that turns out right is also broken in a way that
small models break theirs (a name that is not there, a missing barrier, a bound, a lost comment) and
judged again; what then fails, with the judge's words, is a question whose answer is the right one.
Modules are of our own making, so no wall stands around tracing them (see `drafts`).
"""

import random
import re
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from kernelwright.tools.learning.contract.launches import Interface, interface
from kernelwright.tools.learning.contract.prompts import (
    PROMPT_TOKENS,
    Failure,
    Question,
    question,
    size_of,
)
from kernelwright.tools.learning.data.records import Attempt, Problem, Provenance
from kernelwright.tools.learning.judging import Judge, Worth
from kernelwright.tools.learning.writing.answers import WrittenAnswer
from kernelwright.tools.learning.writing.drafts import Draft, Drafting, drafts
from kernelwright.tools.learning.writing.families import Module
from kernelwright.tools.runtime import kernelwright_version
from kernelwright.tools.types import Value

ANSWERS = 3
# Modules whose answers are compiled while an earlier one's are judged.
_AHEAD = 8


class Written(Value):
    """One module as a problem, with the attempts at it."""

    problem: Problem
    attempts: tuple[Attempt, ...] = ()


async def written(
    modules: Sequence[Module],
    judge: Judge,
    device: str,
    *,
    seed: int,
    answers: int = ANSWERS,
    breaks: bool = True,
    processes: int = 0,
) -> AsyncGenerator[Written, None]:
    """Every module that the playbook has right answers for, with all that was judged.

    Args:
        modules: The modules.
        judge: Who judges.
        device: Its name, for provenance.
        seed: Of the choice of ways and breaks.
        answers: How many different ones to a module, at most.
        breaks: Whether right answers are broken and judged again.
        processes: How many draft beside the judge; 0 drafts in turns with it.
    """
    asked = Drafting(modules=tuple(modules), language=judge.language, count=answers, seed=seed)
    waiting: deque[_Begun] = deque()
    async with aclosing(drafts(asked, processes)) as drawn:
        async for draft in drawn:
            if (begun := _begun(draft, judge)) is not None:
                waiting.append(begun)
            if len(waiting) > _AHEAD:
                made = await _judged(waiting.popleft(), judge, device, seed, breaks=breaks)
                if made is not None:
                    yield made
    while waiting:
        made = await _judged(waiting.popleft(), judge, device, seed, breaks=breaks)
        if made is not None:
            yield made


@dataclass(frozen=True)
class _Begun:
    """A module whose answers are being compiled."""

    problem: Problem
    names: Interface
    asked: Question
    answers: tuple[WrittenAnswer, ...]


def _begun(draft: Draft, judge: Judge) -> _Begun | None:
    """A module with its answers, whose compiling begins; None where there is no answer."""
    problem, answers = draft.problem, draft.answers
    names = interface(problem.task)
    assert names is not None, "it is a problem"
    asked = question(problem.task, names, judge.language)
    if not answers or size_of(asked) > PROMPT_TOKENS:
        return None
    judge.foresee(problem.task, [one.answer for one in answers])
    return _Begun(problem, names, asked, answers)


async def _judged(
    begun: _Begun, judge: Judge, device: str, seed: int, *, breaks: bool
) -> Written | None:
    """A module with its attempts; None where none of them is right."""
    made = await _attempts(begun, judge, device, seed, breaks=breaks)
    good = any(attempt.speedup is not None for attempt in made)
    return Written(problem=begun.problem, attempts=tuple(made)) if good else None


async def _attempts(
    begun: _Begun, judge: Judge, device: str, seed: int, *, breaks: bool
) -> list[Attempt]:
    problem, names, asked, answers = begun.problem, begun.names, begun.asked, begun.answers
    worth = await judge.judged(problem.task, [one.answer for one in answers])
    made = [
        _attempt(problem, judge, device, asked, one, worth[number], number)
        for number, one in enumerate(answers)
    ]
    good = [one for one in made if one.speedup is not None]
    if breaks and good:
        made += await _broken(problem, judge, names, max(good, key=_speed), seed)
    return made


def _speed(attempt: Attempt) -> float:
    return attempt.speedup or 0.0


def _attempt(
    problem: Problem,
    judge: Judge,
    device: str,
    asked: Question,
    one: WrittenAnswer,
    worth: Worth,
    number: int,
) -> Attempt:
    return Attempt(
        id=f"{problem.name}/{number}",
        task=problem.key,
        family=problem.family,
        contract="short",
        language=judge.language,
        question=asked,
        answer=one.answer,
        verdict=worth.verdict,
        reason=worth.reason,
        speedup=worth.speedup,
        provenance=Provenance(
            source="playbook",
            run=problem.name,
            author=one.way,
            device=device,
            version=kernelwright_version(),
            effort="screen",
        ),
    )


async def _broken(
    problem: Problem, judge: Judge, names: Interface, good: Attempt, seed: int
) -> list[Attempt]:
    """A broken answer that fails, and the right one as its correction; [] where none fails."""
    draw = random.Random(f"{seed} {problem.name}")
    for number, broken in enumerate(breakages(good.answer, draw)[:2]):
        (worth,) = await judge.judged(problem.task, [broken])
        if worth.is_correct:
            continue
        words = f"{worth.verdict.value.replace('_', ' ')}: {worth.reason}"
        failed = good.model_copy(
            update={
                "id": f"{problem.name}/broken{number}",
                "answer": broken,
                "verdict": worth.verdict,
                "reason": worth.reason,
                "speedup": None,
            }
        )
        failure = Failure(answer=broken, words=words)
        asked = question(problem.task, names, judge.language, failure=failure)
        update = {"id": f"{good.id}/repair{number}", "question": asked, "repairs": failed.id}
        return [failed, good.model_copy(update=update)]
    return []


def breakages(answer: str, draw: random.Random) -> list[str]:
    """The answer broken in each way that changes it, in random order."""
    found = [broken for way in _WAYS if (broken := way(answer)) != answer]
    draw.shuffle(found)
    return found


def _unknown_name(answer: str) -> str:
    """The last value is called what nobody called it."""
    return re.sub(r"(= )(v\d+)(;\s*\n\s*\}\s*(?:\}\s*)*```)", r"\1\2_\3", answer)


def _short_bound(answer: str) -> str:
    """The last loop ends one too early."""
    bounds = list(re.finditer(r"; \w+ < (?:\d+ \* )*(\d+);", answer))
    if not bounds or int(bounds[-1][1]) < 2:
        return answer
    at = bounds[-1]
    return f"{answer[: at.start(1)]}{int(at[1]) - 1}{answer[at.end(1) :]}"


def _no_launch(answer: str) -> str:
    """The comment that launches is forgotten."""
    return re.sub(r"// launch: [^\n]*\n", "", answer, count=1)


def _no_semicolon(answer: str) -> str:
    """A line ends without its semicolon."""
    return re.sub(r"(const float v\d+ = [^\n;]*);", r"\1", answer, count=1)


def _alone(answer: str) -> str:
    """Threads do not join what they reduced."""
    return re.sub(r"\n[^\n]*= kw::(?:block|warp)_reduce[^\n]*", "", answer, count=1)


_WAYS: tuple[Callable[[str], str], ...] = (
    _unknown_name, _short_bound, _no_launch, _no_semicolon, _alone,
)  # fmt: skip
