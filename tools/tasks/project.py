"""Where a user's file stands among other files, and which of these its code needs.

A file of a package is imported under its real dotted name, with its project's folders on the path:
the folder above the chain of `__init__.py`, then `src/` and the folder with `pyproject.toml` or the
like, then the file's own folder. Taken is the one in which most of its imports are found. Of a file
outside of any project or package only what it imports is let in, and its folder where a source asks
where it lies (`__file__`); never a folder that somebody's home or everybody's files are in.

Not seen: names that are put together at run time, and files that only native code opens. Nothing
is executed here (see `tools.tasks.loading.user_file`), nothing kept (see
`tools.tasks.sources.carried`).
"""

from __future__ import annotations

import ast
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.machinery import PathFinder
from itertools import islice
from pathlib import Path

from kernelwright.tools.runtime import SOURCES
from kernelwright.tools.types.value import Value

_MARKS = ("pyproject.toml", "setup.py", "setup.cfg", ".git", ".hg")
_MOST_FILES = 200
_OURS = frozenset({"kernelwright", "torch"})
# What is kept out of sight in a project that is let in, by name.
_SECRET = frozenset(
    (
        *(".git", ".hg", ".ssh", ".aws", ".gnupg", ".netrc", ".pypirc", ".npmrc", ".env"),
        *(".git-credentials", "id_rsa", "id_ed25519", "id_ecdsa"),
    )
)
_SKIPPED = frozenset({"node_modules", "__pycache__", ".venv", "venv", ".tox", ".git", ".hg"})
_MOST_FOLDERS = 400


class Place(Value):
    """Where a file stands: its dotted name below the first of `roots`.

    `names` are the top-level names that its imports, and theirs, find in the roots; `visible` is
    what somebody who runs it must be able to read; `folder` holds all of it.
    """

    module: str
    file: Path
    roots: tuple[Path, ...]
    names: tuple[str, ...]
    visible: tuple[Path, ...]
    folder: Path


class _Wanted(Value):
    """What a source imports: top-level names, and how far up its relative imports reach."""

    names: frozenset[str] = frozenset()
    relative: tuple[str, ...] = ()
    looks: bool = False

    @property
    def level(self) -> int:
        return max((len(name) - len(name.lstrip(".")) for name in self.relative), default=0)


def locate(source: str, path: str, within: str = "") -> Place | None:
    """Where the file stands; None where it needs nothing around it.

    Args:
        source: Its text.
        path: Its path.
        within: The project's folder where a person named it; else it is found.
    """
    file, wanted = Path(path).absolute(), _wanted(source)
    if not (wanted.names or wanted.relative or wanted.looks):
        return None
    project = _given(within) or project_of(file)
    candidates = _candidates(file, project)
    root = _root(file, wanted, candidates)
    names, files, looks = _closure(file, wanted, [root, *candidates])
    found = {_root_of(name, [root, *candidates]) for name in names}
    roots = (root, *(other for other in candidates if other in found - {root}))
    if not (names or wanted.relative or (looks and not _too_wide(file.parent))):
        return None
    module = _dotted(file, root)
    return Place(
        module=module,
        file=file,
        roots=roots,
        names=tuple(sorted(names | {module.partition(".")[0]})),
        visible=_visible(file, wanted, roots, files, project, looks=looks),
        folder=Path(os.path.commonpath([*roots, *([project] if project else [])])),
    )


def missing(source: str, path: str) -> tuple[str, ...]:
    """What a source imports that is neither around the file nor installed, as it is written."""
    file, wanted = Path(path).absolute(), _wanted(source)
    candidates = _candidates(file, project_of(file))
    relative = [name for name in wanted.relative if not _there(file, name)]
    names = [name for name in sorted(wanted.names) if PathFinder.find_spec(name) is None]
    gone = [name for name in names if not any(_find(root, name) for root in candidates)]
    return (*relative, *gone)


