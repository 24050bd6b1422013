"""Finds the text, the path and the entry of what a person points at.

| said | found |
|---|---|
| `model.py`, `model.py:Block` | the file |
| `work.ipynb` | the cells that the entry needs, as `work_notebook.py` beside it |
| `folder/`, `project.zip` | the file in it that is meant, with the folder as its project |
| `package.layers:Block` | the file of that module, looked up without importing anything |
| the same of an installed package | a text that imports it |

A path may end in any of these, so that every door takes what the others take.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path

from kernelwright.tools.tasks.refusals import of_python, read_source, read_text
from kernelwright.tools.tasks.sources.archive import unpacked
from kernelwright.tools.tasks.sources.folder import chosen
from kernelwright.tools.tasks.sources.notebook import sliced
from kernelwright.tools.types import Refusal, TracePolicy, Value

LARGEST_NOTEBOOK_BYTES = 64 << 20
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_ENTRY = re.compile(r"[A-Za-z_]\w*")
_FILES = (".py", ".ipynb", ".zip")
SAVED = (".pt", ".pth")


class Found(Value):
    """The module's text, where it is said to stand, and the policy with entry and project."""

    source: str
    path: Path
    policy: TracePolicy

    @property
    def saved(self) -> tuple[Path, ...]:
        """The file with saved inputs, where there is one."""
        return (Path(self.policy.inputs[0]),) if is_saved(self.policy.inputs) else ()


def is_name(path: Path) -> bool:
    """Whether this is no path but a name for an import: `package.layers:Block`."""
    module, _, entry = path.name.partition(":")
    ends_as_file = module.lower().endswith(_FILES)
    has_shape = bool(_DOTTED.fullmatch(module) and (_ENTRY.fullmatch(entry) or not entry))
    return has_shape and not path.exists() and not ends_as_file and (bool(entry) or "." in module)


def is_saved(inputs: Sequence[str]) -> bool:
    """Whether the person named a file of saved inputs, rather than inputs."""
    return len(inputs) == 1 and inputs[0].lower().endswith(SAVED)


def find(path: Path, policy: TracePolicy) -> Found | Refusal:
    """What a path stands for; see `_find`. Saved inputs are named by their whole path then."""
    if any(text.lower().endswith(SAVED) for text in policy.inputs):
        if not is_saved(policy.inputs):
            return Refusal(sentence="Saved inputs are one file that holds all arguments of a call.")
        saved = Path(policy.inputs[0]).absolute()
        if not saved.is_file():
            return Refusal(sentence=f"There is no file {policy.inputs[0]} with saved inputs.")
        policy = policy.model_copy(update={"inputs": (str(saved),)})
    return _find(path, policy)


def _find(path: Path, policy: TracePolicy) -> Found | Refusal:
    """What a path stands for, with the entry that the path or the policy names.

    Args:
        path: A path that need not exist, see the table above. Names for an import are looked up in
            the folder that it is in, in `src` there, and where Python looks.
        policy: The person's.
    """
    if is_name(path):
        return _imported(path, policy)
    if not path.exists() and ":" in path.name:
        stem, _, entry = path.name.rpartition(":")
        if (there := path.with_name(stem)).exists() and _ENTRY.fullmatch(entry):
            return _find(there, policy.model_copy(update={"entry": entry}))
    if path.is_dir():
        return _within(path, policy, f"{path.name or path}")
    if path.suffix.lower() == ".zip" and path.is_file():
        folder = unpacked(path)
        return folder if isinstance(folder, Refusal) else _within(folder, policy, path.name)
    if path.suffix.lower() == ".ipynb" and path.is_file():
        return _notebook(path, policy)
    source = read_source(path)
    if isinstance(source, Refusal):
        return source
    return _elsewhere(path, policy) or Found(source=source, path=path, policy=policy)


def _elsewhere(path: Path, policy: TracePolicy) -> Refusal | None:
    """A file is given, and the entry is said to be in a module: one of the two is too much."""
    if policy.entry is None or ":" not in policy.entry:
        return None
    return Refusal(
        sentence=f"The entry {policy.entry} names a module, and so does {path.name}; give the "
        "folder with the entry, or the file and a name in it."
    )


