"""What a failed candidate's writer needs to know: the message, the lines, how numbers differ."""

import re

from agents.minds.writing.excerpts import compiler_errors, excerpt
from tools.nouns import Candidate, CompileReport, Evaluation, Value, Verdict, Verification

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
        verdict=evaluation.verdict.value.replace("_", " "),
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


def resources(reports: tuple[CompileReport, ...]) -> str:
    """What each kernel of a candidate takes, in a line."""
    return "; ".join(words for report in reports if (words := _report(report)))


def _report(report: CompileReport) -> str:
    facts = [
        (report.registers, "registers a thread"),
        (report.spill_bytes, "bytes spilled"),
        (report.shared_bytes, "bytes of static shared memory a block"),
        (report.stack_bytes, "bytes of stack"),
    ]
    known = [f"{value} {words}" for value, words in facts if value]
    return f"{report.kernel}: {', '.join(known)}" if known else ""


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
