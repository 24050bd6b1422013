"""What a module computes by beside its tensors, and whether it still is what it was.

Kernels hold the constants of a module as it was traced: a scale, an epsilon, a flag. `described`
writes them down for every part, with the part's kind, how many hooks it has, and which parameters
are one tensor. A `Watch` says whether a module still is like that. It looks once, and again when
it is told of a change, so that a call asks for one word.

It is told by containers of its own, which stand where each part's were. Before nn.Module sets an
attribute it asks them whether they hold the name, and hooks are written into them; so the part
keeps its class. An export holds a copy of this file: it uses nothing of Kernelwright's.

Not covered: what is written past nn.Module (`vars(part)["scale"] = 2.0`, `part._modules[...] = x`,
a parameter that is registered anew, `append` to a list of modules), what an attribute holds that
is no plain value (a configuration's fields, a list's items), attributes of classes, names of
devices and paths, and what is inside modules that torch wrote itself (`torch.fx`, TorchScript).
"""

import contextlib
import copy
import functools
import itertools
import weakref
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import fx, nn
from torch.nn.modules import module as torch_modules

# By path: kind, number of hooks, plain attributes as Python, parameters that have another name
# before, with the first of them.
Described = dict[str, tuple[str, int, dict[str, str], dict[str, str]]]

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
# Hooks of every module in the process.
GLOBAL_HOOKS = torch_modules._global_forward_hooks
GLOBAL_PRE_HOOKS = torch_modules._global_forward_pre_hooks
# What nn.Module itself keeps; for `training` see `_mode`.
_NOT_THEIRS = {*vars(nn.Module()), "forward"}
_PLAIN = (bool, int, float, str, type(None), torch.dtype)
_LONGEST = 200  # a longer text is no setting
_ABSENT = object()
_ANY = "?"  # instead of an attribute's value: what it is does not count


def described(module: nn.Module) -> Described:
    """What there is to be compared of every part."""
    found, first_names = Described(), dict[int, str]()
    for path, part, other in _parts(module):
        if other is not None:
            found[path] = (f"= {other}", 0, {}, {})
        elif _is_closed(part):
            found[path] = (_kind(part), 0, {}, {})
        else:
            tensors = [(name, held) for name, held in part._parameters.items() if held is not None]
            names = {n: first_names.setdefault(id(t), _joined(path, n)) for n, t in tensors}
            shared = {n: first for n, first in names.items() if first != _joined(path, n)}
            attributes = _attributes(part) | (_mode(part) if path else {})
            found[path] = (_kind(part), _hooks(path, part), attributes, shared)
    return found


def agreed(one: Described, other: Described) -> Described:
    """The first; attributes that are others in the second may be anything: a forward sets them."""
    kept = {path: other[path][2] if path in other else None for path in one}
    return {
        path: (kind, hooks, _common(attributes, kept[path]), shared)
        for path, (kind, hooks, attributes, shared) in one.items()
    }


def _common(attributes: dict[str, str], others: dict[str, str] | None) -> dict[str, str]:
    if others is None:
        return attributes
    every = {**others, **attributes}
    return {
        name: text if attributes.get(name) == others.get(name) else _ANY
        for name, text in every.items()
    }


def difference(module: nn.Module, was: Described) -> str:
    """Where a module is another than it was, in a word or two; "" where it is not."""
    now = described(module)
    for path in dict.fromkeys((*was, *now)):
        if path not in was or path not in now:
            return f"part {path}"
        if path and now[path][0] != was[path][0]:
            return f"kind of part {path}"
        if now[path][1] != was[path][1]:
            return f"hooks of {path}"
        if now[path][3] != was[path][3]:
            return "tied weights"
    for path, part, other in _parts(module):
        if other is None and (name := _changed(part, was[path][2])):
            return f"attribute {_joined(path, name)}"
    return ""


def _parts(module: nn.Module) -> Iterator[tuple[str, nn.Module, str | None]]:
    """Every part with its path; where it has one already, that, and nothing below it again."""
    seen = dict[int, str]()
    waiting = [("", module)]
    while waiting:
        path, part = waiting.pop()
        first = seen.setdefault(id(part), path)
        yield path, part, None if first == path else first
        if first == path and not _is_closed(part):
            held = [(_joined(path, n), p) for n, p in part._modules.items() if p is not None]
            waiting += reversed(held)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _is_closed(part: nn.Module) -> bool:
    """Whether its attributes and what is below are torch's own, and another release's others."""
    return isinstance(part, (fx.GraphModule, torch.jit.ScriptModule))


