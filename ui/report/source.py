"""Source and differences as coloured HTML; the colours are classes of the page's style sheet."""

import difflib

from markupsafe import Markup
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import DiffLexer, PythonLexer, get_lexer_by_name

from graphs.words import plain
from tools.languages import language_of
from tools.nouns import Candidate


def kernel(candidate: Candidate) -> Markup:
    """A candidate's device code."""
    return _coloured(candidate.kernel, get_lexer_by_name(language_of(candidate).spec.lexer))


def plan(candidate: Candidate) -> Markup:
    """A candidate's host side."""
    return _coloured(candidate.plan, PythonLexer())


def difference(before: Candidate, after: Candidate) -> Markup:
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
