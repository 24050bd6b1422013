"""The judge's end of the conversation with guests: links, seats, and what stays between candidates.

`Link` is one guest. Questions block: nothing else happens in the judge while a guest is at work. A
guest that does not come back in time, or ends, raises `GuestLostError` with the program's account
of how. Trouble with the reference's guest has a name of its own, as no candidate is to blame for
it. `Seat` is a link with guarded memory that guest and judge both can reach.

`ForeignSession` is what a judge keeps between two candidates: its `Broker`, who asks the program
about guests, and the reference's guest. A candidate's guest is always a fresh one. The reference's
runs our own code and the user's module; it serves as long as task and rules are the same, and goes
when anything odd happened near it.
"""

import socket
import time
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from kernelwright.tools.evaluate.foreign.messages import (
    FINDING,
    REPORT,
    Books,
    Done,
    Failed,
    Go,
    GuestAnswer,
    GuestQuestion,
    Named,
    Order,
)
from kernelwright.tools.evaluate.foreign.messages import Memory as MemoryOrder
from kernelwright.tools.evaluate.foreign.shared_memory import Arena, HostMemory, Memory, place_of
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.sandbox.ending import Ended
from kernelwright.tools.evaluate.verify.memory import GuardedMemory, available_bytes, io_bytes
from kernelwright.tools.evaluate.verify.reference_runtime import ReferenceRuntime
from kernelwright.tools.evaluate.wire import frame, receive_blocking
from kernelwright.tools.types import Task

Guest = Literal["candidate", "reference"]


class GuestLostError(Exception):
    """The guest will not answer any more."""

    def __init__(self, ended: Ended) -> None:
        super().__init__(ended.words)
        self.ended = ended


class GuestFailedError(Exception):
    """The guest says that the foreign code failed; `failed` says how."""

    def __init__(self, failed: Failed) -> None:
        super().__init__(failed.words)
        self.failed = failed


class BaselineTroubleError(Exception):
    """The reference failed in its guest, or (`lost`) that will not answer any more."""

    def __init__(self, words: str, *, lost: bool) -> None:
        super().__init__(words)
        self.lost = lost


class Broker:
    """Asks the program about guests.

    Args:
        descriptor: of the socket that was inherited.
    """

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.set_inheritable(False)

    def seated(self, guest: Guest) -> "Link":
        """A fresh guest under that name."""
        self._ask(GuestQuestion(guest=guest, seat=True))
        _, descriptors, _, _ = socket.recv_fds(self._socket, 1, 1)
        return Link(guest, descriptors[0], self)

    def books(self, guest: Guest) -> Books:
        """What the guest used up to now."""
        found = self._ask(GuestQuestion(guest=guest)).books
        assert found is not None
        return found

    def paused(self, guest: Guest, *, pause: bool) -> tuple[str, ...]:
        """Have it stand still, or go on; names of those that did not stand still until then."""
        return self._ask(GuestQuestion(guest=guest, pause=pause)).woke

    def ended(self, guest: Guest, *, timed_out: bool, limit_s: float) -> Ended:
        """How the guest ended; it is ended if it still runs."""
        stop = "timed_out" if timed_out else "exited"
        inquiry = GuestQuestion.model_validate({"guest": guest, "stop": stop, "limit_s": limit_s})
        found = self._ask(inquiry).ended
        assert found is not None
        return found

    def _ask(self, inquiry: GuestQuestion) -> GuestAnswer:
        self._socket.sendall(frame(inquiry.model_dump_json().encode()))
        return FINDING.validate_json(receive_blocking(self._socket))


class Link:
    """One guest, as the judge sees it.

    Args:
        name: the program's name for it.
        descriptor: of the socket that was handed over.
        broker: who knows about guests.
    """

    def __init__(self, name: Guest, descriptor: int, broker: Broker) -> None:
        self._name, self._broker = name, broker
        self._socket = socket.socket(fileno=descriptor)
        self._socket.set_inheritable(False)

    def share(self, memory: Memory, device: str) -> None:
        """Hand over the shared memory, once, before anything else."""
        order = MemoryOrder.model_validate({"device": device, "size_bytes": memory.raw.numel()})
        socket.send_fds(self._socket, [b"m"], [memory.descriptor])
        self._socket.sendall(frame(order.model_dump_json().encode()))

    def ask(self, order: Order, limit_s: float) -> Done:
        """One order carried out.

        Raises:
            GuestFailedError: the foreign code failed.
            GuestLostError: no answer within the limit, or the guest ended.
            BaselineTroubleError: either, in the reference's guest.
        """
        return self._report(self._exchange(frame(order.model_dump_json().encode()), limit_s))

    def started(self, go: Go, limit_s: float) -> "Running":
        """Begin timed calls: everything is ready, and the clock starts with the sending."""
        return Running(self, frame(go.model_dump_json().encode()), limit_s)

    def books(self) -> Books:
        """What the guest used up to now."""
        return self._broker.books(self._name)

    def pause(self) -> None:
        """Have it stand still, with everything that it started; nothing may be asked of it."""
        self._broker.paused(self._name, pause=True)

    def resume(self) -> tuple[str, ...]:
        """Have it go on; names of its processes that did not stand still until now."""
        return self._broker.paused(self._name, pause=False)

    def _exchange(self, payload: bytes, limit_s: float) -> bytes:
        self._socket.settimeout(limit_s)
        try:
            self._socket.sendall(payload)
            return receive_blocking(self._socket)
        except TimeoutError:
            ended = self._broker.ended(self._name, timed_out=True, limit_s=limit_s)
        except (EOFError, ConnectionError):
            ended = self._broker.ended(self._name, timed_out=False, limit_s=limit_s)
        if self._name == "reference":
            raise BaselineTroubleError(f"its process {ended.words}", lost=True)
        raise GuestLostError(ended)

    def _report(self, payload: bytes) -> Done:
        report = _understood(payload)
        if isinstance(report, Failed) and self._name == "reference":
            raise BaselineTroubleError(report.words, lost=False)
        if isinstance(report, Failed):
            raise GuestFailedError(report)
        return report


