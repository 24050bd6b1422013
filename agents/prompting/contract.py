"""Standing words about what a candidate may be and what makes one fast, filled from our own tables.

Lists in them come from the code that enforces them, so that a prompt cannot promise what the
contract refuses.
"""

from collections.abc import Iterable
from pathlib import Path

from kernelwright.agents.prompting.templates import section
from kernelwright.tools.candidates.plan.vocabulary import HELPERS, METHODS
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.languages import language_named
from kernelwright.tools.types import LanguageName

HERE = Path(__file__).parent
HOPPER = "sm_90a"


def contract(language: LanguageName, architecture: str | None = None) -> str:
    """The whole candidate contract with examples, for whoever writes candidates."""
    spec = language_named(language).spec
    return section(
        HERE / "contract.md",
        language=language,
        architecture=architecture or "",
        headers=_listed(spec.includes),
        helpers=_listed(HELPERS),
        methods=_listed(METHODS),
        alignment=spec.alignment_bytes,
        error_bound=f"{Rules().error_bound:g}",
    )


def contract_summary(language: LanguageName) -> str:
    """What a candidate can and cannot do, in a paragraph, for whoever plans."""
    return section(
        HERE / "contract-short.md", language=language, error_bound=f"{Rules().error_bound:g}"
    )


def craft(language: LanguageName, architecture: str | None = None) -> str:
    """What tends to make kernels of this language fast, on that architecture where it is named."""
    file = HERE / f"craft-{language}.md"
    words = section(file) if file.is_file() else ""
    if architecture == HOPPER and language_named(language).spec.device == "cuda":
        return f"{words}\n\n{section(HERE / 'craft-hopper.md')}"
    return words


def _listed(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in sorted(words))
