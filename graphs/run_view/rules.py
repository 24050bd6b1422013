"""The judge's rules of a run: kept when it begins, read when it is shown."""

from pydantic import ValidationError

from kernelwright.tools.archive import Archive
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.evaluate.rules import Rules

TERM = "rules"


def keep_rules(archive: Archive, judge: Executor) -> None:
    """Write down what the judge goes by, where it is known here."""
    if judge.rules is not None:
        archive.record_term(TERM, judge.rules.model_dump_json())


def rules_of(archive: Archive) -> Rules | None:
    """What a run was judged by; None where it did not write that down in terms of today's."""
    kept = archive.term(TERM)
    try:
        return Rules.model_validate_json(kept) if kept is not None else None
    except ValidationError:
        return None
