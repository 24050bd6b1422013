"""The tables of `independent_check.py`: verdicts beside the check's, by family and by strategy.

Files may be packed. Every candidate counts once, however often it stands in them.
"""

import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from check_worker import Outcome

_ACCEPTED = "correct"
# What the playbook wrote was run to the end, so that its result was looked at.
_LOOKED_AT = (_ACCEPTED, "wrong_result")
# A compile that was found in the cache says nothing of compiling.
_CACHED_S = 0.02
_HEAD = (
    "| {0} | candidates | accepted | of them refused by the check | wrong_result "
    "| right by the check | other verdicts | compile s: median, p95 | largest ratio: rms, worst |"
)


def read(paths: Iterable[Path]) -> list[Outcome]:
    """Every outcome of the files."""
    found: dict[tuple[int, str], Outcome] = {}
    for path in paths:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8") as file:
            for line in file:
                if "over" not in json.loads(line):
                    outcome = Outcome.model_validate_json(line)
                    found[outcome.module, outcome.candidate] = outcome
    return [*found.values()]


def print_summary(paths: Sequence[Path]) -> None:
    """Print everything that is published, as Markdown, and each disagreement."""
    outcomes = read(paths)
    modules = len({outcome.module for outcome in outcomes})
    print(f"{len(outcomes)} candidates of {modules} modules\n")
    _table("family", outcomes, lambda one: (one.family,))
    _table("type", outcomes, lambda one: (one.dtype,))
    _table("strategy", outcomes, _strategies)
    _edges(outcomes)
    for outcome in outcomes:
        if outcome.check == "refused" and outcome.verdict == _ACCEPTED:
            print(f"- ACCEPTED AND REFUSED: {_told(outcome)}: {outcome.words}")
    for outcome in outcomes:
        if outcome.verdict not in (_ACCEPTED, ""):
            check = f" (check: {outcome.check})" if outcome.check else ""
            print(f"- {outcome.verdict}{check}: {_told(outcome)}: {outcome.reason}")


def _edges(outcomes: Sequence[Outcome]) -> None:
    """What was left out as it overflows where PyTorch just does not."""
    found = [one for one in outcomes if one.at_edge]
    right = sum(one.check == "right" for one in found)
    print(f"{len(found)} candidates overflow in places at the edge; {right} of them are right else")
    for one in found:
        print(f"- AT THE EDGE: {one.at_edge} places: {_told(one)}")
    print()


def _told(outcome: Outcome) -> str:
    return f"{outcome.name} {outcome.dtype} {' '.join(_strategies(outcome))} {outcome.settings}"


def _strategies(outcome: Outcome) -> tuple[str, ...]:
    """The strategies of its loops; what several loops share counts once."""
    pairs = (text.split("=", 1) for text in outcome.strategies)
    kept = {value for name, value in pairs if name not in ("memory", "compute", "parallel", "form")}
    return tuple(sorted(kept))


def _table(title: str, outcomes: Sequence[Outcome], keys) -> None:
    groups: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        for key in keys(outcome):
            groups.setdefault(key, []).append(outcome)
    print(_HEAD.format(title))
    print("|---" * (_HEAD.count("|") - 1) + "|")
    for key in sorted(groups):
        print(_row(key, groups[key]))
    print(_row("all", outcomes) + "\n")


def _row(key: str, of: Sequence[Outcome]) -> str:
    accepted = [one for one in of if one.verdict == _ACCEPTED]
    wrong = [one for one in of if one.verdict == "wrong_result"]
    refused = sum(one.check == "refused" for one in accepted)
    unfair = sum(one.check == "right" for one in wrong)
    looked_at = max(1, len(accepted) + len(wrong))
    others: dict[str, int] = {}
    for one in of:
        if one.verdict not in (*_LOOKED_AT, ""):
            others[one.verdict] = others.get(one.verdict, 0) + 1
    compiles = sorted(one.compile_s for one in of if one.compile_s > _CACHED_S)
    checked = [one for one in accepted if one.check]
    cells = (
        key, len(of), len(accepted), f"{refused} of {len(checked)}",
        f"{len(wrong)} ({len(wrong) / looked_at:.2%})", unfair,
        ", ".join(f"{name} {count}" for name, count in others.items()) or "-",
        f"{_quantile(compiles, 0.5):.2f}, {_quantile(compiles, 0.95):.2f}",
        f"{max((one.rms_ratio for one in checked), default=0.0):.2f}, "
        f"{max((one.worst_ratio for one in checked), default=0.0):.2f}",
    )  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def _quantile(values: Sequence[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0.0
