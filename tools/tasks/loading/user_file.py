"""Executes a user's file as a module and finds what to optimise in it.

Only ever called inside a worker process. The file runs once per process: one that needs files
around it under its real name with its project's folders on the path (`tools.tasks.project`), any
other under a unique name. One seed sets every generator that it may draw from.
"""

from __future__ import annotations

import hashlib
import linecache
import os
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module, invalidate_caches
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Literal, cast

import numpy
import torch
from torch import nn

from kernelwright.tools.tasks.project import Place, locate
from kernelwright.tools.tasks.refusals import message, of_python, user_code, why_unusable
from kernelwright.tools.tasks.sources.carried import kept, lay_out
from kernelwright.tools.types import Project, RefusedError, refuse


def seed_everything(seed: int) -> None:
    """Seed Python's, numpy's and torch's generators (torch's on every device)."""
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:
        # For devices that are not in use yet the call above keeps three stack traces each time.
        torch.default_generator.manual_seed(seed)


_HELPERS = ("get_inputs", "get_init_inputs")
_LOADED: dict[tuple[str, str, str], tuple[ModuleType, Place | None]] = {}
_DREW: set[ModuleType] = set()


@dataclass(frozen=True)
class Entry:
    """What is to be optimised: a module class, a ready module, a function, or what one makes.

    With `evaluation` a module is put into evaluation mode once it is made.
    """

    name: str
    target: type[nn.Module] | nn.Module | Callable[..., object]
    kind: Literal["kernelbench", "module", "function", "built"]
    evaluation: bool = False


def sha256(source: str) -> str:
    """Names a source text."""
    return hashlib.sha256(source.encode()).hexdigest()


def load_module(
    source: str, path: str, project: Project | None = None, within: str = ""
) -> ModuleType:
    """The user's file, executed; RefusedError says why it could not be.

    Args:
        source: Its text.
        path: Where it stands, for messages and, without a project, for what it imports.
        project: What it was seen to need, which is laid out anew and taken from there.
        within: The folder of its project where a person named it.
    """
    key = (path, sha256(source), project.digest if project else "")
    if key not in _LOADED:
        unusable = why_unusable(source, Path(path).name)
        if unusable is not None:
            raise refuse(unusable.sentence)
        place = lay_out(project, source) if project else locate(source, path, within)
        code = _compile(source, path)
        _IMPORTS.enter(place)
        _LOADED[key] = (_execute(code, source, path, place), place)
    module, place = _LOADED[key]
    _IMPORTS.enter(place)
    return module


def draws_at_import(module: ModuleType) -> bool:
    """Whether importing a loaded file moved a generator on that `seed_everything` sets.

    Not seen: what is drawn from a generator of its own that takes its seed from the system.
    """
    return module in _DREW


@contextmanager
def imported_anew(source: str, path: str, seed: int) -> Iterator[ModuleType]:
    """A file that is loaded already, with what it imports of its project, under another seed.

    Inside, that import has the names of the first; behind it, the first is what it was.

    Raises:
        RefusedError: it can be imported once only.
    """
    first, place = _LOADED[path, sha256(source), ""]
    names = {first.__name__, *_IMPORTS.its_modules()}
    aside = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    try:
        yield _execute(_compile(source, path), source, path, place, seed)
    finally:
        for name in (first.__name__, *_IMPORTS.its_modules()):
            sys.modules.pop(name, None)
        sys.modules.update(aside)


def project_read(source: str, path: str) -> Project | None:
    """What a loaded file was seen to read of the files around it up to now."""
    _, place = _LOADED[path, sha256(source), ""]
    return None if place is None else kept(place, _IMPORTS.read(place))


def _execute(
    code: CodeType, source: str, path: str, place: Place | None, seed: int = 0
) -> ModuleType:
    name = f"kernelwright_task_{sha256(source)[:16]}"
    if place is not None and _IMPORTS.owns(place.module):
        name = place.module
    # inspect.getsource (and so torch.jit) must find the text even where the file is not.
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    seed_everything(seed)
    seeded = _generators()
    file = str(place.file) if place is not None else path
    try:
        with user_code("Importing the file", path), _importable(place, Path(path).parent):
            module = _imported(name, file, code)
    except RefusedError:
        sys.modules.pop(name, None)
        raise
    if _generators() != seeded:
        _DREW.add(module)
    return module


