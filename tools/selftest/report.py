"""What the suite found on one machine, as a value and as a table for the docs."""

from kernelwright.tools.selftest.nouns import Outcome
from kernelwright.tools.types import Isolation, Value


class Report(Value):
    """Every outcome, with the device and the day."""

    device: str
    isolation: Isolation
    date: str
    holds: bool
    outcomes: tuple[Outcome, ...]

    @property
    def words(self) -> str:
        """How it went, in a sentence."""
        caught = sum(outcome.caught for outcome in self.outcomes)
        accepted = sum(outcome.twin_accepted for outcome in self.outcomes)
        total = len(self.outcomes)
        return f"{caught} of {total} cheats found out, {accepted} of {total} honest twins accepted"


def markdown_table(report: Report) -> str:
    """The report as Markdown."""
    lines = [
        f"{report.device}, {report.date}, {report.isolation}: {report.words}.",
        "",
        "| # | what the evil does | as | verdict | its honest twin |",
        "|---|---|---|---|---|",
    ]
    for outcome in report.outcomes:
        found = outcome.evil.verdict.value.replace("_", " ")
        if found == "correct" and outcome.caught:
            found = f"labelled: {outcome.words[0]}"
        caught = found if outcome.caught else f"**not found out** ({found})"
        twin = "correct" if outcome.twin_accepted else f"**{outcome.twin.verdict.value}**"
        lines.append(f"| {outcome.row} | {outcome.case} | {outcome.kind} | {caught} | {twin} |")
    return "\n".join(lines) + "\n"
