"""Follows the statements of a plan in their order, and refuses one that is wrong of itself.

The judge tells whether a candidate computes what it should. As long as the numbers are right it
does not tell whose memory a plan writes to and hands out, and what is not bound it tells late. So
whoever assembles a plan has it followed before it is text:

- What is read is bound before. What is allocated is written before anything reads it.
- A call writes to no weight, nothing that `prepare` made, and no input. What the forward changes it
  changes by `update`, in lines of the program's own, and `prepare` reads none of that.
- No result is a view of what `prepare` made. One of a weight or an input is so by the program's
  own lines, as a module may return its weight, and never by a kernel's.
- What a kernel stored is read before its name is bound anew: the whole of a buffer does not become
  one piece of it.
- `prepare` reads weights and what it has made, and nothing of a call.

Not covered: which part of a buffer a kernel writes, whether a kernel writes what it is given by
a tensor map, and plans that are put together from others' text (`compose`, `any_size`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Never

from kernelwright.tools.codegen.library.statements import (
    Declared,
    Launch,
    May,
    Statement,
    declared,
    statement,
)

_PREPARED = 'prepared["'
# Beside the memory of what a kernel's line has bound, not one of the program's own.
_KERNELS = "a kernel's"
_NOTHING = frozenset[str]()
_EMPTY = frozenset({"empty", "empty_like"})
_MOST_CHARACTERS = 160


class PlanError(ValueError):
    """A plan that cannot be assembled: whoever made the statement that it names has a bug."""


@dataclass(frozen=True, slots=True)
class Part:
    """The lines of one step of a call; `stores` are the buffers that its kernels store.

    `is_kernels` says that kernels are launched for the step; else its line is the program's own.
    """

    lines: tuple[str, ...]
    stores: tuple[str, ...] = ()
    is_kernels: bool = False


@dataclass(frozen=True, slots=True)
class Preparation:
    """Lines of `prepare`, and the names of what they make that it returns as `prepared`."""

    lines: tuple[str, ...]
    prepared: tuple[str, ...]


def check_plan(
    parameters: Iterable[str],
    weights: Iterable[tuple[str, str]],
    prepare: Sequence[Preparation],
    call: Sequence[Part],
    sources: Iterable[str],
) -> None:
    """Follow a plan's functions.

    Args:
        parameters: of the forward.
        weights: variables of both functions, and the state-dict names of what they hold.
        prepare: what is prepared.
        call: the steps of a call, of which the last returns.
        sources: device code of the kernels.

    Raises:
        PlanError: a statement breaks a rule.
    """
    known = [declared(source) for source in sources]
    held = {name: f'weights["{target}"]' for name, target in weights}
    preparing = _Followed("prepare", held, known)
    for one in prepare:
        for text in one.lines:
            preparing.follow(statement(text), is_kernels=True)
        preparing.keep(one.prepared)
    read = {held.get(name, name) for one in prepare for name in _read_by(one)}
    held |= {name: name for name in parameters}
    held |= {name: name for one in prepare for name in map(_prepared, one.prepared)}
    forward = _Followed("forward", held, known, frozenset(read))
    for part in call:
        statements = [statement(text) for text in part.lines]
        for each in statements:
            forward.follow(each, is_kernels=part.is_kernels)
        forward.store(part.stores, statements)


def _prepared(name: str) -> str:
    return f'{_PREPARED}{name}"]'


def _read_by(one: Preparation) -> set[str]:
    return {name for text in one.lines for name in statement(text).reads}


class _Followed:
    """The names of one function as its statements bind them, and whose memory each may be.

    Args:
        function: What it is called.
        given: Names that are bound before, and the memory of each, which is not to be written.
        kernels: What the kernels declare.
        read: Weights that `prepare` reads.
    """

    def __init__(
        self,
        function: str,
        given: Mapping[str, str],
        kernels: Sequence[Declared],
        read: frozenset[str] = frozenset(),
    ) -> None:
        self._function, self._read_by_prepare = function, read
        self._given = frozenset(given.values())
        self._may_write: dict[str, tuple[May, ...]] = {}
        self._memory: dict[str, frozenset[str]] = {}
        for one in kernels:
            self._may_write |= one.functions
            self._memory |= dict.fromkeys(one.tunables, _NOTHING)
        self._memory |= {memory: frozenset((memory,)) for memory in given.values()}
        self._memory |= {name: frozenset((memory,)) for name, memory in given.items()}
        self._unwritten: set[str] = set()
        self._unread: set[str] = set()
        self._allocated = 0

    def follow(self, one: Statement, *, is_kernels: bool) -> None:
        """The next statement."""
        self._check_bound(one.reads, one.text)
        if self._unread:
            self._unread -= one.reads
        if self._unwritten and one.takes:
            self._check_written(one.takes, one.text)
        if one.binds:  # in a block, what its launches are given
            self._bind(one, is_kernels=is_kernels)
        for launch in one.launches:
            self._launch(launch, one.text)
        if one.updates:
            self._check_updates(one, is_kernels=is_kernels)
        if one.returns:
            self._check_returned(one)

    def store(self, names: Sequence[str], statements: Sequence[Statement]) -> None:
        """What statements that were followed are there to store by kernels."""
        for name in names:
            at = next((one.text for one in statements if name in one.reads), None)
            if at is None:
                self._refuse(statements[-1].text, f"ends a step that does not store {name}")
            self._write(name, at)
        self._unread.update(names)

    def keep(self, names: tuple[str, ...]) -> None:
        """What is returned to be read in calls, which may be a weight as well."""
        text = f"return {', '.join(names)}"
        self._check_bound(frozenset(names), text)
        self._check_written(names, text)

    def _launch(self, launch: Launch, text: str) -> None:
        may_write = self._may_write.get(launch.function, (None,) * len(launch.arguments))
        for names, may in zip(launch.arguments, may_write, strict=False):
            if may:
                for name in names:
                    self._write(name, text)
            elif may is None:
                for name in names:
                    self._unwritten -= self._memory[name]
            elif self._unwritten:
                self._check_written(names, text)

    def _write(self, name: str, text: str) -> None:
        memory = self._memory[name]
        if not memory.isdisjoint(self._given):
            owner = min(memory & self._given)
            self._refuse(text, f"writes to {name}, which is {owner} or a view of it")
        self._unwritten -= memory

    def _bind(self, one: Statement, *, is_kernels: bool) -> None:
        if self._unread and not self._unread.isdisjoint(one.binds):
            name = min(self._unread.intersection(one.binds))
            self._refuse(one.text, f"binds {name} anew, and nothing has read what was stored there")
        if one.maker in _EMPTY:
            self._allocated += 1
            allocated = f"allocation {self._allocated}"
            self._unwritten.add(allocated)
            memory = frozenset((allocated,))
        else:
            memory = _NOTHING.union(*(self._memory[name] for name in one.shares))
            if is_kernels and not memory.isdisjoint(self._given):
                memory |= {_KERNELS}
        for name in one.binds:
            self._memory[name] = memory

    def _check_bound(self, names: frozenset[str], text: str) -> None:
        if not self._memory.keys() >= names:
            name = min(names - self._memory.keys())
            self._refuse(text, f"reads {name}, which is not bound before")

    def _check_written(self, names: Iterable[str], text: str) -> None:
        for name in names:
            if not self._unwritten.isdisjoint(self._memory[name]):
                self._refuse(text, f"reads {name}, to which nothing was written")

    def _check_updates(self, one: Statement, *, is_kernels: bool) -> None:
        for target in one.updates:
            weight = f'weights["{target}"]'
            if is_kernels:
                self._refuse(one.text, f"changes {weight}, which the program does not")
            if weight in self._read_by_prepare:
                self._refuse(one.text, f"changes {weight}, of which prepare made something")

    def _check_returned(self, one: Statement) -> None:
        for name in one.shares:
            memory = self._memory[name] & self._given
            ours = {item for item in memory if item.startswith(_PREPARED)}
            if ours or (memory and _KERNELS in self._memory[name]):
                owner = min(ours or memory)
                self._refuse(one.text, f"hands {name} out, which is {owner} or a view of it")

    def _refuse(self, text: str, why: str) -> Never:
        shown = text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."
        raise PlanError(f"the plan cannot be assembled: in {self._function}, `{shown}` {why}")
