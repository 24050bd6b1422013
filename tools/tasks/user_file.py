"""Executes a user's file as a module of its own and finds what to optimise in it.

Only ever called inside a worker process. The file runs once per process under a unique module
name; its folder is importable while it runs. One seed sets every generator that it may draw from.
"""

from __future__ import annotations

import hashlib
import linecache
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Literal

import numpy
import torch
from torch import nn

from kernelwright.tools.tasks.refusals import RefusedError, message, refuse, user_code, why_unusable


def seed_everything(seed: int) -> None:
    """Seed Python's, numpy's and torch's generators (torch's on every device)."""
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)


_HELPERS = ("get_inputs", "get_init_inputs")
_LOADED: dict[tuple[str, str], ModuleType] = {}


@dataclass(frozen=True)
class Entry:
    """What is to be optimised: a module class, a ready module, or a function."""

    name: str
    target: type[nn.Module] | nn.Module | Callable[..., object]
    kind: Literal["kernelbench", "module", "function"]


def sha256(source: str) -> str:
    """Names a source text."""
    return hashlib.sha256(source.encode()).hexdigest()


def load_module(source: str, path: str) -> ModuleType:
    """The user's file, executed; RefusedError says why it could not be."""
    key = (path, sha256(source))
    if key not in _LOADED:
        _LOADED[key] = _execute(source, path, f"kernelwright_task_{key[1][:16]}")
    return _LOADED[key]


def _execute(source: str, path: str, name: str) -> ModuleType:
    unusable = why_unusable(source, Path(path).name)
    if unusable is not None:
        raise refuse(unusable.sentence)
    module = ModuleType(name)
    module.__file__ = path
    code = _compile(source, path)
    # inspect.getsource (and so torch.jit) must find the text even where the file is not.
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    sys.modules[name] = module
    seed_everything(0)
    try:
        with user_code("Importing the file", path), _importable(Path(path).parent):
            exec(code, module.__dict__)
    except RefusedError:
        sys.modules.pop(name, None)
        raise
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
def _importable(folder: Path) -> Iterator[None]:
    """The folder first on sys.path, as for a script; last afterwards, for late imports.

    It must not stay first: a sibling called `select.py` would shadow the standard library's for
    everything the worker imports later.
    """
    place = str(folder)
    sys.path.insert(0, place)
    try:
        yield
    finally:
        if place in sys.path:
            sys.path.remove(place)
        if place not in sys.path:
            sys.path.append(place)


def choose_entry(module: ModuleType, wanted: str | None) -> Entry:
    """The entry by name; without one `Model`, else the only module class, else a refusal."""
    if wanted is not None:
        return _named(module, wanted)
    if _is_module_class(getattr(module, "Model", None)):
        return _named(module, "Model")
    classes = _own(module, _is_module_class)
    if len(classes) == 1:
        return _named(module, classes[0])
    if classes:
        listed = ", ".join(classes)
        raise refuse(f"The file has several modules and none is called Model: {listed}; name one.")
    raise _no_module(module)


def _no_module(module: ModuleType) -> Exception:
    functions = [f for f in _own(module, _is_function) if f not in _HELPERS]
    also = f"; to optimise a function, name it: {', '.join(functions)}" if functions else ""
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
    there = [*_own(module, _is_module_class), *_own(module, _is_function)]
    listed = ", ".join(n for n in there if n not in _HELPERS)
    raise refuse(f"The file has no {name}" + (f"; it has {listed}." if listed else "."))


def _own(module: ModuleType, test: Callable[[object], bool]) -> list[str]:
    """Names bound to things that the file itself defines, in its order."""
    return [
        name
        for name, value in vars(module).items()
        if test(value) and getattr(value, "__module__", None) == module.__name__
    ]


def _is_module_class(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, nn.Module)


def _is_function(value: object) -> bool:
    return isinstance(value, FunctionType) and not value.__name__.startswith("_")
