"""Fills the report's page from a story: what is drawn, what stands in which table.

Sources are in colour; what is not markup of ours is escaped.
"""

import difflib
from functools import cache
from pathlib import Path

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import DiffLexer, PythonLexer, get_lexer_by_name

from kernelwright.graphs.run_view import events as words
from kernelwright.graphs.run_view.charts import around, roofline, trajectory
from kernelwright.graphs.run_view.events import plain
from kernelwright.graphs.run_view.failures import failure_lines
from kernelwright.graphs.run_view.figures import LABEL_OF, interval_words, legend, settings_words
from kernelwright.graphs.run_view.story import Story
from kernelwright.tools.archive import Standing, elites
from kernelwright.tools.evaluate.findings import Row, timed, verified
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.languages import language_of
from kernelwright.tools.types import (
    Candidate,
    Conditions,
    Evidence,
    OutputError,
    Rank,
    StrategyVersion,
    Verdict,
)
from kernelwright.tools.whole_files import write_whole
from kernelwright.ui.report import charts
from kernelwright.ui.report.charts import Scale
from kernelwright.ui.terminal import cards
from kernelwright.ui.terminal import output as model_calls
from kernelwright.ui.terminal.output import Spending, by_role, changes, spending


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
    return [(verdict.words, number) for verdict, number in story.view.by_verdict.most_common()]


def timed_words(standing: Standing) -> str:
    """A candidate's time, and how closely that was looked at."""
    ms = standing.evaluation.median_ms
    if ms is None or standing.evaluation.verdict is not Verdict.CORRECT:
        return words.milliseconds(ms)
    return f"{words.milliseconds(ms)} ({LABEL_OF[standing.effort]})"


def remarks(story: Story) -> tuple[str, ...]:
    """What was warned of that no badge stands for."""
    told = {badge.words for badge in story.record.task.badges}
    return tuple(warning for warning in warnings(story) if warning not in told)


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


HERE = Path(__file__).parent


def write(story: Story, path: Path) -> Path:
    """Write the page to a file, its folder made if need be; returns the path."""
    write_whole(path, render(story))
    return path


def render(story: Story) -> str:
    """The page as text."""
    before = ancestor(story)
    best = story.best.candidate if story.best else None
    return _template().render(
        story=story,
        task=story.record.task,
        hardware=story.record.hardware,
        summary=story.summary,
        best=story.best,
        headline=story.view.headline if story.summary else "not finished yet",
        figure=story.view.best_figure,
        named=story.view.with_names,
        timed_words=timed_words,
        legend=legend(LABEL_OF[item.effort] for item in story.leaders),
        trajectory=trajectory_chart(story),
        roofline=roofline_chart(story),
        rungs=rungs,
        unmeasured=unmeasured,
        ledger=list(zip(story.ledger, dumbbells(story), strict=True)),
        predictions=list(story.view.predictions),
        kernel=coloured_kernel(best) if best else "",
        plan=coloured_plan(best) if best else "",
        before=before,
        difference=coloured_difference(story, before, best) if before and best else "",
        errors=worst_errors(story.best) if story.best else [],
        conditions=conditions(story),
        verdicts=verdict_rows(story),
        failed=[story.view.with_names(line) for line in failure_lines(story.view)],
        badges=story.record.task.badges,
        remarks=remarks(story),
        findings=_findings(story),
        rules=rule_rows(story),
        rules_kept=story.rules is not None,
        switched_off=switched_off(story),
        spending=spending_rows(story),
        strategies=strategies(story),
        style=_style(),
    )


def _findings(story: Story) -> tuple[Row, ...]:
    """The judge's on the best, without those that the page gives a heading of their own."""
    if story.best is None:
        return ()
    evaluation = story.best.evaluation
    found = (*verified(evaluation.verification), *timed(evaluation))
    return (*found, ("isolation", evaluation.verification.isolation.words))


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    environment.filters |= {
        "ms": words.milliseconds,
        "ratio": words.ratio,
        "percent": words.percent,
        "seconds": words.seconds,
        "shape": words.shape,
        "plain": words.plain,
        "count": words.count,
    }
    environment.globals["answered_by"] = model_calls.answered_by
    environment.globals["amount"] = words.amount
    environment.globals["settings_words"] = settings_words
    environment.globals["interval_words"] = interval_words
    environment.globals["input_words"] = cards.input_words
    return environment.from_string((HERE / "report.html.j2").read_text(encoding="utf-8"))


@cache
def _style() -> Markup:
    """The page's own rules, and the code's colours for light and for dark."""
    own = (HERE / "report.css").read_text(encoding="utf-8")
    light = HtmlFormatter(style="friendly").get_style_defs(".code")
    dark = HtmlFormatter(style="github-dark").get_style_defs(".code")
    return Markup(f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n{own}")


def coloured_kernel(candidate: Candidate) -> Markup:
    """A candidate's device code."""
    return _coloured(candidate.kernel, get_lexer_by_name(language_of(candidate).spec.lexer))


def coloured_plan(candidate: Candidate) -> Markup:
    """A candidate's host side."""
    return _coloured(candidate.plan, PythonLexer())


def coloured_difference(story: Story, before: Candidate, after: Candidate) -> Markup:
    """What changed from one candidate to another: settings, kernel and plan; empty if nothing."""
    names = (story.view.name_of(before.id), story.view.name_of(after.id))
    lines = difflib.unified_diff(_text(before), _text(after), *names, lineterm="", n=3)
    text = "\n".join(lines)
    return _coloured(text, DiffLexer()) if text else Markup("")


def _text(candidate: Candidate) -> list[str]:
    settings = [f"// {item.name} = {item.value}" for item in candidate.settings]
    return settings + candidate.kernel.splitlines() + [""] + candidate.plan.splitlines()


def _coloured(text: str, lexer: Lexer) -> Markup:
    # Pygments escapes the text itself.
    return Markup(highlight(plain(text), lexer, HtmlFormatter(nowrap=False, cssclass="code")))
