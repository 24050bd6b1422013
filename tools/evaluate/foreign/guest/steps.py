"""What a guest can be told to do, one method an order.

An answer is copied into the judge's memory by `deliver`, which says when it is none.

The loop of a guest: the shared memory first, then an order in, a report out.
"""

import ctypes
import json
import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from kernelwright.tools.evaluate.foreign.guest.observed import (
    GuestClock,
    companions,
    guest_clock,
    observations,
    opened,
    settings,
)
from kernelwright.tools.evaluate.foreign.messages import (
    ORDER,
    Arrange,
    Constant,
    Done,
    Failed,
    Go,
    Make,
    MakeReference,
    Memory,
    Named,
    Order,
    Rehearse,
    Store,
    Weights,
)
from kernelwright.tools.evaluate.foreign.shared_memory import arguments_at, tensor_at
from kernelwright.tools.evaluate.process_setup import resolve_vector_math
from kernelwright.tools.evaluate.profiling.coverage import LibraryClock, in_every_thread
from kernelwright.tools.evaluate.verify.changing_order import one_order
from kernelwright.tools.evaluate.wire import frame, receive_blocking
from kernelwright.tools.tasks.loading.modules import adopt_plain_tensors
from kernelwright.tools.tasks.loading.user_file import load_module, seed_everything
from kernelwright.tools.tasks.refusals import why_not_built
from kernelwright.tools.types import RefusedError

How = Literal["not_a_tensor", "wrong_shape"]


class AnswerError(Exception):
    """What was returned is no answer; `how` is the kind of wrong."""

    def __init__(self, how: How, words: str) -> None:
        super().__init__(words)
        self.how: How = how


# As they were before foreign code came. A mode that it left on would be asked to do the copy.
_copy, _address, _move = torch._C.TensorBase.copy_, torch._C.TensorBase.data_ptr, ctypes.memmove
_no_functions, _no_dispatch = torch._C.DisableTorchFunction, torch._C._DisableTorchDispatch


def deliver(
    result: object, outputs: Sequence[Tensor], *, exact: bool = True, as_bytes: bool = False
) -> None:
    """Copy every tensor of a result; part of the timed span.

    Args:
        result: what a forward returned.
        outputs: where its tensors go.
        exact: whether they must be plain tensors.
        as_bytes: without PyTorch's copy, where an answer lies on the host as its place does.

    Raises:
        AnswerError: something is not exactly a tensor, or not of the shape and type asked for.
    """
    leaves = [result] if type(result) is Tensor else pytree.tree_leaves(result)
    if len(leaves) != len(outputs):
        raise AnswerError("wrong_shape", f"{len(leaves)} outputs, expected {len(outputs)}")
    for number, (leaf, output) in enumerate(zip(leaves, outputs, strict=True)):
        answer = _checked(number, leaf, output, exact=exact)
        if not exact:
            output.copy_(answer)
            continue
        with _no_functions(), _no_dispatch():
            if as_bytes and _lies_as_its_place(answer):
                _move(_address(output), _address(answer), output.nbytes)
            else:
                _copy(output, answer)


def _lies_as_its_place(answer: Tensor) -> bool:
    """Whether its bytes are its elements in their order, on the host."""
    turned = answer.is_neg() or answer.is_conj()
    return answer.device.type == "cpu" and answer.is_contiguous() and not turned


def _checked(number: int, leaf: object, output: Tensor, *, exact: bool) -> Tensor:
    plain = type(leaf) in (Tensor, nn.Parameter)
    if not plain and (exact or not isinstance(leaf, Tensor)):
        name = f"{type(leaf).__module__}.{type(leaf).__qualname__}"
        raise AnswerError("not_a_tensor", f"output {number} is a {name}, not a plain tensor")
    assert isinstance(leaf, Tensor)
    if leaf.layout != torch.strided or leaf.device.type != output.device.type:
        words = f"output {number} is {leaf.layout} on {leaf.device}"
        raise AnswerError("wrong_shape", f"{words}, expected a dense one on {output.device}")
    if leaf.shape != output.shape or leaf.dtype != output.dtype:
        raise AnswerError(
            "wrong_shape",
            f"output {number} is {_short(leaf)}, expected {_short(output)}",
        )
    return leaf


