"""Which operators of a forward reach neither a result nor a buffer.

Watches one forward on fake tensors and walks back from what it returned. Memory decides: an
operator counts where something live shares storage with what it wrote, so that views and in-place
writes are on the safe side. What torch would never run (Python that is not reached) is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


@dataclass(frozen=True)
class _Call:
    """One operator that ran: the storages that it read, wrote anew, or wrote in place."""

    name: str
    read: frozenset[int]
    made: frozenset[int]
    written: frozenset[int]

    @property
    def computes(self) -> bool:
        """Whether it is more than a view."""
        return bool((self.made - self.read) | self.written)


class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no annotation
    """Notes every operator while it is active; enter it after the fake mode."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._calls: list[_Call] = []
        # A storage that is freed would give its address to another one.
        self._kept: list[torch.UntypedStorage] = []

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Run the operator and note it."""
        named = dict(kwargs or {})
        result = func(*args, **named)
        given = self._storages([*args, *named.values()])
        written = [
            value
            for argument, value in zip(func._schema.arguments, args, strict=False)
            if argument.alias_info is not None and argument.alias_info.is_write
        ]
        name = func._schema.name.removeprefix("aten::")
        self._calls.append(_Call(name, given, self._storages(result), self._storages(written)))
        return result

    def dead(self, results: object, state: Iterable[torch.Tensor]) -> tuple[str, ...]:
        """Names of the operators that neither `results` nor `state` depend on, in order."""
        live = set(self._storages(results)) | set(self._storages(list(state)))
        dead: list[str] = []
        for call in reversed(self._calls):
            acts = not call.made  # an assertion: what it looks at matters
            if acts or live & (call.made | call.written):
                live |= call.read
            elif call.computes and not call.name.startswith("empty"):  # room, not work
                dead.append(call.name)
        return tuple(reversed(dead))

    @property
    def names(self) -> tuple[str, ...]:
        """The operators that ran, in order."""
        return tuple(call.name for call in self._calls)

    def _storages(self, values: object) -> frozenset[int]:
        tensors = [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, torch.Tensor)]
        storages = [tensor.untyped_storage() for tensor in tensors]
        self._kept += storages
        return frozenset(storage._cdata for storage in storages)


@dataclass(frozen=True)
class Ran:
    """Operators of one forward as PyTorch has them, and those that no result depends on."""

    names: tuple[str, ...] = ()
    dead: tuple[str, ...] = ()


def watched(forward: Callable[[], object], state: Iterable[torch.Tensor]) -> tuple[object, Ran]:
    """The results of a forward, and what ran in it."""
    with Watch() as watch:
        results = forward()
    return results, Ran(watch.names, watch.dead(results, state))
