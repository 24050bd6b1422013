"""The judge's end of the conversation with one guest.

Questions block: nothing else happens in the judge while a guest is at work. A guest that does not
come back in time, or ends, raises `GuestLostError` with the program's account of how. Trouble with
the reference's guest has a name of its own, as no candidate is to blame for it.
"""

import socket
import time
from typing import Literal

from kernelwright.tools.evaluate.foreign.arena import Memory
from kernelwright.tools.evaluate.foreign.books import Books
from kernelwright.tools.evaluate.foreign.errands import FINDING, Finding, Inquiry
from kernelwright.tools.evaluate.foreign.messages import REPORT, Done, Failed, Go, Order
from kernelwright.tools.evaluate.foreign.messages import Memory as MemoryOrder
from kernelwright.tools.evaluate.messages.wire import frame, receive_blocking
from kernelwright.tools.evaluate.sandbox.ended import Ended

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


class Usher:
    """Asks the program about guests.

    Args:
        descriptor: of the socket that was inherited.
    """

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)
        self._socket.set_inheritable(False)

    def seated(self, guest: Guest) -> "Link":
        """A fresh guest under that name."""
        self._ask(Inquiry(guest=guest, seat=True))
        _, descriptors, _, _ = socket.recv_fds(self._socket, 1, 1)
        return Link(guest, descriptors[0], self)

    def books(self, guest: Guest) -> Books:
        """What the guest used up to now."""
        found = self._ask(Inquiry(guest=guest)).books
        assert found is not None
        return found

    def ended(self, guest: Guest, *, timed_out: bool, limit_s: float) -> Ended:
        """How the guest ended; it is ended if it still runs."""
        stop = "timed_out" if timed_out else "exited"
        inquiry = Inquiry.model_validate({"guest": guest, "stop": stop, "limit_s": limit_s})
        found = self._ask(inquiry).ended
        assert found is not None
        return found

    def _ask(self, inquiry: Inquiry) -> Finding:
        self._socket.sendall(frame(inquiry.model_dump_json().encode()))
        return FINDING.validate_json(receive_blocking(self._socket))


class Link:
    """One guest, as the judge sees it.

    Args:
        name: the program's name for it.
        descriptor: of the socket that was handed over.
        usher: who knows about it.
    """

    def __init__(self, name: Guest, descriptor: int, usher: Usher) -> None:
        self._name, self._usher = name, usher
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
        return self._usher.books(self._name)

    def _exchange(self, payload: bytes, limit_s: float) -> bytes:
        self._socket.settimeout(limit_s)
        try:
            self._socket.sendall(payload)
            return receive_blocking(self._socket)
        except TimeoutError:
            ended = self._usher.ended(self._name, timed_out=True, limit_s=limit_s)
        except (EOFError, ConnectionError):
            ended = self._usher.ended(self._name, timed_out=False, limit_s=limit_s)
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
