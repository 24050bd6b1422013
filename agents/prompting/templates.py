"""Loads prompts from the files beside their roles and fills them in, standing sections included.

A file is Markdown with jinja2's placeholders; what it includes lies in its own folder. Lines
`<!-- system -->`, `<!-- person -->` and `<!-- model -->` begin a message each; what stands before
the first of them belongs to no message and must be blank. A file without such lines is a section,
for other files to take in. What a value holds is never read as a template or as a message line, so
a user's source cannot speak for us.

Standing sections say what a candidate may be and what makes one fast. Lists in them come from the
code that enforces them, so that a prompt cannot promise what the contract refuses. Not here: what
is put in for one search (`agents.prompting.cards`) and how answers are read.
"""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateError, meta

from kernelwright.profiles.load import DeviceKind
from kernelwright.tools.candidates.plan.vocabulary import HELPERS, METHODS
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.languages import language_named
from kernelwright.tools.types import LanguageName, Message

_MARK = re.compile(r"^<!-- (system|person|model) -->[ \t]*\n", re.MULTILINE)


class PromptError(ValueError):
    """A prompt file that does not fit its role; found when it is loaded, before any question."""


class PromptTemplate:
    """The words of one file, checked against the fields that a role will fill in.

    Args:
        file: The Markdown file.
        fields: Every placeholder that the file may and must have, sections it includes included.

    Raises:
        PromptError: When the file is missing or malformed, a placeholder has no field, or a field
            no placeholder; always naming the file and the word.
    """

    def __init__(self, file: Path, *fields: str) -> None:
        self._file = file
        self._fields = frozenset(fields)
        parts = _parts(file)
        found = frozenset[str]().union(*(_placeholders(text, file) for _, text in parts))
        if unknown := sorted(found - self._fields):
            raise PromptError(f"{_shown(file)}: nobody fills in the placeholder {unknown[0]!r}")
        if unused := sorted(self._fields - found):
            raise PromptError(f"{_shown(file)}: there is no placeholder for {unused[0]!r}")
        read = _environment(file.parent).from_string
        self._parts = [(author, read(text)) for author, text in parts]

    def messages(self, **values: object) -> tuple[Message, ...]:
        """The file's messages with these values.

        Raises:
            PromptError: When a field has no value or a value no field.
        """
        self._check(values)
        filled = ((author, part.render(values)) for author, part in self._parts)
        return tuple(
            Message.model_validate({"author": author or "person", "text": _tidy(text)})
            for author, text in filled
        )

    def text(self, **values: object) -> str:
        """The whole file with these values, for a section that goes into another prompt."""
        return "\n\n".join(message.text for message in self.messages(**values))

    def _check(self, values: dict[str, object]) -> None:
        if missing := sorted(self._fields - set(values)):
            raise PromptError(f"{_shown(self._file)}: no value for {missing[0]!r}")
        if more := sorted(set(values) - self._fields):
            raise PromptError(f"{_shown(self._file)}: no placeholder for {more[0]!r}")


def section(file: Path, **values: object) -> str:
    """A file without message lines, filled in at once; for standing words such as the contract."""
    return template(file, *sorted(values)).text(**values)


@cache
def template(file: Path, *fields: str) -> PromptTemplate:
    """A file of the package's own, read and checked once; questions are asked with it often."""
    return PromptTemplate(file, *fields)


@cache
def _environment(folder: Path) -> Environment:
    return Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        # The words are read by a model and by people in a terminal; nothing here is HTML.
        autoescape=False,
    )


def _parts(file: Path) -> list[tuple[str, str]]:
    """(author, template) in the file's order; the author is "" in a section."""
    source = _read(file)
    head, *rest = _MARK.split(source)
    if not rest:
        return [("", source)]
    if head.strip():
        raise PromptError(f"{_shown(file)}: words before the first message line")
    return list(zip(rest[::2], rest[1::2], strict=True))


def _placeholders(text: str, file: Path) -> frozenset[str]:
    """Every name that a template reads, the templates it includes included."""
    try:
        tree = _environment(file.parent).parse(text)
    except TemplateError as error:
        raise PromptError(f"{_shown(file)}: {error}") from None
    found = frozenset(meta.find_undeclared_variables(tree))
    for other in meta.find_referenced_templates(tree):
        if other is None:
            raise PromptError(f"{_shown(file)}: an include must name its file")
        included = file.with_name(other)
        found |= _placeholders(_read(included), included)
    return found


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        known = ", ".join(sorted(path.name for path in file.parent.glob("*.md")))
        raise PromptError(f"there is no prompt {_shown(file)}; beside it are {known}") from None


def _shown(file: Path) -> str:
    return "/".join(file.parts[-2:])


def _tidy(text: str) -> str:
    """No empty paragraphs where a part had nothing to say; code between fences stays as it is."""
    kept: list[str] = []
    fence = ""
    for line in text.strip().split("\n"):
        ticks = re.match(r" {0,3}(`{3,})", line) if "```" in line else None
        if ticks and not fence:
            fence = ticks[1]
        elif ticks and line.strip() == ticks[1] and len(ticks[1]) >= len(fence):
            fence = ""
        if fence or line.strip() or (kept and kept[-1].strip()):
            kept.append(line)
    return "\n".join(kept)


HERE = Path(__file__).parent
HOPPER = "sm_90a"
# From this compute capability on tensor cores and asynchronous copies are as the header has them.
_WITH_MMA = 80


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


# How a line of advice begins that is for one kind of device.
_FOR_ONE: dict[DeviceKind, str] = {"cpu": "- On a CPU ", "cuda": "- On a GPU "}


def for_device(advice: str, device: DeviceKind) -> str:
    """Advice without the lines that are for another kind of device."""
    others = tuple(mark for kind, mark in _FOR_ONE.items() if kind != device)
    return "\n".join(line for line in advice.splitlines() if not line.startswith(others))


def craft(language: LanguageName, architecture: str | None = None) -> str:
    """What tends to make kernels of this language fast, on that architecture where it is named."""
    file = HERE / f"craft-{language}.md"
    parts = [section(file)] if file.is_file() else []
    if architecture is not None and language_named(language).spec.device == "cuda":
        parts += [section(HERE / "craft-mma.md")] if _number(architecture) >= _WITH_MMA else []
        parts += [section(HERE / "craft-hopper.md")] if architecture == HOPPER else []
    return "\n\n".join(parts)


def _number(architecture: str) -> int:
    """The compute capability of "sm_90a" as 90."""
    found = re.search(r"\d+", architecture)
    return int(found[0]) if found else 0


def _listed(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in sorted(words))