def _short(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


Forward = Callable[..., object]
_HIDDEN = 0.1  # of a forward's time, beyond twice what its own dispatcher tells of
Calls = Sequence[tuple[list[Tensor | Constant], list[Tensor]]]


class Steps:
    """The state of a guest: a module, and tensors in the judge's memory.

    Args:
        raw: the shared bytes.
        device: where the module lives.
    """

    def __init__(self, raw: Tensor, device: str) -> None:
        self._raw, self._device = raw, device
        self._module: nn.Module | None = None
        self._forward: Forward | None = None
        self._arguments: list[list[Tensor | Constant]] = []
        self._outputs: list[list[Tensor]] = []
        self._rehearsed: list[Tensor] = []
        self._usual = settings()
        self._clock: GuestClock = guest_clock(device)
        self._drain = self._clock.drain

    def take(self, order: Order) -> Done | Failed:
        """Carry out one order."""
        try:
            match order:
                case Make():
                    return self._make(order)
                case MakeReference():
                    return self._make_reference(order)
                case Weights():
                    return self._load(order.weights)
                case Store():
                    return self._store(order.weights)
                case Arrange():
                    return self._arrange(order)
                case Rehearse():
                    return self._rehearse()
                case Go():
                    return self._go(order)
                case Memory():
                    return Failed(how="memory", words="the memory was told already")
        except AnswerError as error:
            return Failed(how=error.how, words=str(error))
        except (torch.OutOfMemoryError, MemoryError) as error:
            return Failed(how="memory", words=_words(error))
        except Exception as error:
            return Failed(how="forward", words=_words(error))

    def _make(self, order: Make) -> Done | Failed:
        start = time.perf_counter()
        try:
            file = load_module(order.source, _written(order.source))
        except RefusedError as refused:
            return Failed(how="import", words=refused.refusal.sentence)
        entry = getattr(file, order.entry, None)
        if not callable(entry):
            return Failed(how="import", words=f"the file defines no {order.entry}")
        try:
            # KernelBench's rule: both constructors draw their weights under the same seed.
            seed_everything(order.seed)
            own = getattr(file, "get_init_inputs", list)
            given = json.loads(order.arguments) if order.arguments is not None else own()
            seed_everything(order.seed)
            module = _constructed(entry, given)
            module = module.eval() if order.evaluation else module
            self._module = adopt_plain_tensors(module).to(self._device).requires_grad_(False)
        except Exception as error:
            return Failed(how="construct", words=_words(error))
        self._forward = self._module
        return Done(names=tuple(self._named()), seconds=time.perf_counter() - start)

    def _make_reference(self, order: MakeReference) -> Done | Failed:
        from kernelwright.tools.evaluate.foreign.guest.observed import reference_forward

        start = time.perf_counter()
        module, self._forward = reference_forward(order, self._device, self._arguments)
        self._module = module
        return Done(names=tuple(self._named()), seconds=time.perf_counter() - start)

    def _named(self) -> dict[str, Tensor]:
        if self._module is None:
            return {}
        return {
            **dict(self._module.named_parameters(remove_duplicate=False)),
            **dict(self._module.named_buffers(remove_duplicate=False)),
        }

    def _load(self, weights: Sequence[Named]) -> Done:
        live = self._named()
        taken = []
        for item in weights:
            value = tensor_at(self._raw, item.place)
            mine = live.get(item.name)
            if mine is not None and mine.shape == value.shape:
                mine.copy_(value)
                taken.append(item.name)
        self._drain()
        return Done(names=tuple(taken))

    def _store(self, weights: Sequence[Named]) -> Done:
        live = self._named()
        for item in weights:
            target = tensor_at(self._raw, item.place)
            if item.name in live and live[item.name].shape == target.shape:
                target.copy_(live[item.name])
        self._drain()
        # One that the system started may only reach Python when a call is over.
        return Done(names=tuple(live), python_threads=companions())

    def _arrange(self, order: Arrange) -> Done:
        self._arguments = [arguments_at(self._raw, slots) for slots in order.arguments]
        self._outputs = [[tensor_at(self._raw, p) for p in places] for places in order.outputs]
        self._rehearsed = []
        return Done()

    def _rehearse(self) -> Done:
        if not self._rehearsed:
            self._rehearsed = [torch.empty_like(output) for output in self._outputs[0]]
        for answer in self._rehearsed:
            answer.zero_()
        self._drain()
        return Done()

    def _go(self, order: Go) -> Done:
        calls = [(self._arguments[c.arguments], self._outputs[c.outputs]) for c in order.calls]
        forward = self._forward
        if order.way == "null":
            forward = lambda *_: self._rehearsed  # noqa: E731
        if forward is None:
            raise RuntimeError("there is no module to call")
        if order.way == "audit":
            return self._audit(forward, calls)
        if order.way == "profile":
            return self._profile(forward, calls, order)
        with one_order() if order.one_order else nullcontext():
            own_ms = self._clock.time_ms(lambda: _all(forward, calls, order))
        names, changed = observations(self._usual)
        return Done(own_ms=own_ms, python_threads=names, settings=changed)

    def _audit(self, forward: Forward, calls: Calls) -> Done:
        watch = LibraryClock(self._drain)
        own_ms, elsewhere = 0.0, 0.0
        names: tuple[str, ...] = ()
        for arguments, outputs in calls:
            start = time.perf_counter_ns()
            with torch.no_grad(), watch:
                result = forward(*arguments)
                self._drain()
            own_ms += (time.perf_counter_ns() - start) / 1e6
            deliver(result, outputs)
            if self._device == "cpu":
                with torch.no_grad():
                    elsewhere, names = in_every_thread(partial(forward, *arguments))
        self._drain()
        if elsewhere * own_ms > 2 * watch.spent_ms + _HIDDEN * own_ms:
            watch.spent_ms = elsewhere * own_ms
            known = {name.lstrip("_") for name in watch.names}
            watch.names |= {name for name in names if name.lstrip("_") not in known}
        return Done(own_ms=own_ms, library_ms=watch.spent_ms, operators=tuple(sorted(watch.names)))

    def _profile(self, forward: Forward, calls: Calls, order: Go) -> Done:
        from kernelwright.tools.evaluate.foreign.guest.observed import profiled

        spent_ms, kernels = profiled(lambda: _all(forward, calls, order), self._drain)
        return Done(work_ms=spent_ms, kernels=kernels)


def _all(forward: Forward, calls: Calls, order: Go) -> None:
    """Every call in turn, each answer copied to where the judge wants it."""
    with torch.no_grad():
        for arguments, outputs in calls:
            result = forward(*arguments)
            deliver(result, outputs, exact=order.exact, as_bytes=order.as_bytes)


def _written(source: str) -> str:
    """A file of its own for compilers that read sources again, in a folder with nothing else."""
    file = Path.cwd() / "candidate" / "candidate.py"
    file.parent.mkdir(exist_ok=True)
    file.write_text(source, encoding="utf-8")
    return str(file)


def _constructed(entry: Callable[..., object], given: object) -> nn.Module:
    arguments = given if isinstance(given, (list, tuple)) else [given]
    with torch.no_grad():
        made = entry(*arguments)
    if not isinstance(made, nn.Module):
        raise TypeError(f"{getattr(entry, '__name__', 'the entry')} is no nn.Module")
    return made


def _words(error: Exception) -> str:
    words = why_not_built(str(error)) or " ".join(str(error).split())[:600]
    return f"{type(error).__name__}: {words}"


def serve(connection: socket.socket) -> None:
    """Carry out orders until the judge closes the connection."""
    resolve_vector_math()
    process = os.getpid()
    _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
    memory = ORDER.validate_json(receive_blocking(connection))
    if not isinstance(memory, Memory) or not descriptors:
        raise ConnectionError("a guest is told of its memory first")
    steps = Steps(opened(memory, descriptors[0]), memory.device)
    while True:
        order = ORDER.validate_json(receive_blocking(connection))
        report = steps.take(order)
        if os.getpid() != process:
            os._exit(0)  # a fork that foreign code made has no say here
        connection.sendall(frame(report.model_dump_json().encode()))
