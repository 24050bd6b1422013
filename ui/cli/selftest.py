"""Try the judge's defences on this machine: every cheat of the catalogue, and honest twins.

Exit status: 0 when every cheat was found out for its reason and every twin accepted, 1 when not,
2 for a row that does not exist, 3 when the machine lacks something.
"""

import asyncio
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.table import Table
from rich.text import Text

from kernelwright.graphs.run_view.events import one_line
from kernelwright.ui.complaints import Complaint, writable_file
from kernelwright.ui.terminal.output import STDOUT, check_json, console, remarks, write_json

if TYPE_CHECKING:
    from kernelwright.tools.selftest.catalogue import Device, Outcome
    from kernelwright.tools.selftest.suite import Report

LET_PASS = 1


def selftest(rows: str, target: str, kind: str, json: str | None, markdown: Path | None) -> None:
    """Judge the catalogue and print what was found."""
    from kernelwright.tools.selftest.suite import markdown_table

    check_json(json)
    if markdown is not None:
        writable_file(markdown)

    def keep(report: "Report") -> None:
        """After every case, so that a run that is stopped keeps what it saw."""
        if json is not None and json != STDOUT:
            write_json(report, json)

    report = asyncio.run(_judged(_numbers(rows), target, kind, keep))
    if json is not None:
        write_json(report, json)
    if markdown is not None:
        markdown.write_text(markdown_table(report), encoding="utf-8")
    if json != STDOUT:
        tell(report)
    if not report.holds:
        raise typer.Exit(LET_PASS)


async def _judged(
    rows: tuple[int, ...], target: str, kind: str, keep: Callable[["Report"], None]
) -> "Report":
    from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
    from kernelwright.tools.selftest.suite import RULES, Report, Suite

    say, found = remarks(), list["Outcome"]()
    with tempfile.TemporaryDirectory(prefix="kernelwright-", ignore_cleanup_errors=True) as scratch:
        executor = LocalExecutor.create(target, Path(scratch), rules=RULES)

        def report(device: str) -> Report:
            return Report(
                device=device,
                isolation=executor.isolation,
                date=datetime.now(UTC).date().isoformat(),
                holds=bool(found) and all(outcome.holds for outcome in found),
                outcomes=tuple(found),
            )

        try:
            hardware = await executor.hardware()
            device: Device = "cuda" if hardware.kind == "cuda" else "cpu"
            say.print(f"judging evils and their twins on {hardware.name}", style="dim")
            async for outcome in Suite(executor, device).run(rows, kind):
                found.append(outcome)
                style = "dim" if outcome.holds else "red"
                say.print(Text(f"{outcome.row:>2}  {outcome.case}: {_words(outcome)}", style=style))
                keep(report(hardware.name))
        finally:
            await executor.aclose()
    return report(hardware.name)


def _numbers(rows: str) -> tuple[int, ...]:
    """`1,4,19` as numbers; Complaint for what is no row."""
    from kernelwright.tools.selftest.catalogue import rows as known

    numbers = tuple(row.row for row in known())
    wanted = [part.strip() for part in rows.split(",") if part.strip()]
    for part in wanted:
        if not part.isdecimal() or int(part) not in numbers:
            listed = ", ".join(map(str, numbers))
            raise Complaint(f"there is no row {part!r}; the catalogue has {listed}")
    return tuple(int(part) for part in wanted)


def _words(outcome: "Outcome") -> str:
    if outcome.holds:
        return f"{outcome.evil.verdict.value}, as it must be"
    if not outcome.caught:
        return f"NOT FOUND OUT: {outcome.evil.verdict.value}, {one_line(outcome.evil.said, 160)}"
    return f"THE TWIN WAS REJECTED: {one_line(outcome.twin.said, 160)}"


def tell(report: "Report") -> None:
    """Print the table."""
    table = Table(title=f"{report.device}, {report.date}, {report.isolation}")
    for column in ("row", "cheat", "as", "expected", "found", "s", "twin", "s"):
        table.add_column(column, overflow="fold")
    for outcome in report.outcomes:
        table.add_row(
            str(outcome.row),
            Text(outcome.case),
            outcome.kind,
            " / ".join(verdict.value for verdict in outcome.expected),
            Text(outcome.evil.verdict.value, style="green" if outcome.caught else "bold red"),
            f"{outcome.evil.seconds:.1f}",
            Text(
                outcome.twin.verdict.value, style="green" if outcome.twin_accepted else "bold red"
            ),
            f"{outcome.twin.seconds:.1f}",
        )
    out = console()
    out.print(table)
    out.print(Text(report.words, style="green" if report.holds else "bold red"))
