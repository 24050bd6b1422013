"""Rejection sampling: a model answers the tasks of training, and what is right is learnt from next.

A round is a call: sampled, judged, and written as a data set beside the one it came from, with the
right answers among the instructions, right and wrong ones among the preferences, and a failed
answer with a right one of the same task as a repair.
"""

from collections.abc import Iterable, Mapping, Sequence

from kernelwright.tools.learning.contract.launches import interface
from kernelwright.tools.learning.contract.prompts import Failure, question
from kernelwright.tools.learning.data.records import Attempt, Problem, Provenance
from kernelwright.tools.learning.evaluation import asked
from kernelwright.tools.learning.judging import Judge, Worth
from kernelwright.tools.runtime import kernelwright_version
from kernelwright.tools.types import LanguageName


async def judged_attempts(
    problems: Sequence[Problem],
    answers: Mapping[str, Sequence[str]],
    judge: Judge,
    *,
    model: str,
    device: str,
) -> list[Attempt]:
    """Sampled answers as attempts, with the repairs that they make possible.

    Args:
        problems: What was asked.
        answers: By the problem's key.
        judge: Who judges.
        model: Whose answers they are.
        device: What they are judged on.
    """
    source = Provenance(
        source="sampled", run=model, author="model", device=device,
        version=kernelwright_version(), effort="screen",
    )  # fmt: skip
    found: list[Attempt] = []
    for problem in problems:
        texts = answers[problem.key]
        worth = await judge.judged(problem.task, texts)
        own = [
            _attempt(problem, judge.language, number, text, of, source)
            for number, (text, of) in enumerate(zip(texts, worth, strict=True))
        ]
        found += [*own, *_repairs(problem, judge.language, own)]
    return found


def _attempt(
    problem: Problem,
    language: LanguageName,
    number: int,
    text: str,
    worth: Worth,
    source: Provenance,
) -> Attempt:
    return Attempt(
        id=f"{problem.name}/{source.run}/{number}",
        task=problem.key,
        family=problem.family,
        contract="short",
        language=language,
        question=asked(problem, language),
        answer=text,
        verdict=worth.verdict,
        reason=worth.reason,
        speedup=worth.speedup,
        provenance=source,
    )


def _repairs(problem: Problem, language: LanguageName, own: Iterable[Attempt]) -> list[Attempt]:
    """The fastest right answer as the correction of the first that failed; [] without either."""
    known = list(own)
    good = max(
        (one for one in known if one.speedup), key=lambda one: one.speedup or 0.0, default=None
    )
    bad = next((one for one in known if one.speedup is None and one.reason), None)
    if good is None or bad is None:
        return []
    words = f"{bad.verdict.value.replace('_', ' ')}: {bad.reason}"
    failure = Failure(answer=bad.answer, words=words)
    names = interface(problem.task)
    asked_again = question(problem.task, names, language, failure=failure)
    update = {"id": f"{good.id}/repair", "question": asked_again, "repairs": bad.id}
    return [good.model_copy(update=update)]
