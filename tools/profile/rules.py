"""Reads what ncu's own rules said, from `ncu --import REPORT --csv --page details`.

Rules that only say what else could be collected are left out.
"""

import re

from kernelwright.tools.profile.names import plain_name
from kernelwright.tools.profile.reading import number, rows
from kernelwright.tools.types.profile import RuleResult

# OPT: something could be better. WRN and INF speak of the profiling itself.
_TELLING = "OPT"
_LINK = re.compile(r"\s*\(https?://[^)]*\)")


def read_rules(text: str) -> tuple[RuleResult, ...]:
    """Every rule that found something to improve, in order of launches; () without a table."""
    header, *lines = rows(text) or [[]]
    told = (dict(zip(header, line, strict=False)) for line in lines)
    return tuple(_result(row) for row in told if row.get("Rule Type") == _TELLING)


def _result(row: dict[str, str]) -> RuleResult:
    percent = number(row.get("Estimated Speedup"))
    return RuleResult(
        kernel=plain_name(row["Kernel Name"]),
        launch=int(number(row["ID"]) or 0),
        rule=row["Rule Name"],
        words=_LINK.sub("", " ".join(row["Rule Description"].split())),
        speedup_fraction=None if percent is None else percent / 100,
        local=row.get("Estimated Speedup Type") == "local",
    )
