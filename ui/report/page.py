"""Fills the page, with sources in colour; what is not markup of ours is escaped."""

import difflib
from functools import cache
from pathlib import Path

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import DiffLexer, PythonLexer, get_lexer_by_name

from kernelwright.graphs.run_view import wording as words
from kernelwright.graphs.run_view.story import Story
from kernelwright.graphs.run_view.wording import plain
from kernelwright.tools.evaluate.findings import Row, timed, verified
from kernelwright.tools.languages import language_of
from kernelwright.tools.types import Candidate
from kernelwright.ui.report import facts
from kernelwright.ui.terminal import cards, model_calls

HERE = Path(__file__).parent


def write(story: Story, path: Path) -> Path:
    """Write the page to a file, its folder made if need be; returns the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(story), encoding="utf-8")
    return path


def render(story: Story) -> str:
    """The page as text."""
    before = facts.ancestor(story)
    best = story.best.candidate if story.best else None
    return _template().render(
        story=story,
        task=story.record.task,
        hardware=story.record.hardware,
        summary=story.summary,
        best=story.best,
        headline=str(cards.headline(story.summary)) if story.summary else "not finished yet",
        trajectory=facts.trajectory_chart(story),
        roofline=facts.roofline_chart(story),
        rungs=facts.rungs,
        unmeasured=facts.unmeasured,
        ledger=list(zip(story.ledger, facts.dumbbells(story), strict=True)),
        predictions=list(story.view.predictions),
        kernel=coloured_kernel(best) if best else "",
        plan=coloured_plan(best) if best else "",
        before=before,
        difference=coloured_difference(before, best) if before and best else "",
        errors=facts.worst_errors(story.best) if story.best else [],
        conditions=facts.conditions(story),
        verdicts=facts.verdict_rows(story),
        badges=story.record.task.badges,
        remarks=facts.remarks(story),
        findings=_findings(story),
        rules=facts.rule_rows(story),
        rules_kept=story.rules is not None,
        switched_off=facts.switched_off(story),
        spending=facts.spending_rows(story),
        strategies=facts.strategies(story),
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
    environment.globals["input_words"] = cards.input_words
    environment.globals["verdict_words"] = words.VERDICT
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


def coloured_difference(before: Candidate, after: Candidate) -> Markup:
    """What changed from one candidate to another: settings, kernel and plan; empty if nothing."""
    lines = difflib.unified_diff(_text(before), _text(after), before.id, after.id, lineterm="", n=3)
    text = "\n".join(lines)
    return _coloured(text, DiffLexer()) if text else Markup("")


def _text(candidate: Candidate) -> list[str]:
    settings = [f"// {item.name} = {item.value}" for item in candidate.settings]
    return settings + candidate.kernel.splitlines() + [""] + candidate.plan.splitlines()


def _coloured(text: str, lexer: Lexer) -> Markup:
    # Pygments escapes the text itself.
    return Markup(highlight(plain(text), lexer, HtmlFormatter(nowrap=False, cssclass="code")))