def _kind(part: nn.Module) -> str:
    """Its class; the module's name only of torch's, as a user's file has several."""
    kind = type(part)
    if isinstance(part, fx.GraphModule):
        return "torch.GraphModule"
    return f"torch.{kind.__qualname__}" if _is_of_torch(kind) else kind.__qualname__


def _is_of_torch(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "torch"


def _hooks(path: str, part: nn.Module) -> int:
    """Hooks, and a forward of the instance's own; those of the module itself run as they would."""
    held = vars(part)
    return sum(len(held.get(name) or ()) for name in _HOOKS) + ("forward" in held) if path else 0


def _attributes(part: nn.Module) -> dict[str, str]:
    """The plain attributes that decide what it computes, and what hides its class's."""
    theirs = _of_classes(type(part).__mro__)
    return {
        name: _text(value)
        for name, value in vars(part).items()
        if name in theirs or (name not in _NOT_THEIRS and _counts(value))
    }


def _mode(part: nn.Module) -> dict[str, str]:
    """Its mode, where that counts: of the whole, whoever runs the kernels asks for it."""
    return {"training": repr(part.training)} if _reads_mode(type(part).__mro__) else {}


@functools.cache
def _reads_mode(kinds: tuple[type, ...]) -> bool:
    """Whether train() and eval() may differ: a method of its classes asks for `training`."""
    theirs = (vars(one) for one in kinds if one not in (nn.Module, object))
    codes = (getattr(value, "__code__", None) for held in theirs for value in held.values())
    return any(code and "training" in (*code.co_names, *code.co_consts) for code in codes)


def _text(value: object) -> str:
    return repr(value) if _is_plain(value) else f"a {type(value).__qualname__}"


def _counts(value: object) -> bool:
    """Whether it may decide what is computed, wherever that is."""
    return _is_plain(value) and not _is_of_place(value)


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple):
        return type(value) in (tuple, torch.Size) and all(map(_is_plain, value))
    return type(value) in _PLAIN and not (isinstance(value, str) and len(value) > _LONGEST)


def _is_of_place(value: object) -> bool:
    """Whether it is the name of a device or a path, which is another one elsewhere."""
    if not isinstance(value, str):
        return False
    return value.partition(":")[0] in ("cpu", "cuda", "mps", "xpu") or "/" in value or "\\" in value


def _changed(part: nn.Module, was: dict[str, str]) -> str:
    """An attribute that has another value now, or hides its class's; "" without any."""
    for name, text in was.items():
        value = getattr(part, name, _ABSENT)
        if text not in (_ANY, _text(value)) and value is not _ABSENT:
            return name
    for name in _of_classes(type(part).__mro__) & vars(part).keys() - was.keys():
        if _text(vars(part)[name]) != _text(getattr(type(part), name)):
            return name
    return ""


@functools.cache
def _of_classes(kinds: tuple[type, ...]) -> set[str]:
    """Plain attributes that a user's classes have for all their instances."""
    theirs = (vars(one) for one in kinds if one is not object and not _is_of_torch(one))
    return {
        name
        for held in theirs
        for name, value in held.items()
        if name not in _NOT_THEIRS and name[:2] != "__" and _counts(value)
    }


class _Told:
    """A container that tells of it when it is asked for certain names."""

    def __init__(self, held: Any = ()) -> None:
        super().__init__(held)  # type: ignore[call-arg]
        self.asked = set[str]()
        self.watches = weakref.WeakSet[Watch]()

    def __contains__(self, name: object) -> bool:
        if name in self.asked:
            self.tell()
        return bool(super().__contains__(name))  # type: ignore[misc]

    def tell(self) -> None:
        """Have every watch look again."""
        for watch in self.watches:
            watch.tell()


class _ToldDict(_Told, dict[str, Any]):
    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return dict, (), None, None, iter(self.items())


class _ToldSet(_Told, set[str]):
    """Asked for all names but buffers' when a module or a parameter is set."""

    buffers: dict[str, Any]

    def __contains__(self, name: object) -> bool:
        if name not in self.buffers.keys():  # noqa: SIM118 - the dictionary itself would tell
            self.tell()
        return super().__contains__(name)

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return set, ([*self],)