def _generators() -> tuple[object, ...]:
    """The states of what `seed_everything` seeds."""
    _, keys, place, *_ = cast("tuple[object, numpy.ndarray, int, object]", numpy.random.get_state())
    started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    states = [torch.get_rng_state(), *(torch.cuda.get_rng_state_all() if started else ())]
    own = (state.numpy().tobytes() for state in states)
    return (random.getstate(), keys.tobytes(), place, *own)


def _imported(name: str, file: str, code: CodeType) -> ModuleType:
    """The module under its name, below its parents, which may have imported it themselves."""
    parent, _, child = name.rpartition(".")
    if parent:
        above = import_module(parent)
        if (known := sys.modules.get(name)) is not None:
            return known
    is_package = Path(file).name == "__init__.py" and not name.startswith("kernelwright_task_")
    inside = [str(Path(file).parent)] if is_package else None
    loader = SourceFileLoader(name, file)  # whatever the file's name ends with
    spec = spec_from_file_location(name, file, loader=loader, submodule_search_locations=inside)
    assert spec is not None
    sys.modules[name] = module = module_from_spec(spec)
    exec(code, module.__dict__)
    if parent:
        setattr(above, child, module)
    return module


def _compile(source: str, path: str) -> CodeType:
    try:
        return compile(source, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        where = f" in line {error.lineno}" if error.lineno else ""
        raise refuse(f"{Path(path).name} has a syntax error{where}: {error.msg}.") from error
    except (ValueError, RecursionError, MemoryError) as error:
        said = message(error) or type(error).__name__
        raise refuse(f"{Path(path).name} cannot be parsed: {said}.") from error


@contextmanager
def _importable(place: Place | None, folder: Path) -> Iterator[None]:
    """The roots, or the folder, first on sys.path as for a script; last afterwards.

    They must not stay first: a sibling called `select.py` would shadow the standard library's for
    everything the worker imports later.
    """
    places = [str(root) for root in place.roots] if place is not None else [str(folder)]
    sys.path[:0] = places
    invalidate_caches()
    try:
        yield
    finally:
        for name in places:
            if name in sys.path:
                sys.path.remove(name)
        sys.path.extend(name for name in places if name not in sys.path)


class _Imports(MetaPathFinder):
    """Finds the names of one project at a time, before an installed package of the same name.

    Modules of a project that is left are put aside, as the next may use the same names; it finds
    them again when it is entered again.
    """

    def __init__(self) -> None:
        self._place: Place | None = None
        self._owned: frozenset[str] = frozenset()
        self._aside: dict[Path, dict[str, ModuleType]] = {}
        self._opened: set[str] = set()
        self._hears = False

    def enter(self, place: Place | None) -> None:
        """From now on imports are those of this project, or of a file that stands alone."""
        if place == self._place:
            return
        if self._place is not None:
            self._leave(self._place)
        self._place, self._owned = place, frozenset()
        if place is not None:
            self._owned = frozenset(
                name for name in place.names if name not in sys.modules and name != "__main__"
            )
            sys.modules.update(self._aside.pop(place.folder, {}))
            sys.path.extend(str(root) for root in place.roots if str(root) not in sys.path)
            self._listen()

    def owns(self, module: str) -> bool:
        """Whether the name is the project's, and neither Python's nor an installed package's."""
        top = module.partition(".")[0]
        return top in self._owned and top not in sys.stdlib_module_names and bool(top)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Python's own question; None leaves the name to those who come later."""
        if path is not None or self._place is None or fullname not in self._owned:
            return None
        return PathFinder.find_spec(fullname, [str(root) for root in self._place.roots], target)

    def read(self, place: Place) -> set[Path]:
        """Files of the project that were imported, or opened for reading."""
        modules = [sys.modules[name] for name in self.its_modules()]
        found = {str(file) for module in modules if (file := getattr(module, "__file__", None))}
        opened = {name for name in self._opened if not (name.endswith(".pyc") or of_python(name))}
        return {Path(name) for name in found | opened if Path(name).is_file()} - {place.file}

    def its_modules(self) -> list[str]:
        """Names of what was imported of the project."""
        return [name for name in sys.modules if name.partition(".")[0] in self._owned]

    def _leave(self, place: Place) -> None:
        self._aside[place.folder] = {name: sys.modules.pop(name) for name in self.its_modules()}
        roots = {str(root) for root in place.roots}
        sys.path[:] = [name for name in sys.path if name not in roots]

    def _listen(self) -> None:
        """Python tells of every file that is opened; that cannot be ended, only not heeded."""
        if not self._hears:
            self._hears = True
            sys.meta_path.insert(0, self)
            sys.addaudithook(self._heard)

    def _heard(self, event: str, arguments: tuple[object, ...]) -> None:
        if event != "open" or self._place is None:
            return
        name, _, flags = arguments
        writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
        if isinstance(name, str) and not writes:
            whole = os.path.abspath(name)
            if whole.startswith(f"{self._place.folder}{os.sep}"):
                self._opened.add(whole)


_IMPORTS = _Imports()


def choose_entry(module: ModuleType, wanted: str | None, *, makes: bool = False) -> Entry:
    """The entry by name; without one `Model`, else the only module class, else the only module.

    With `makes` it is a function that returns the module.
    """
    if makes:
        return _maker(module, wanted)
    if wanted is not None:
        return _named(module, wanted)
    if _is_module_class(getattr(module, "Model", None)):
        return _named(module, "Model")
    classes, ready = _own(module, _is_module_class), _ready(module)
    if len(classes) == 1 or len(ready) == 1 > len(classes):
        return _named(module, (classes or ready)[0])
    if classes or ready:
        listed = ", ".join((*classes, *ready))
        raise refuse(
            f"The file has several modules and none is called Model: {listed}; name one with "
            "--entry."
        )
    raise _no_module(module)


def _maker(module: ModuleType, wanted: str | None) -> Entry:
    if wanted is None:
        raise refuse("Which function builds the model is not said; name it as module:function.")
    entry = _named(module, wanted)
    if entry.kind != "function":
        raise refuse(f"{wanted} is no function that builds a model; give it as the entry instead.")
    return Entry(wanted, entry.target, "built")


def _no_module(module: ModuleType) -> Exception:
    functions = [f for f in _own(module, _is_function) if f not in _HELPERS]
    listed = ", ".join(functions)
    also = f"; to optimise a function, name it with --entry: {listed}" if functions else ""
    return refuse(f"The file defines no nn.Module{also}.")


def _named(module: ModuleType, name: str) -> Entry:
    target = getattr(module, name, None)
    if isinstance(target, type) and issubclass(target, nn.Module):
        is_benchmark = name == "Model" and hasattr(module, "get_inputs")
        return Entry(name, target, "kernelbench" if is_benchmark else "module")
    if isinstance(target, nn.Module):
        return Entry(name, target, "module")
    if callable(target) and not isinstance(target, type):
        return Entry(name, target, "function")
    if hasattr(module, name):
        raise refuse(f"{name} is neither an nn.Module nor a function.")
    there = [*_own(module, _is_module_class), *_ready(module), *_own(module, _is_function)]
    listed = ", ".join(n for n in there if n not in _HELPERS)
    raise refuse(f"The file has no {name}" + (f"; it has {listed}." if listed else "."))


def _own(module: ModuleType, test: Callable[[object], bool]) -> list[str]:
    """Names bound to things that the file itself defines, in its order."""
    return [
        name
        for name, value in vars(module).items()
        if test(value) and getattr(value, "__module__", None) == module.__name__
    ]


def _ready(module: ModuleType) -> list[str]:
    """Names bound to modules that are made already."""
    found = vars(module).items()
    return [n for n, value in found if isinstance(value, nn.Module) and not n.startswith("_")]


def _is_module_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, nn.Module)


def _is_function(value: object) -> bool:
    return isinstance(value, FunctionType) and not value.__name__.startswith("_")
