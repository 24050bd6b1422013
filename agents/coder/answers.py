"""Reads what a model wrote for the coder: fenced kernels, plans and edits, with their labels.

A kernel or an edit begins a draft, a plan completes it; several drafts may stand in one answer.
Whether a draft keeps the contract is for `checks`. What the model says around the blocks is kept
as the candidate's note, shortened.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from kernelwright.agents.coder.edits import EditError, apply, has_edits, read_edits
from kernelwright.agents.llm.json_text import Block, blocks, without_thinking
from kernelwright.agents.shared.facts import LABELS
from kernelwright.tools.languages import languages
from kernelwright.tools.types import LanguageName, Value

PLAN_WORDS = frozenset({"python", "py", "python3", "plan"})
_LABEL = re.compile(r"\b(memory|compute|parallel)\s*[=:]\s*", re.IGNORECASE)
_BASE = re.compile(r"^\W*base\s*[:=]\s*`?([\w.-]+)`?\W*$", re.IGNORECASE)
_PLAN = re.compile(r"^def (?:forward|prepare)\b", re.MULTILINE)
_FORWARD = re.compile(r"^def forward\b", re.MULTILINE)
_FENCED = re.compile(r"^[ \t]*(`{3,}|~{3,}).*?(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
# Labels stand in a header: far below, a comment that says `memory: ...` means something else.
_HEADER_LINES = 16
_LABEL_CHARACTERS = 48
_NOTE_CHARACTERS = 400


class Source(Value):
    """A kernel with its plan; the plan is "" where none is known."""

    kernel: str
    plan: str
    labels: tuple[str, ...] = ()


class Draft(Value):
    """One candidate as the model gave it, before the contract is checked.

    `base` is the candidate that edits were made to, "" for a rewrite. `problem` is why there is
    no source, one sentence.
    """

    kernel: str = ""
    plan: str = ""
    language: LanguageName | None = None
    labels: tuple[str, ...] = ()
    base: str = ""
    problem: str = ""


class ParsedAnswer(Value):
    """Everything found in one answer; `said` is what stands outside of the blocks."""

    drafts: tuple[Draft, ...]
    said: str = ""


class _Part(Value):
    """One block with the role that it plays."""

    role: str
    text: str
    language: LanguageName | None = None


def read_answer(text: str, base: str, find: Callable[[str], Source | None]) -> ParsedAnswer:
    """The drafts of an answer.

    Args:
        text: What the model wrote.
        base: The candidate that an edit without a `base:` line changes; "" when there is none.
        find: The source of a candidate by its id, None when it is unknown.
    """
    parts = [part for block in blocks(text) if (part := _part(block)) is not None]
    if any(part.role == "kernel" and _exports(part.text) for part in parts):
        # Snippets that explain are no kernels.
        parts = [part for part in parts if part.role != "kernel" or _exports(part.text)]
    drafts = [_draft(group, base, find) for group in _groups(parts)]
    plans = [part.text for part in parts if part.role == "plan"]
    if sum(map(_is_whole, plans)) == 1:
        drafts = [_with_plan(draft, _plan(plans)) for draft in drafts]
    return ParsedAnswer(drafts=tuple(drafts), said=_outside(text))


def read_labels(kernel: str) -> tuple[str, ...]:
    """The `memory=...`, `compute=...` and `parallel=...` of a kernel's header comments."""
    lines = kernel.splitlines()[:_HEADER_LINES]
    comments = [line.strip()[2:] for line in lines if line.strip().startswith("//")]
    found: dict[str, str] = {}
    for comment in comments:
        pieces = _LABEL.split(comment)
        for name, value in zip(pieces[1::2], pieces[2::2], strict=True):
            words = " ".join(value.strip(" \t;,|.*/`\"'").split()).lower()
            if words:
                found.setdefault(name.lower(), words[:_LABEL_CHARACTERS])
    return tuple(f"{name}={found[name]}" for name in LABELS if name in found)


@cache
def kernel_words() -> Mapping[str, LanguageName | None]:
    """The words that open a block with a kernel, and the language that each means."""
    known: dict[str, LanguageName | None] = {"kernel": None}
    for language in languages():
        for word in language.spec.fences:
            known.setdefault(word, language.spec.name)
    return known