def _within(folder: Path, policy: TracePolicy, called: str) -> Found | Refusal:
    """The file of a folder that is meant."""
    module, _, entry = (policy.entry or "").rpartition(":")
    if not module:
        meant = chosen(folder, policy.entry, called)
        if isinstance(meant, Refusal):
            return meant
        file, name = meant
    else:
        place = _named_in(folder, module)
        if place is None:
            return Refusal(sentence=f"{called} has no module {module}.")
        file, name = place, entry or None
    update = {"entry": name, "project": str(folder)}
    return _find(file, policy.model_copy(update=update))


def _named_in(folder: Path, module: str) -> Path | None:
    """The file that `pkg/layers.py` or `pkg.layers` means in a folder, never one outside."""
    if module.lower().endswith(_FILES):
        file = (folder / module).resolve()
        return file if file.is_file() and file.is_relative_to(folder.resolve()) else None
    spec = _spec(module, [folder, folder / "src"]) if _DOTTED.fullmatch(module) else None
    return Path(spec.origin) if spec and spec.origin and spec.has_location else None


def _notebook(path: Path, policy: TracePolicy) -> Found | Refusal:
    content = read_text(path, LARGEST_NOTEBOOK_BYTES)
    if isinstance(content, Refusal):
        return content
    named = bool(policy.inputs)
    source = sliced(content, path.name, policy.entry, inputs_named=named)
    if isinstance(source, Refusal):
        return source
    return Found(source=source, path=path.with_name(f"{path.stem}_notebook.py"), policy=policy)


def _imported(path: Path, policy: TracePolicy) -> Found | Refusal:
    """The module of a dotted name: its file, or where that is installed a text that imports it."""
    module, _, entry = path.name.partition(":")
    spec = _spec(module, [path.parent, path.parent / "src"])
    if spec is None or not (spec.origin or spec.submodule_search_locations):
        return Refusal(
            sentence=f"There is no file {path.name}, and no module {module} that Python finds from "
            f"{path.parent}."
        )
    name = entry or policy.entry
    if spec.origin is None or not spec.has_location or of_python(spec.origin):
        return _of_installed(path, module, name, policy)
    if not spec.origin.endswith(".py"):
        return Refusal(sentence=f"{module} is compiled, not Python text, so it cannot be read.")
    return _find(Path(spec.origin), policy.model_copy(update={"entry": name}))


def _of_installed(
    path: Path, module: str, entry: str | None, policy: TracePolicy
) -> Found | Refusal:
    """Installed code is imported where it is; it is neither copied nor kept with the run."""
    if entry is None:
        return Refusal(sentence=f"{module} is installed; name the class as {module}:NAME.")
    source = f'"""{entry} of {module}, as it is installed."""\n\nfrom {module} import {entry}\n'
    update = {"entry": entry}
    return Found(
        source=source,
        path=path.with_name(f"{entry}.py"),
        policy=policy.model_copy(update=update),
    )


def _spec(module: str, roots: list[Path]) -> ModuleSpec | None:
    """Where a dotted name would be imported from; only names at the top are asked of Python."""
    top, *parts = module.split(".")
    spec = PathFinder.find_spec(top, [str(root) for root in roots if root.is_dir()])
    if spec is None or (spec.origin is None and not _leads_on(spec, parts)):
        spec = _of_python(top) or spec
    for part in parts:
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(part, list(spec.submodule_search_locations))
    return spec


def _leads_on(spec: ModuleSpec, parts: list[str]) -> bool:
    """Whether a folder without `__init__.py` has what comes next in the name."""
    places = list(spec.submodule_search_locations or ())
    return not parts or PathFinder.find_spec(parts[0], places) is not None


def _of_python(name: str) -> ModuleSpec | None:
    try:
        return find_spec(name) if name not in sys.modules else sys.modules[name].__spec__
    except (ImportError, ValueError, AttributeError):
        return None
