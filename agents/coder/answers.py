"""Reads what a model wrote for the coder, and applies its SEARCH/REPLACE edits.

An answer holds fenced kernels, plans and edits with their labels. A kernel or an edit begins a
draft, a plan completes it; several drafts may stand in one answer. What the model says around the
blocks is kept as the candidate's note, shortened.

An edit's old text is looked up with bounded patience: as it stands, then without regard to
trailing blanks, indentation and empty lines, and last by likeness of its lines. It must be found
in one place only; guessing between two would change code that nobody asked to change.

Not here: whether a draft keeps the contract (`agents.coder.repairs`).
"""

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import SequenceMatcher
from functools import cache

from kernelwright.agents.llm.json_text import Block, blocks, without_thinking
from kernelwright.agents.shared.facts import LABELS
from kernelwright.tools.languages import languages
from kernelwright.tools.types import LanguageName, Value

_SEARCH = re.compile(r"^\s*<{5,9} ?(?:SEARCH|ORIGINAL|OLD)?\s*$", re.IGNORECASE)
_MIDDLE = re.compile(r"^\s*={5,9}\s*$")
_REPLACE = re.compile(r"^\s*>{5,9} ?(?:REPLACE|UPDATED|NEW)?\s*$", re.IGNORECASE)
# Lines that differ must still be this alike, and the second best place clearly worse.
_ALIKE = 0.9
_MARGIN = 0.05
# At least this share of a section's lines must be there as written before likeness is looked at.
_ANCHORED = 0.5
# Of longer sections only the most promising places are compared letter by letter.
_COMPARED = 8


class EditError(ValueError):
    """An edit that cannot be applied; the message is a sentence for the model that wrote it."""


class Edit(Value):
    """One section: text that is there, and what takes its place."""

    search: str
    replace: str


class _Place(Value):
    """Where a section was found: lines `first` up to but not including `end`."""

    first: int
    end: int
    likeness: float = 1.0


def has_edits(text: str) -> bool:
    """Whether a text holds the beginning of a section."""
    return any(_SEARCH.match(line) for line in text.splitlines())


def read_edits(text: str) -> tuple[Edit, ...]:
    """The sections of a text, in order.

    Raises:
        EditError: When one is not closed or its parts are out of order.
    """
    found: list[Edit] = []
    search: list[str] = []
    replace: list[str] = []
    part: list[str] | None = None
    for line in text.splitlines():
        if _SEARCH.match(line) and part is None:
            search, replace = [], []
            part = search
        elif _MIDDLE.match(line) and part is search:
            part = replace
        elif _REPLACE.match(line) and part is replace:
            found.append(Edit(search="\n".join(search), replace="\n".join(replace)))
            part = None
        elif part is not None:
            part.append(line)
    if part is not None:
        missing = "=======" if part is search else ">>>>>>> REPLACE"
        raise EditError(f"edit {len(found) + 1} has no line `{missing}`")
    return tuple(found)


def apply(edits: Sequence[Edit], kernel: str, plan: str) -> tuple[str, str]:
    """Kernel and plan with the edits made, one after the other.

    Raises:
        EditError: When the old text of one is nowhere, or in several places.
    """
    for number, edit in enumerate(edits, start=1):
        kernel, plan = _one(edit, number, kernel, plan)
    return kernel, plan


def _one(edit: Edit, number: int, kernel: str, plan: str) -> tuple[str, str]:
    if not edit.search.strip():
        raise EditError(f"edit {number} searches for nothing; give the lines to replace")
    for find in (_exact, _inline, _loose, _alike):
        in_kernel, in_plan = find(kernel, edit.search), find(plan, edit.search)
        if len(in_kernel) + len(in_plan) > 1:
            words = f"the text that edit {number} searches for stands in several places"
            raise EditError(f"{words}; add lines around it: {_shown(edit.search)}")
        if in_kernel:
            return _put(kernel, edit, in_kernel[0]), plan
        if in_plan:
            return kernel, _put(plan, edit, in_plan[0])
    words = f"the text that edit {number} searches for is nowhere: {_shown(edit.search)}"
    torn = _torn(kernel, edit.search) or _torn(plan, edit.search)
    raise EditError(words + (torn or _nearest(kernel, plan, edit.search)))


def _exact(text: str, search: str) -> list[_Place]:
    """Whole lines as they stand, but for blanks at their ends."""
    return _windows(text, search, str.rstrip, keep_empty=True)


def _inline(text: str, search: str) -> list[_Place]:
    """Part of a line; the place is that line."""
    if "\n" in search:
        return []
    found = []
    for number, line in enumerate(text.split("\n")):
        found += [_Place(first=number, end=number + 1)] * line.count(search.strip())
    return found