def _marked(text: str) -> LanguageName | None:
    """The language that alone has something which stands in the text."""
    found = (item.spec for item in languages() if any(m in text for m in item.spec.marks))
    return next((spec.name for spec in found), None)


def _part(block: Block) -> _Part | None:
    word = block.language.lower()
    if has_edits(block.text):
        return _Part(role="edit", text=block.text)
    words = kernel_words()
    if word in words or (not word and _exports(block.text)):
        # What it is counts for more than what the fence calls it.
        language = _marked(block.text) or words.get(word)
        return _Part(role="kernel", text=_ended(block.text), language=language)
    if (word in PLAN_WORDS or not word) and _PLAN.search(block.text):
        return _Part(role="plan", text=_ended(block.text))
    return None


def _groups(parts: Sequence[_Part]) -> list[list[_Part]]:
    """Parts of one candidate each: a kernel or an edit, what continues it, and a plan."""
    groups: list[list[_Part]] = []
    early: list[_Part] = []
    for part in parts:
        if part.role == "plan":
            (groups[-1] if groups else early).append(part)
        elif part.role == "edit" and groups and _continues(part, groups[-1]):
            groups[-1].append(part)
        else:
            groups.append([*early, part])
            early = []
    return groups or ([early] if early else [])


def _continues(part: _Part, group: Sequence[_Part]) -> bool:
    """An edit that names no base goes on with the edit before it."""
    return not _named_base(part.text) and any(item.role == "edit" for item in group)


def _draft(group: Sequence[_Part], base: str, find: Callable[[str], Source | None]) -> Draft:
    plans = [part.text for part in group if part.role == "plan"]
    kernels = [part for part in group if part.role == "kernel"]
    sections = [part.text for part in group if part.role == "edit"]
    base = next(filter(None, map(_named_base, sections)), base)
    known = find(base) if base else None
    plan = _plan(plans) if plans else (known.plan if known else "")
    if kernels:
        kernel = kernels[0]
        labels = read_labels(kernel.text)
        return Draft(kernel=kernel.text, plan=plan, language=kernel.language, labels=labels)
    if known is None:
        words = f"there is no candidate {base!r} to edit" if base else "there is nothing to edit"
        return Draft(problem=words)
    try:
        edits = [edit for text in sections for edit in read_edits(text)]
        kernel_text, edited = apply(edits, known.kernel, known.plan)
    except EditError as error:
        return Draft(base=base, problem=str(error))
    text = _plan(plans) if plans else edited
    labels = _header_labels(sections) or read_labels(kernel_text) or known.labels
    return Draft(kernel=kernel_text, plan=text, labels=labels, base=base)


def _plan(plans: Sequence[str]) -> str:
    """The last plan; a `prepare` in a block of its own belongs before its `forward`."""
    last = next((n for n, text in reversed(list(enumerate(plans))) if _is_whole(text)), None)
    if last is None:
        return plans[-1]
    apart = [text for text in plans if not _is_whole(text)]
    return "\n\n".join((*apart[-1:], plans[last]))


def _is_whole(plan: str) -> bool:
    return _FORWARD.search(plan) is not None


def _with_plan(draft: Draft, plan: str) -> Draft:
    return draft if draft.plan or draft.problem else draft.model_copy(update={"plan": plan})


def _named_base(text: str) -> str:
    """The id on a `base:` line above the first section."""
    for line in text.splitlines()[:4]:
        if found := _BASE.match(line):
            return found.group(1)
    return ""


def _header_labels(sections: Sequence[str]) -> tuple[str, ...]:
    heads = [line for text in sections for line in text.split("<<<<<")[0].splitlines()]
    return read_labels("\n".join(f"// {line.strip(' /')}" for line in heads))


def _exports(text: str) -> bool:
    return 'extern "C"' in text


def _ended(text: str) -> str:
    return text.strip("\n") + "\n"


def _outside(text: str) -> str:
    """The first paragraph that is neither code nor a heading."""
    plain = _FENCED.sub("", without_thinking(text)[0])
    paragraphs = (" ".join(part.split()) for part in plain.split("\n\n"))
    words = next((part for part in paragraphs if part and not part.startswith("#")), "")
    return words if len(words) <= _NOTE_CHARACTERS else words[: _NOTE_CHARACTERS - 1] + "…"
