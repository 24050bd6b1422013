"""The values on the page, worked out from a story: what is drawn, what stands in which table."""

from markupsafe import Markup

from kernelwright.graphs.run_view.charts import around, roofline, trajectory
from kernelwright.graphs.run_view.story import Story
from kernelwright.graphs.run_view.wording import VERDICT
from kernelwright.tools.archive import Standing, elites
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.types import (
    Candidate,
    Conditions,
    Evidence,
    OutputError,
    Rank,
    StrategyVersion,
    Verdict,
)
from kernelwright.ui.report import charts
from kernelwright.ui.report.charts import Scale
from kernelwright.ui.terminal.model_calls import Spending, by_role, changes, spending


def trajectory_chart(story: Story) -> Markup:
    """Every correct candidate at the time it was first judged."""
    return charts.trajectory(trajectory(story.view))


def roofline_chart(story: Story) -> Markup:
    """PyTorch, the elites and the best under the roofs; empty where there is no arithmetic."""
    chosen = [elite.standing for elite in elites(story.standings)] if story.view.flops else []
    return charts.roofline(roofline(story.view, story.record.hardware, chosen))


def rungs(profile: tuple[Evidence, ...]) -> list[tuple[str, list[Evidence]]]:
    """The readings by how they were come by, the best rank first; what is missing is not among."""
    ranks = [rank for rank in Rank if rank is not Rank.UNAVAILABLE]
    found = [(rank.value, [item for item in profile if item.rank is rank]) for rank in ranks]
    return [(name, items) for name, items in found if items]


def unmeasured(profile: tuple[Evidence, ...]) -> list[Evidence]:
    """What could not be measured; each says why and what would help."""
    return [item for item in profile if item.rank is Rank.UNAVAILABLE]


def dumbbells(story: Story) -> list[Markup]:
    """For every ledger entry, what was predicted and measured on one scale."""
    times = [
        value
        for entry in story.ledger
        for value in (entry.predicted_ms, entry.measured_ms)
        if value is not None
    ]
    low, high = around(times) if times else (1.0, 2.0)
    scale = Scale(low, high, 8, 180)
    return [charts.dumbbell(entry.predicted_ms, entry.measured_ms, scale) for entry in story.ledger]


def ancestor(story: Story) -> Candidate | None:
    """What the best is compared with: its parent, or the first correct candidate."""
    if story.best is None:
        return None
    best = story.best.candidate
    by_id = {item.candidate.id: item.candidate for item in story.written}
    parents = [by_id[name] for name in best.parents if name in by_id]
    correct = [s.candidate for s in story.standings if s.evaluation.verdict is Verdict.CORRECT]
    return next((item for item in (*parents, *correct) if item.id != best.id), None)


def worst_errors(standing: Standing) -> list[OutputError]:
    """For every distribution, the output that came off worst."""
    worst: dict[str, OutputError] = {}
    for item in standing.evaluation.verification.errors:
        known = worst.get(item.distribution)
        if known is None or item.error_ratio > known.error_ratio:
            worst[item.distribution] = item
    return list(worst.values())


def conditions(story: Story) -> list[tuple[str, str]]:
    """Under what the best was timed, a name and a value each."""
    found = _conditions(story)
    if found is None:
        return []
    clocks = (found.sm_clock_mhz, found.memory_clock_mhz)
    rows = [
        ("device", found.device),
        ("threads", str(found.threads or "")),
        ("last-level cache", "flushed between runs" if found.l2_flushed else "not flushed"),
        ("input sets rotated", str(found.input_sets)),
        ("clocks", " / ".join(f"{clock} MHz" for clock in clocks if clock is not None)),
        ("temperature", f"{found.temperature_c} °C" if found.temperature_c is not None else ""),
        ("power", f"{found.power_w:.0f} W" if found.power_w is not None else ""),
        ("throttling", ", ".join(found.throttle_reasons)),
        (
            "other processes on the device",
            str(found.other_processes) if found.other_processes is not None else "",
        ),
        (
            "load average of the machine",
            f"{found.load_average:.2f}" if found.load_average is not None else "",
        ),
    ]
    return [row for row in rows if row[1]] + [("note", note) for note in found.notes]


def _conditions(story: Story) -> Conditions | None:
    if story.best is None:
        return None
    evaluation = story.best.evaluation
    if evaluation.comparisons:
        return evaluation.comparisons[0].conditions
    return evaluation.screen.conditions if evaluation.screen else None


def verdict_rows(story: Story) -> list[tuple[str, int]]:
    """How many candidates got which verdict, the most frequent first."""
    return [(VERDICT[verdict], number) for verdict, number in story.view.by_verdict.most_common()]


def remarks(story: Story) -> tuple[str, ...]:
    """What was warned of that no badge stands for."""
    told = {badge.words for badge in story.record.task.badges}
    return tuple(words for words in warnings(story) if words not in told)


def rule_rows(story: Story) -> list[tuple[str, str]]:
    """Every figure and choice that the judge goes by, a name and a value each."""
    rules = story.rules or Rules()
    fields = [name for name in Rules.model_fields if name != "switched_off"]
    values = ((name.replace("_", " "), getattr(rules, name)) for name in fields)
    return [(name, value if isinstance(value, str) else f"{value:g}") for name, value in values]


def switched_off(story: Story) -> tuple[str, ...]:
    """Defences that the run went without; nobody should ever see one."""
    off = story.rules.switched_off if story.rules else ()
    return tuple(defence.value.replace("_", " ") for defence in off)


def warnings(story: Story) -> tuple[str, ...]:
    """What the audit of the task warned of."""
    return story.view.warnings or story.record.task.warnings


def spending_rows(story: Story) -> list[Spending]:
    """What each role's questions came to, and all of them."""
    roles = by_role(story.calls)
    return [*roles, spending(story.calls)] if roles else []


def strategies(story: Story) -> list[tuple[StrategyVersion, list[str]]]:
    """Versions of the evolving prompts, each with what changed since its parent."""
    found = []
    for version in story.strategies:
        parent = story.strategy(version.parent)
        found.append((version, list(changes(parent.text if parent else "", version.text))))
    return found