def _loose(text: str, search: str) -> list[_Place]:
    """Whole lines whatever their blanks, empty lines left out."""
    return _windows(text, search, lambda line: " ".join(line.split()), keep_empty=False)


def _alike(text: str, search: str) -> list[_Place]:
    """The one run of lines that is much like the search; none where two are."""
    lines, wanted = _numbered(text), [line for _, line in _numbered(search)]
    count = len(wanted)
    starts: Sequence[int] = range(len(lines) - count + 1)
    if count > 2:
        same = {n: sum(lines[n + i][1] == wanted[i] for i in range(count)) for n in starts}
        anchored = (n for n in starts if same[n] >= _ANCHORED * count)
        starts = sorted(anchored, key=lambda n: -same[n])[:_COMPARED]
    places = []
    for start in starts:
        window = lines[start : start + count]
        likeness = sum(map(_likeness, (line for _, line in window), wanted)) / count
        places.append(_Place(first=window[0][0], end=window[-1][0] + 1, likeness=likeness))
    places.sort(key=lambda place: -place.likeness)
    if not places or places[0].likeness < _ALIKE:
        return []
    clear = len(places) == 1 or places[1].likeness < places[0].likeness - _MARGIN
    return places[:1] if clear else places[:2]


def _windows(
    text: str, search: str, plain: Callable[[str], str], *, keep_empty: bool
) -> list[_Place]:
    lines = [
        (number, plain(line))
        for number, line in enumerate(text.split("\n"))
        if keep_empty or line.strip()
    ]
    wanted = [plain(line) for line in search.split("\n") if keep_empty or line.strip()]
    count = len(wanted)
    return [
        _Place(first=lines[start][0], end=lines[start + count - 1][0] + 1)
        for start in range(len(lines) - count + 1)
        if all(lines[start + i][1] == wanted[i] for i in range(count))
    ]


def _put(text: str, edit: Edit, place: _Place) -> str:
    lines = text.split("\n")
    old = lines[place.first : place.end]
    part = edit.search.strip()
    if "\n" not in edit.search and part in old[0] and part != old[0].strip():
        new = old[0].replace(part, edit.replace.strip(), 1).split("\n")
    else:
        new = _indented(edit, old)
    return "\n".join([*lines[: place.first], *new, *lines[place.end :]])


def _indented(edit: Edit, old: Sequence[str]) -> list[str]:
    """The new lines, moved by as much as the old text stood elsewhere than the edit had it."""
    if not edit.replace:
        return []
    wanted = _indent(edit.search.split("\n"))
    shift = _indent(old) - wanted
    new = edit.replace.split("\n")
    if shift >= 0:
        return [" " * shift + line if line.strip() else line for line in new]
    return [line[min(-shift, len(line) - len(line.lstrip())) :] for line in new]


def _indent(lines: Sequence[str]) -> int:
    first = next((line for line in lines if line.strip()), "")
    return len(first) - len(first.lstrip())


def _numbered(text: str) -> list[tuple[int, str]]:
    """Lines that are not empty, with their numbers from 0, single blanks between words."""
    split = ((number, " ".join(line.split())) for number, line in enumerate(text.split("\n")))
    return [(number, line) for number, line in split if line]


def _likeness(line: str, other: str) -> float:
    return 1.0 if line == other else SequenceMatcher(None, line, other, autojunk=False).ratio()


def _nearest(kernel: str, plan: str, search: str) -> str:
    """The line of the source that is most like the search's first, so that it can be corrected."""
    wanted = _numbered(search)[0][1]
    lines = [line for _, line in (*_numbered(kernel), *_numbered(plan))]
    best = max(lines, key=lambda line: _likeness(line, wanted), default="")
    return f" (the nearest line is `{best[:160]}`)" if _likeness(best, wanted) > 0.6 else ""


def _torn(text: str, search: str) -> str:
    """What to give instead, where several lines were found that begin or end within a line."""
    lines = [" ".join(line.split()) for line in text.split("\n")]
    wanted = [" ".join(line.split()) for line in search.strip().split("\n")]
    if len(wanted) < 2:
        return ""
    for start in range(len(lines) - len(wanted) + 1):
        first, *inner = lines[start : start + len(wanted)]
        last = inner.pop()
        if first.endswith(wanted[0]) and last.startswith(wanted[-1]) and inner == wanted[1:-1]:
            torn = first if first != wanted[0] else last
            return f" (it begins or ends within a line; give all of the line `{torn[:160]}`)"
    return ""


def _shown(text: str) -> str:
    first = next(line.strip() for line in text.split("\n") if line.strip())
    return f"`{first[:160]}`"


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