class _ToldHooks(_Told, OrderedDict[int, Any]):
    def __setitem__(self, key: int, value: Any) -> None:
        super().__setitem__(key, value)
        self.tell()

    def __delitem__(self, key: int) -> None:
        super().__delitem__(key)
        self.tell()

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return OrderedDict, (), None, None, iter(self.items())


class Watch:
    """Whether a module is what it was, by the last look at it.

    Args:
        module: whose parts tell of changes from now on.
        was: what it is compared with; by default what it is now.

    Attributes:
        why: where it differs; "" where it does not, None where nobody has looked since a change.
        was: what it is compared with.
        number: names it, for `why_now`.
        changes: how often it was told of one.
    """

    def __init__(self, module: nn.Module, was: Described | None = None) -> None:
        self.was = described(module) if was is None else was
        self.why: str | None = None
        self.number, self.changes = next(_NUMBERS), 0
        _WATCHED[self.number] = module
        self.look(module)

    def tell(self) -> None:
        """Something was set, to the same value or another."""
        self.why = None
        self.changes += 1

    def look(self, module: nn.Module, *, again: bool = False) -> str:
        """Where the module differs, looked at where that is not known, or shall be known again."""
        if self.why is not None and not again:
            return self.why
        before = self.changes
        _listen(module, self)
        why = difference(module, self.was)
        if before == self.changes:
            self.why = why
        return why

    @contextlib.contextmanager
    def during_reference(self, module: nn.Module) -> Iterator[None]:
        """While the module's own forward runs inside: hooks that it puts into its parts are its.

        They were there when it was traced and judged, as its forward put them there first then too:
        transformers' models do, at their first call.
        """
        why = self.look(module)
        before = self.changes
        try:
            yield
        finally:
            if not why and self.changes != before:
                hooks = {path: held[1] for path, held in described(module).items()}
                self.was = {
                    path: (kind, max(count, hooks.get(path, 0)), attributes, shared)
                    for path, (kind, count, attributes, shared) in self.was.items()
                }


_NUMBERS = itertools.count()
_WATCHED: "weakref.WeakValueDictionary[int, nn.Module]" = weakref.WeakValueDictionary()


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def why_now(number: int, changes: int) -> str:
    """Where the module of that watch differs after so many changes, for torch.compile."""
    module = _WATCHED[number]
    return difference(module, module._watch.was)  # type: ignore[union-attr, arg-type]


def _listen(module: nn.Module, watch: Watch) -> None:
    """Put containers that tell into every part; what holds hooks already keeps its container."""
    for path, part, other in _parts(module):
        if other is not None or _is_closed(part):
            continue
        _, _, attributes, _ = watch.was.get(path, ("", 0, {}, {}))
        asked = {*attributes, *_of_classes(type(part).__mro__), "forward"}
        asked -= {name for name, text in attributes.items() if text == _ANY}
        _told(part, _asked_in(part), _ToldDict, watch, asked)
        _told(part, "_non_persistent_buffers_set", _ToldSet, watch)
        vars(part)["_non_persistent_buffers_set"].buffers = vars(part)["_buffers"]
        for name in _HOOKS if path else ():
            if isinstance(held := vars(part).get(name), _Told) or held == OrderedDict():
                _told(part, name, _ToldHooks, watch)


def _asked_in(part: nn.Module) -> str:
    """Which of a part's dictionaries is asked for names: an empty one, which nobody reads."""
    held = vars(part)
    if isinstance(held["_modules"], _Told):
        return "_modules"
    return "_modules" if held["_buffers"] and not held["_modules"] else "_buffers"


def _told(
    part: nn.Module, name: str, kind: type[_Told], watch: Watch, asked: Iterable[str] = ()
) -> None:
    held = vars(part)
    if not isinstance(held[name], _Told):
        held[name] = kind(held[name])  # of the same content; nobody else keeps the former
    held[name].asked.update(asked)
    held[name].watches.add(watch)


def copied(module: nn.Module) -> nn.Module:
    """A copy, without the history of a weight that a hook made of others under autograd."""
    places = [kept for part in module.modules() for kept in (vars(part), part._buffers)]
    made = [
        (kept, {n: t for n, t in kept.items() if isinstance(t, torch.Tensor) and not t.is_leaf})
        for kept in places
    ]
    for kept, tensors in made:
        kept.update({name: tensor.detach() for name, tensor in tensors.items()})
    try:
        return copy.deepcopy(module)
    finally:
        for kept, tensors in made:
            kept.update(tensors)
