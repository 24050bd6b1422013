"""Standing words about what a candidate may be and what makes one fast, filled from our own tables.

Lists in them come from the code that enforces them, so that a prompt cannot promise what the
contract refuses.
"""

from collections.abc import Iterable
from pathlib import Path

from agents.prompting.templates import section
from tools.candidates.plan.vocabulary import HELPERS, METHODS
from tools.compile.includes import ALLOWED
from tools.evaluate.rules import Rules
from tools.nouns import Language

HERE = Path(__file__).parent
HOPPER = "sm_90a"
# What torch's allocators align to, on a GPU and on the host.
_ALIGNMENT_BYTES = {Language.CUDA: 256, Language.CPP: 64}


def contract(language: Language, architecture: str | None = None) -> str:
    """The whole candidate contract with examples, for whoever writes candidates."""
    return section(
        HERE / "contract.md",
        language=language.value,
        architecture=architecture or "",
        headers=_listed(ALLOWED[language]),
        helpers=_listed(HELPERS),
        methods=_listed(METHODS),
        alignment=_ALIGNMENT_BYTES[language],
        error_bound=f"{Rules().error_bound:g}",
    )


def contract_summary(language: Language) -> str:
    """What a candidate can and cannot do, in a paragraph, for whoever plans."""
    return section(
        HERE / "contract-short.md", language=language.value, error_bound=f"{Rules().error_bound:g}"
    )


def craft(language: Language, architecture: str | None = None) -> str:
    """What tends to make kernels of this language fast, on that architecture where it is named."""
    words = section(HERE / f"craft-{language.value}.md")
    if language is Language.CUDA and architecture == HOPPER:
        return f"{words}\n\n{section(HERE / 'craft-hopper.md')}"
    return words


def _listed(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in sorted(words))