def needed(source: str, path: str) -> tuple[str, ...]:
    """What a source imports from files around it, as it is written."""
    file, wanted = Path(path).absolute(), _wanted(source)
    candidates = _candidates(file, project_of(file))
    return (*wanted.relative, *(n for n in sorted(wanted.names) if _root_of(n, candidates)))


def beside(source: str, path: str, within: str = "") -> tuple[Path, ...]:
    """Files and folders around a user's file that it may need, sorted."""
    place = locate(source, path, within)
    return place.visible if place is not None else ()


def _candidates(file: Path, project: Path | None) -> list[Path]:
    """Folders that its imports may be looked up in, the best first."""
    folder = _above_package(file)
    found = [folder]
    if project is not None:
        found += [place for place in (project / "src", project) if place.is_dir()]
    return list(dict.fromkeys([*found, file.parent]))


def _given(within: str) -> Path | None:
    """The folder that a person named, unless whoever may read it may read too much."""
    folder = Path(within).absolute() if within else None
    return folder if folder is not None and not _too_wide(folder) else None


def _above_package(file: Path) -> Path:
    folder = file.parent
    while (folder / "__init__.py").is_file() and folder != folder.parent:
        folder = folder.parent
    return folder


def project_of(file: Path) -> Path | None:
    """The nearest folder above it that is a project's; never one that holds the home."""
    marked = (up for up in file.parents if any((up / mark).exists() for mark in _MARKS))
    found = next(marked, None)
    return None if found is None or _too_wide(found) else found


def _too_wide(folder: Path) -> bool:
    """Whether whoever may read it may read the home, or what everybody puts there."""
    folder = folder.resolve()
    shared = {Path("/"), Path(tempfile.gettempdir()).resolve(), Path("/tmp"), Path("/var/tmp")}
    return folder in shared or Path.home().resolve().is_relative_to(folder)


def _wanted(source: str) -> _Wanted:
    try:
        parsed = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _Wanted()  # whoever runs the file says what is wrong with it
    names: set[str] = set()
    relative: list[str] = []
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level:
            parts = [node.module] if node.module else [alias.name for alias in node.names]
            relative += ["." * node.level + part for part in parts]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.partition(".")[0])
    return _Wanted(
        names=frozenset(names - sys.stdlib_module_names - _OURS),
        relative=tuple(dict.fromkeys(relative)),
        looks="__file__" in source,
    )


def _root_of(name: str, roots: Sequence[Path]) -> Path | None:
    return next((root for root in roots if _find(root, name)), None)


def _held(root: Path, wanted: _Wanted) -> frozenset[str]:
    return frozenset(name for name in wanted.names if _find(root, name))


def _find(root: Path, name: str) -> Path | None:
    """The module or package of that name in a folder; a bare folder only where no other is."""
    spec = PathFinder.find_spec(name, [str(root)])
    if spec is None:
        return None
    if spec.origin is not None and spec.has_location:
        place = Path(spec.origin)
        return place.parent if place.name == "__init__.py" else place
    folder = root / name
    return folder if _has_sources(folder) and not _installed(name, root) else None


def _has_sources(folder: Path) -> bool:
    return any(any(folder.glob(pattern)) for pattern in ("*.py", "*/*.py", "*/*/*.py"))


def _installed(name: str, root: Path) -> bool:
    """Whether Python's own path has a real module of that name that is none of this folder's.

    A checkout of ours stands on that path with all its folders, of which none is anybody's package.
    """
    spec = PathFinder.find_spec(name)
    if spec is None or spec.origin is None or not spec.has_location:
        return False
    of_checkout = (SOURCES / "kernelwright" / "tools").is_symlink()
    others = [root, *([SOURCES] if of_checkout else [])]
    return not any(Path(spec.origin).is_relative_to(other) for other in others)


