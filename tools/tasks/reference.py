"""The reference itself, alive in a worker: what candidates are compared with and timed against.

Weights depend on the seed alone. The module stays in the mode its constructor left it in, and
no gradients are recorded. What is not covered: timing it, and deciding what is equal.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from typing import cast

import torch
from torch import nn

from kernelwright.tools.tasks.graph.convert import constants_of
from kernelwright.tools.tasks.graph.random_draws import Generators
from kernelwright.tools.tasks.loading.modules import build_module
from kernelwright.tools.tasks.loading.packing import result_apart, unchanged
from kernelwright.tools.tasks.loading.user_file import choose_entry, load_module
from kernelwright.tools.tasks.parts import Host
from kernelwright.tools.tasks.refusals import user_code
from kernelwright.tools.tasks.widened import Widened
from kernelwright.tools.types import RefusedError, Task, refuse


class Reference:
    """A task's module on one device.

    `module` takes the task's flat inputs as they are and can be given to torch.compile.
    `generators` are fixed before every forward; a copy in float64 shares them.
    """

    def __init__(
        self,
        module: nn.Module,
        task: Task,
        device: str,
        *,
        dtype: torch.dtype | None = None,
        generators: Generators | None = None,
    ) -> None:
        self.module = module
        self.device = device
        self.generators = generators or Generators(task.graph)
        self._task = task
        self._dtype = dtype
        self._constants = constants_of(task.graph, device)
        self._saved: dict[str, torch.Tensor] = {}

    @classmethod
    def build(cls, task: Task, device: str, *, seed: int = 0) -> Reference:
        """Execute the task's file and construct its module with weights drawn under `seed`.

        Raises:
            RefusedError: the file or the constructor fails here.
        """
        file = load_module(task.source, task.path, task.project)
        chosen = choose_entry(file, task.entry, makes=task.entry_kind == "built")
        entry = replace(chosen, evaluation=task.evaluation)
        try:
            with torch.device(device):
                module = build_module(file, entry, seed, task.call, task.state)
        except RefusedError:
            # Some constructors mix devices; the host can always make what is then moved.
            module = build_module(file, entry, seed, task.call, task.state)
        return cls(module.to(device).requires_grad_(False), task, device)

    def forward(self, args: Sequence[object]) -> tuple[torch.Tensor, ...]:
        """The module's outputs as a flat tuple, without gradients.

        Raises:
            RefusedError: the user's forward raises, or returns something other than tensors.
        """
        self.generators.fix()
        with user_code(self._what(), self._task.path), torch.no_grad(), self._precision():
            result = self.module(*(self._cast(arg) for arg in args))
        leaves, packing = result_apart(result)
        if self._task.returns is not None:
            unchanged(packing, self._task.returns)
        if not all(isinstance(leaf, torch.Tensor) for leaf in leaves):
            raise refuse("The forward returns something other than tensors.")
        return tuple(cast("list[torch.Tensor]", leaves))

    def _what(self) -> str:
        """Whom a person is told of when the forward raises: it may do so in float64 alone."""
        if self._dtype is None:
            return "The forward"
        return "In float64, which results are compared with, the forward"

    def is_defined_on(self, args: Sequence[object]) -> bool:
        """Whether the reference answers finitely on these arguments; buffers stay as they are.

        A distribution on which it does not says nothing about a candidate.
        """
        saved = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        try:
            outputs = self.forward(args)
        except RefusedError:
            return False
        finally:
            self.restore(saved)
        return all(bool(torch.isfinite(output).all()) for output in outputs)

    def weights(self) -> dict[str, torch.Tensor]:
        """The live parameters and buffers by state-dict name, and the graph's constants.

        A tensor that has several names stands under each of them, and a sparse one under none.
        """
        named = dict(self.module.named_parameters(remove_duplicate=False))
        buffers = dict(self.module.named_buffers(remove_duplicate=False))
        found = {**named, **buffers, **self._constants}
        return {name: item for name, item in found.items() if item.layout is torch.strided}

    @cached_property
    def host(self) -> Host | None:
        """The model as plans run it that compute parts of it; None where it is traced whole."""
        return Host(self.module, self._task.parts) if self._task.parts else None

    def snapshot(self) -> Mapping[str, torch.Tensor]:
        """Remember all buffers as they are now; `restore` goes back to the latest snapshot."""
        self._saved = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        return self._saved

    def restore(self, saved: Mapping[str, torch.Tensor] | None = None) -> None:
        """Write the values of a snapshot back into the same memory."""
        saved = self._saved if saved is None else saved
        for name, buffer in self.module.named_buffers():
            if name in saved:
                buffer.copy_(saved[name])

    def double(self) -> Reference:
        """A copy that computes in float64: weights, floating inputs and factories' default."""
        module = doubled(copy.deepcopy(self.module))
        kept = self.generators
        return Reference(module, self._task, self.device, dtype=torch.float64, generators=kept)

    def _cast(self, arg: object) -> object:
        if self._dtype is None or not isinstance(arg, torch.Tensor):
            return arg
        return arg.to(self._dtype) if arg.is_floating_point() else arg

    @contextmanager
    def _precision(self) -> Iterator[None]:
        """Tensors that the forward makes without naming a type must match the float64 ones."""
        usual = torch.get_default_dtype()
        torch.set_default_dtype(self._dtype or usual)
        in_double = self._dtype is not None
        drawn = in_double and self.generators.types
        try:
            # What is drawn is drawn in the types that were noted, whatever is named.
            with (
                self.generators.as_drawn() if drawn else nullcontext(),
                Widened() if in_double else nullcontext(),
            ):
                yield
        finally:
            torch.set_default_dtype(usual)


def doubled(module: nn.Module) -> nn.Module:
    """The module with weights of twice the width; `Module.double` leaves complex ones alone."""
    module = module.double()
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_complex():
            tensor.data = tensor.data.to(torch.complex128)
    return module