def _understood(payload: bytes) -> Done | Failed:
    try:
        return REPORT.validate_json(payload)
    except ValueError:
        return Failed(how="forward", words="what the guest said is no report")


class Running:
    """Calls under way: `wait` for the guest's word, then `report` what it said.

    Between the two the judge takes the results, so that its clock stops when it has them.
    """

    def __init__(self, link: Link, payload: bytes, limit_s: float) -> None:
        self._link, self._payload, self._limit_s = link, payload, limit_s
        self._said = b""

    def wait(self) -> int:
        """Say go, and wait for done. Returns when go was said, in nanoseconds.

        Raises:
            GuestLostError: no answer within the limit, or the guest ended.
        """
        start = time.perf_counter_ns()
        self._said = self._link._exchange(self._payload, self._limit_s)
        return start

    def report(self) -> Done:
        """What the guest said; GuestFailedError when that is a failure."""
        return self._link._report(self._said)


_ROOM_SHARE = {"cpu": 0.3, "cuda": 0.2}
_LEAST_BYTES = 64 << 20
_WANTED_BYTES = 2 << 30
_COPIES = 4  # of inputs and outputs: two places while verified, one set while timed, and room


class SharedMemory(GuardedMemory):
    """Guarded blocks in shared memory, given back when they are forgotten."""

    def __init__(self, device: str, guard_bytes: int, arena: Arena) -> None:
        super().__init__(device, guard_bytes, take=arena.take)
        self._arena = arena

    def forget(self, name: str) -> None:
        """Drop the blocks whose names begin so; nobody may use their tensors any more."""
        gone = [block for block in self._blocks if block.name.startswith(name)]
        super().forget(name)
        for block in gone:
            self._arena.give_back(block.raw)


class Seat:
    """A guest and its memory.

    Args:
        runtime: the task on its device.
        link: to the guest.
    """

    def __init__(self, runtime: ReferenceRuntime, link: Link) -> None:
        self.link = link
        device: Literal["cpu", "cuda"] = "cuda" if runtime.device == "cuda" else "cpu"
        self.arena = Arena(_memory(device, wanted_bytes(runtime)))
        self.memory = SharedMemory(runtime.device, runtime.rules.guard_bytes, self.arena)
        link.share(self.arena.memory, device)

    def outputs(self, runtime: ReferenceRuntime) -> tuple[Tensor, ...]:
        """Poisoned places for one answer."""
        return tuple(
            self.memory.empty(spec.shape, getattr(torch, spec.dtype.value))
            for spec in runtime.task.outputs
        )

    def named(self, weights: Sequence[tuple[str, Tensor]]) -> tuple[Named, ...]:
        """Weights that lie in this memory, as the guest is told of them."""
        return tuple(Named(name=name, place=place_of(self.arena, value)) for name, value in weights)


def wanted_bytes(runtime: ReferenceRuntime) -> int:
    """How much memory a guest and the judge share.

    Raises:
        MemoryError: the device has not even room for one verification.
    """
    inputs, outputs = io_bytes(runtime.task)
    weights = sum(spec.tensor.size_bytes for spec in runtime.task.weights)
    blocks = len(runtime.task.weights) + 4 * (len(runtime.task.inputs) + len(runtime.task.outputs))
    least = _COPIES * (inputs + outputs) + 2 * weights + blocks * 3 * runtime.rules.guard_bytes
    room = int(
        available_bytes(runtime.device, runtime.rules.memory_fraction) * _ROOM_SHARE[runtime.device]
    )
    if least > room:
        raise MemoryError(
            f"a guest of this task shares {least / 2**30:.1f} GiB with the judge, "
            f"but only {room / 2**30:.1f} GiB are to be had"
        )
    # More sets of inputs make short calls measurable; pages of the host exist once touched.
    return min(room, max(least + _LEAST_BYTES, min(_WANTED_BYTES, 16 * least)))


def _memory(device: str, size_bytes: int) -> Memory:
    if device == "cpu":
        return HostMemory.make(size_bytes)
    from kernelwright.tools.evaluate.foreign.shared_memory import DeviceMemory

    return DeviceMemory.make(size_bytes)


class ForeignSession:
    """What one judge keeps between candidates: its broker, and the reference's guest.

    Args:
        descriptor: of the guest broker's socket, which was inherited.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.broker = Broker(descriptor)
        self._reference: Seat | None = None
        self._known: tuple[Task, Rules] | None = None

    def candidate(self, runtime: ReferenceRuntime) -> Seat:
        """A seat with a guest that has met nobody."""
        return Seat(runtime, self.broker.seated("candidate"))

    def reference(self, runtime: ReferenceRuntime) -> Seat:
        """The reference's seat, the one that stands where it is for the same task."""
        wanted = (runtime.task, runtime.rules)
        if self._reference is None or self._known != wanted:
            self.dismiss()
            self._reference = Seat(runtime, self.broker.seated("reference"))
            self._known = wanted
        return self._reference

    def dismiss(self) -> None:
        """The next one who needs the reference gets a fresh guest."""
        self._reference = self._known = None