def _root(file: Path, wanted: _Wanted, candidates: Sequence[Path]) -> Path:
    """Above its package; without one, where most of what it imports is found.

    Its relative imports must stay inside.
    """
    usable = [root for root in candidates if file.is_relative_to(root)]
    if wanted.level:
        highest = file.parents[min(wanted.level, len(file.parents) - 1)]
        usable = [root for root in usable if highest.is_relative_to(root)] or [highest]
    if (above := _above_package(file)) != file.parent and above in usable:
        return above
    return max(usable, key=lambda root: (len(_held(root, wanted)), -usable.index(root)))


def _there(file: Path, name: str) -> bool:
    """Whether a relative import's module is there, or a file of a package that may define it."""
    level = len(name) - len(name.lstrip("."))
    folder = file.parents[min(level, len(file.parents)) - 1]
    for part in name.lstrip(".").split("."):
        if PathFinder.find_spec(part, [str(folder)]) is None:
            return (folder / "__init__.py").is_file() and "." not in name.lstrip(".")
        folder = folder / part
    return True


def _dotted(file: Path, root: Path) -> str:
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def _closure(
    file: Path, wanted: _Wanted, roots: Sequence[Path]
) -> tuple[set[str], set[Path], bool]:
    """Top-level names that it and its modules find in the roots, their files, and who looks."""
    names: set[str] = set()
    files: set[Path] = set()
    waiting = [wanted]
    if wanted.level:
        waiting += _sources(file.parents[wanted.level - 1], files)
    while waiting and len(files) < _MOST_FILES:
        for name in waiting.pop().names - names:
            if (root := _root_of(name, roots)) is not None:
                names.add(name)
                waiting += _sources(_find(root, name) or root / name, files)
    looks = wanted.looks or any(_reads(item).looks for item in files)
    return names, files, looks


def _sources(place: Path, files: set[Path]) -> list[_Wanted]:
    found = [place] if place.is_file() else list(islice(_python_files(place), _MOST_FILES))
    new = [item for item in found if item not in files]
    files.update(new)
    return [_reads(item) for item in new if item.suffix == ".py"]


def _python_files(folder: Path) -> Iterator[Path]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED)
        yield from (Path(place) / name for name in sorted(names) if name.endswith(".py"))


@cache
def _parsed(place: Path, changed_ns: int) -> _Wanted:
    try:
        return _wanted(place.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError):
        return _Wanted()


def _reads(place: Path) -> _Wanted:
    try:
        return _parsed(place, place.stat().st_mtime_ns)
    except OSError:
        return _Wanted()


def _visible(
    file: Path,
    wanted: _Wanted,
    roots: Sequence[Path],
    files: set[Path],
    project: Path | None,
    *,
    looks: bool,
) -> tuple[Path, ...]:
    """The project, where there is one; else what is imported, or the folder of who looks there."""
    if project is not None:
        return _outermost({project, *(r for r in roots if not r.is_relative_to(project))})
    package = _above_package(file)
    folders = [package / file.relative_to(package).parts[0]] if package != file.parent else []
    folders += [file.parents[wanted.level - 1]] if wanted.level else []
    folders += [file.parent] if looks else []
    return _outermost(files | {folder for folder in folders if not _too_wide(folder)})


def _outermost(places: set[Path]) -> tuple[Path, ...]:
    inner = {place for place in places for other in places if other in place.parents}
    return tuple(sorted(places - inner))


def secrets(folder: Path) -> tuple[Path, ...]:
    """Histories and credentials in a folder that is let in, as far as their names tell."""
    found: list[Path] = []
    waiting, seen = [folder], 0
    while waiting and seen < _MOST_FOLDERS:
        seen += 1
        with contextlib.suppress(OSError), os.scandir(waiting.pop(0)) as entries:
            for entry in entries:
                if entry.is_symlink():
                    continue
                if _is_secret(entry.name):
                    found.append(Path(entry.path))
                elif entry.is_dir(follow_symlinks=False) and entry.name not in _SKIPPED:
                    waiting.append(Path(entry.path))
    return tuple(sorted(found))


def _is_secret(name: str) -> bool:
    return name in _SECRET or name.startswith(".env.") or name.endswith((".pem", ".key"))
