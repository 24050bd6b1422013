"""The contract, checked before a judge is troubled; what is found is told to the model.

Everything here is static and takes milliseconds. What only a compiler or a device can tell comes
back as a verdict later.
"""

from collections.abc import Collection

from agents.minds.writing.answers import Draft
from agents.minds.writing.excerpts import excerpt
from tools.candidates import ContractError, complete_settings
from tools.candidates.plan import Plan, validate_plan
from tools.languages import language_named, parse_kernel
from tools.languages.results import CompileRefusedError
from tools.nouns import LanguageName, Task

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
