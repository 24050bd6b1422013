"""What is wrong with a candidate, in words that its writer can act upon.

Before it is judged: what of the contract a draft breaks, all of it static and in milliseconds. What
only a compiler or a device can tell comes after: the verdict, the compiler's errors with the lines
that they are about, and what passed all the same.
"""

import re
from collections.abc import Collection, Iterable

from kernelwright.agents.coder.answers import Draft
from kernelwright.agents.prompting.cards import resources
from kernelwright.tools.candidates import ContractError, complete_settings
from kernelwright.tools.candidates.plan import Plan, validate_plan
from kernelwright.tools.languages import language_named, parse_kernel
from kernelwright.tools.languages.base.compilers import CompileRefusedError
from kernelwright.tools.types import (
    Candidate,
    Evaluation,
    LanguageName,
    Task,
    Value,
    Verdict,
    Verification,
)

_LINE = re.compile(r"\bline (\d+): ")
# Rules of the contract that speak of the kernel; the others speak of the plan.
_KERNEL_RULES = re.compile(r"\[(?:signature|exports|tune|require|settings|source)\]\s*$")
_LOG_CHARACTERS = 4000


class Findings(Value):
    """One failure in the words of the prompt; what is not known is empty."""

    verdict: str
    reason: str
    errors: str = ""
    places: str = ""
    resources: str = ""
    passed: str = ""


def findings(candidate: Candidate, evaluation: Evaluation) -> Findings:
    """What is known about why a candidate failed."""
    verification = evaluation.verification
    errors, lines = compiler_errors(evaluation.compiler_log)
    failed = evaluation.verdict is Verdict.COMPILE_ERROR
    return Findings(
        verdict=evaluation.verdict.words,
        reason=verification.reason,
        errors=_errors(errors, evaluation.compiler_log) if failed else "",
        places=excerpt(candidate.kernel, lines) if failed else _named(candidate, verification),
        resources="" if failed else resources(evaluation.reports),
        passed=_passed(verification),
    )


def _errors(errors: tuple[str, ...], log: str) -> str:
    return "\n".join(errors)[:_LOG_CHARACTERS] or log.strip()[-_LOG_CHARACTERS:]


def _named(candidate: Candidate, verification: Verification) -> str:
    """The line that the reason itself names: of the plan, or of the kernel's declarations."""
    found = _LINE.search(verification.reason)
    if found is None:
        return ""
    of_kernel = _KERNEL_RULES.search(verification.reason)
    text = candidate.kernel if of_kernel else candidate.plan
    return excerpt(text, (int(found.group(1)),))


def _passed(verification: Verification) -> str:
    """The inputs it was right on, with how close it came to the bound there."""
    worst: dict[str, float] = {}
    for error in verification.errors:
        ratio = max(worst.get(error.distribution, 0.0), error.error_ratio)
        worst[error.distribution] = ratio
    known = dict.fromkeys((*worst, *verification.distributions))
    return ", ".join(
        f"{name!r} (error {worst[name]:.2g} times PyTorch's own)" if name in worst else repr(name)
        for name in known
    )


_PLAN_MISSING = "there is no plan: a ```python block with `def forward(...)` belongs to the kernel"


def problems(draft: Draft, task: Task, language: LanguageName) -> str:
    """Why a draft cannot be judged, in words that its writer can act upon; "" when it can."""
    if draft.problem:
        return draft.problem
    if draft.language is not None and draft.language != language:
        return f"the kernel is {draft.language}, but this device takes {language}"
    try:
        source = parse_kernel(draft.kernel, language)
        language_named(language).check(draft.kernel)
        complete_settings(source)
    except ContractError as error:
        return _told("kernel", draft.kernel, error)
    except CompileRefusedError as refused:
        return refused.message
    if not draft.plan:
        return _PLAN_MISSING
    try:
        plan = validate_plan(draft.plan, source)
    except ContractError as error:
        return _told("plan", draft.plan, error)
    return _misfits(plan, task)


def _misfits(plan: Plan, task: Task) -> str:
    """What a plan asks for and the task does not have."""
    names = [spec.name for spec in task.inputs]
    if len(plan.parameters) != len(names):
        wanted, got = ", ".join(names), ", ".join(plan.parameters)
        return f"forward takes ({got}), but the task has {len(names)} inputs: ({wanted})"
    known = {spec.name for spec in task.weights}
    if lost := _lost(plan.weights, known):
        return f"the task has no weight {lost!r}; it has {', '.join(sorted(known)) or 'none'}"
    if lost := _lost(plan.updates, {spec.name for spec in task.weights if spec.is_buffer}):
        return f"{lost!r} is no buffer of the task, so it cannot be updated"
    return "" if plan.launches else "the plan launches no kernel: library calls alone prove nothing"


def _lost(names: Collection[str], known: Collection[str]) -> str:
    return next((name for name in names if name not in known), "")


def _told(what: str, text: str, error: ContractError) -> str:
    where = f"{what}, line {error.line}" if error.line else what
    shown = excerpt(text, (error.line,), around=1)
    return f"{where}: {error.words}" + (f"\n{shown}" if shown else "")


# A line of g++ ("kernel.cpp:7:13: error: ...") or NVRTC ("kernel.cu(7): error: ...").
_PLACE = re.compile(r"kernel\.(?:cu|cpp)[(:](\d+)[):]")
_ERROR = re.compile(r"\berror\b|undefined reference", re.IGNORECASE)
_MESSAGES = 8
_WIDTH = 200


def excerpt(text: str, lines: Iterable[int], *, around: int = 2) -> str:
    """The named lines (from 1) and their neighbours, numbered; "" when none of them exists.

    The lines themselves are marked by `>`; gaps are shown as `...`.
    """
    source = text.splitlines()
    marked = {line for line in lines if 1 <= line <= len(source)}
    near = {n for line in marked for n in range(line - around, line + around + 1)}
    shown: list[str] = []
    last = 0
    for number in sorted(n for n in near if 1 <= n <= len(source)):
        if last and number > last + 1:
            shown.append("      ...")
        mark = ">" if number in marked else " "
        shown.append(f"{mark}{number:5d}  {source[number - 1][:_WIDTH]}")
        last = number
    return "\n".join(shown)


def numbered(text: str) -> str:
    """A whole source with its line numbers."""
    return "\n".join(f"{n:4d}  {line}" for n, line in enumerate(text.splitlines(), start=1))


def compiler_errors(log: str) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The compiler's error messages, the first ones, and the kernel's lines that they name."""
    lines = [line.strip() for line in log.splitlines()]
    errors = list(dict.fromkeys(line for line in lines if _ERROR.search(line)))[:_MESSAGES]
    places = dict.fromkeys(int(found.group(1)) for e in errors if (found := _PLACE.search(e)))
    return tuple(errors), tuple(places)
