"""The values on the page, worked out from a story: what is drawn, what stands in which table."""

from datetime import datetime

from markupsafe import Markup

from agents.shared.citations import reading
from graphs.events import CandidateJudged, RoundFinished, RunStarted
from tools.archive import Standing, elites
from tools.evaluate.rules import Rules
from tools.nouns import (
    Candidate,
    Conditions,
    Evidence,
    OutputError,
    Prediction,
    Rank,
    StrategyVersion,
    Verdict,
)
from ui.report.charts import Dot, Line, Point, dumbbell, roofline, trajectory
from ui.report.scale import Scale, around
from ui.story import Story
from ui.talk import Spending, by_role, changes, spending
from ui.words import VERDICT, milliseconds, one_line


def trajectory_chart(story: Story) -> Markup:
    """Every correct candidate at the time it was first timed."""
    begun = story.events[0].at if story.events else None
    dots = [] if begun is None else _dots(story, begun)
    ends = [
        (event.at - begun).total_seconds()
        for event in story.events
        if begun is not None and isinstance(event, RoundFinished)
    ]
    return trajectory(dots, _lines(story), ends)


def _dots(story: Story, begun: datetime) -> list[Dot]:
    idea_of = {item.candidate.id: item.candidate.idea for item in story.written}
    dots: dict[str, Dot] = {}
    for event in story.events:
        if not isinstance(event, CandidateJudged):
            continue
        found = event.evaluation
        if found.verdict is Verdict.CORRECT and found.median_ms is not None:
            title = one_line(story.title(idea_of.get(found.candidate, "")), 80)
            words = f"{found.candidate}: {milliseconds(found.median_ms)}, {title}"
            at_s = (event.at - begun).total_seconds()
            dots.setdefault(found.candidate, Dot(at_s, found.median_ms, words))
    return list(dots.values())


def _lines(story: Story) -> list[Line]:
    items = story.baselines.items if story.baselines else ()
    lines = [
        Line(item.name, item.measurement.median_ms, "baseline")
        for item in items
        if item.measurement is not None
    ]
    if story.floor_ms:
        lines.append(Line("floor", story.floor_ms, "floor"))
    return lines


def roofline_chart(story: Story) -> Markup:
    """PyTorch, the elites and the best under the roofs; empty where there is no arithmetic."""
    task, hardware = story.record.task, story.record.hardware
    if task.flops == 0 or task.bytes_moved == 0:
        return Markup("")
    points = [
        Point(line.name, task.flops / (line.ms / 1e3), "baseline")
        for line in _lines(story)
        if line.style == "baseline"
    ]
    best = story.best.candidate.id if story.best is not None else ""
    points += [
        _under_the_roof(story, elite.standing, best) for elite in elites(story.standings)
    ]  # fmt: skip
    if not points:
        return Markup("")
    tensor = any(_uses_tensor_cores(profile) for profile, _ in story.profiles.values())
    return roofline(
        task.flops / task.bytes_moved,
        hardware.bandwidth_gb_s,
        hardware.fp32_tflops,
        points,
        hardware.tensor_tflops if tensor else None,
        hardware.source,
    )


def _under_the_roof(story: Story, standing: Standing, best: str) -> Point:
    """A candidate by its time, and by the bytes that memory carried where they were counted."""
    candidate, task = standing.candidate.id, story.record.task
    median_ms = standing.evaluation.median_ms or float("inf")
    carried = reading(story.profiles.get(candidate, ((), ()))[0], "dram_traffic")
    own = candidate == best
    return Point(
        name="best" if own else candidate,
        flops_per_s=task.flops / (median_ms / 1e3),
        style="top" if own else "dot",
        intensity=task.flops / carried if carried else None,
        labelled=own,
    )


def _uses_tensor_cores(profile: tuple[Evidence, ...]) -> bool:
    return any(item.name.endswith(".tensor_instructions") for item in profile)


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
    return [dumbbell(entry.predicted_ms, entry.measured_ms, scale) for entry in story.ledger]


def predictions(story: Story) -> list[Prediction]:
    """Every prediction of the critic's once, scored where it was scored later."""
    known: dict[tuple[int, str], Prediction] = {}
    for analysis in story.analyses:
        for item in analysis.predictions:
            key = (item.made_in_round, item.words)
            if key not in known or item.held is not None:
                known[key] = item
    return list(known.values())


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
    counts: dict[str, int] = {}
    for standing in story.standings:
        word = VERDICT[standing.evaluation.verdict]
        counts[word] = counts.get(word, 0) + 1
    return sorted(counts.items(), key=lambda row: -row[1])


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
    told = [event.warnings for event in story.events if isinstance(event, RunStarted)]
    return told[-1] if told and told[-1] else story.record.task.warnings


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
