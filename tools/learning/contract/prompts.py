"""What a model in training is asked: the short contract's words, and the full one's for runs.

A question is a system turn with the rules and a user turn with the module; it may show verified
answers of several speeds (a contrastive prompt), or an answer that failed (a repair). Tokens are
counted without a tokenizer, by a rule that is above what code tokenizers need, so that a data set
holds for any of them.
"""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from kernelwright.tools.learning.contract.launches import Interface, shown
from kernelwright.tools.types import LanguageName, Task, Value

Contract = Literal["short", "full"]
# What a prompt and an answer of the short contract may be.
PROMPT_TOKENS, ANSWER_TOKENS = 1000, 800
_TITLES = {"cuda": "CUDA kernels", "cpp": "C++ functions with OpenMP"}
_PIECE = re.compile(r"[A-Za-z]+|\d|[^\sA-Za-z\d]|\n+|[ \t]+")
_LETTERS_A_TOKEN = 4


class Turn(Value):
    """One message of a chat, named as chat templates want it."""

    role: Literal["system", "user", "assistant"]
    content: str


Question = tuple[Turn, ...]


class Shot(Value):
    """A verified answer that is shown, with its speed-up over the best baseline there was."""

    answer: str
    speedup: float


class Failure(Value):
    """An answer that was judged and failed, and what the judge said."""

    answer: str
    words: str


def question(
    task: Task,
    names: Interface | None,
    language: LanguageName,
    *,
    exemplars: Sequence[Shot] = (),
    analysis: str = "",
    failure: Failure | None = None,
) -> Question:
    """The question for a task.

    Args:
        task: What to compute.
        names: What a short answer may name; None asks for device code and a plan.
        language: What to answer in.
        exemplars: Answers to contrast, the slowest first.
        analysis: What a critic said of them.
        failure: What to correct.
    """
    kind: Contract = "full" if names is None else "short"
    text = (
        _environment()
        .get_template(f"{kind}.md.j2")
        .render(
            title=_TITLES.get(language, f"{language} kernels"),
            language=language,
            source=trimmed(task.source),
            names=_names(names),
            exemplars=exemplars,
            analysis=analysis.strip(),
            failure=failure,
        )
    )
    rules, _, asked = text.partition("\n---\n")
    return (
        Turn(role="system", content=rules.strip()),
        Turn(role="user", content=asked.strip()),
    )


def _names(names: Interface | None) -> Mapping[str, str]:
    return {} if names is None else shown(names)


def trimmed(source: str) -> str:
    """A module's file without what a reader of its forward does not need: empty lines, imports."""
    lines = [line.rstrip() for line in source.splitlines() if line.strip()]
    return "\n".join(line for line in lines if not re.match(r"(import|from) ", line))


def tokens(text: str) -> int:
    """An upper estimate of a text's tokens: words by four letters, digits and signs one by one."""
    total = 0
    for piece in _PIECE.findall(text):
        if piece == " ":
            continue  # it is part of the token that follows
        total += -(-len(piece) // _LETTERS_A_TOKEN) if piece[0].isalpha() else 1
    return total


def size_of(asked: Question) -> int:
    """The tokens of a question, with what a chat template puts around turns."""
    return sum(tokens(turn.content) + 5 for turn in asked)


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        autoescape=False,
        keep_trailing_newline=True,
    )
