"""Foreign code as a runner of trials: called in its guest, watched from outside.

The result is taken from the shared memory the moment the guest says that it is done, and looked at
again after a pause: what changes then was not done. So are the guest's threads, processes and the
time that they use after they said they were done.

`Look` is what the judge takes of an answer while its clock runs: enough to know that it was there.
A small answer is copied whole. Copying a large one costs as much as many a kernel, so of a large
one the judge takes places that it drew by chance for this round and told nobody, and the whole
after the clock. What was seen under the clock must stand in the whole: of an answer whose
hundredth part comes late, 4096 places miss that once in 10^17 rounds. A part so small that it is
missed saves no time.

`rejected` turns a guest's failure or end into a verdict. `lacking` tells when code failed because
of this machine, and not because of itself: a file for a GPU can say nothing about itself where
there is none, so it gets no verdict there, and whoever asked is told what is missing. Read from the
guest's words, which can only take a verdict away; code that falls back to something that runs here
is judged by that.
"""

import os
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from kernelwright.tools.evaluate.foreign.guest_link import GuestFailedError, GuestLostError, Seat
from kernelwright.tools.evaluate.foreign.messages import (
    Arrange,
    Books,
    Call,
    Done,
    Failed,
    Go,
    Make,
    Store,
    Weights,
)
from kernelwright.tools.evaluate.foreign.shared_memory import place_of, slots_of
from kernelwright.tools.evaluate.rules import Defence
from kernelwright.tools.evaluate.sandbox.worker import verdict_of
from kernelwright.tools.evaluate.verify.bits import same_bits
from kernelwright.tools.evaluate.verify.reasons import RejectedError, rejection
from kernelwright.tools.evaluate.verify.reference_runtime import ReferenceRuntime
from kernelwright.tools.evaluate.verify.trials import at_rest
from kernelwright.tools.evaluate.verify.truth import Argument
from kernelwright.tools.types import Verdict

_NO_DEVICE = (
    "CUDA_HOME environment variable is not set",
    "CUDA-capable device",
    "No CUDA GPUs are available",
    "No CUDA runtime is found",
    "NVIDIA driver",
    "asks for a CUDA device, and there is none here",
    "not compiled with CUDA",
    "requires CUDA support",
    "dummy base class CUDAGraph",
    "0 active drivers",
)
_NO_TOOLKIT = ("CUDA_HOME environment variable is not set", "nvcc: not found", "/bin/nvcc'")
_NO_NINJA = "Ninja is required to load C++ extensions"
_NO_MODULE = re.compile(r"(?:No module named|The file imports) '([\w.]+)'")


class LackingError(Exception):
    """This machine has not what foreign code needs; the message is a sentence with the remedy."""


def lacking(name: str, words: str, device: str) -> str:
    """What is missing here, in a sentence; empty where the failure is the code's own.

    Args:
        name: the foreign code's.
        words: the guest's account of how it failed.
        device: `cpu` or `cuda`.
    """
    if module := _NO_MODULE.search(words):
        package = module.group(1).split(".")[0]
        elsewhere = "" if device == "cuda" else " (if it is one for GPUs, on a machine with one)"
        return f"{name} imports {package!r}, which is not installed here: install it{elsewhere}"
    if _NO_NINJA in words:
        return f"{name} builds an extension, for which torch wants ninja: pip install ninja"
    if device == "cpu" and any(sign in words for sign in _NO_DEVICE):
        return (
            f"{name} needs a CUDA device, and it is judged on the CPU here: check it with "
            f"--target cuda on a machine that has one ({words[:160]})"
        )
    if device == "cuda" and any(sign in words for sign in _NO_TOOLKIT):
        return (
            f"{name} compiles CUDA with nvcc, which is not here: install the CUDA toolkit and set "
            f"CUDA_HOME ({words[:160]})"
        )
    return ""


_COMPILERS = ("Error building extension", "syntax error", "ninja", "CompilationError")


class GuestRejectedError(RejectedError):
    """A verdict on code that failed in its guest; `failed` is how, as the guest told it."""

    def __init__(self, found: RejectedError, failed: Failed) -> None:
        super().__init__(found.verdict, found.reason)
        self.failed = failed


def rejected(error: GuestFailedError | GuestLostError, doing: str) -> RejectedError:
    """The verdict on a guest that failed or was lost while doing something."""
    if isinstance(error, GuestLostError):
        said = _last_line(error.ended.output)
        tail = f"; its last words: {said}" if said else ""
        reason = f"the guest {error.ended.words} while {doing}{tail}"
        return RejectedError(verdict_of(error.ended), reason)
    return GuestRejectedError(_verdict(error.failed), error.failed)


def _verdict(failed: Failed) -> RejectedError:
    match failed.how:
        case "not_a_tensor":
            return RejectedError(
                Verdict.CHEATING, f"{failed.words}: its values may be computed after the clock"
            )
        case "wrong_shape":
            return RejectedError(Verdict.WRONG_SHAPE, failed.words)
        case "memory":
            return RejectedError(Verdict.OUT_OF_MEMORY, failed.words)
        case _ if any(sign in failed.words for sign in _COMPILERS):
            return RejectedError(Verdict.COMPILE_ERROR, failed.words)
        case "import" | "construct":
            return RejectedError(Verdict.LAUNCH_ERROR, failed.words)
        case "forward":
            return RejectedError(rejection(RuntimeError(failed.words)).verdict, failed.words)


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""


PLACES = 4096
WHOLE = 16 * PLACES  # elements up to which a copy costs no more than a look


class Look:
    """What the judge saw in the place of one output while its clock ran.

    Args:
        output: where a guest puts it; contiguous.
    """

    def __init__(self, output: Tensor) -> None:
        self._flat = output.reshape(-1)
        self._places: Tensor | None = None
        size = output.numel() if output.numel() <= WHOLE else PLACES
        self._seen = torch.empty_like(self._flat[:size])

    def aim(self, places: Tensor | None) -> None:
        """Where to look next, as indices of elements; None for an output that is taken whole."""
        self._places = places

    def take(self) -> None:
        """Look; this is what the clock waits for."""
        if self._places is None:
            self._seen.copy_(self._flat)
        else:
            torch.index_select(self._flat, 0, self._places, out=self._seen)

    def stands_in(self, taken: Tensor) -> bool:
        """Whether the whole, copied later, says what was seen."""
        flat = taken.reshape(-1)
        return same_bits(flat if self._places is None else flat[self._places], self._seen)


class Chance:
    """Draws positions in an output that nobody can foresee.

    Args:
        device: where the outputs lie.
    """

    def __init__(self, device: str) -> None:
        seed = int.from_bytes(os.urandom(7), "little")
        self._device, self._generator = device, torch.Generator(device).manual_seed(seed)

    def places(self, elements: int) -> Tensor | None:
        """Indices of elements of an output of that size; None for one that is taken whole."""
        if elements <= WHOLE:
            return None
        return torch.randint(elements, (PLACES,), generator=self._generator, device=self._device)


_PAUSE_S = 0.04
_IDLE_SHARE = 0.6  # of the pause: threads of OpenMP spin a little before they sleep


class GuestRunner:
    """Calls foreign code in its guest, one call at a time.

    Args:
        runtime: the task.
        seat: the guest's.
        make: how the module is made.
        limit_s: how long a call may take, asked anew for each.
        first_s: how long the first may take.
    """

    def __init__(
        self,
        runtime: ReferenceRuntime,
        seat: Seat,
        make: Make,
        limit_s: Callable[[], float],
        first_s: Callable[[], float],
    ) -> None:
        self._runtime, self._seat, self._make = runtime, seat, make
        self._limit_s, self._first_s = limit_s, first_s
        self._rules = runtime.rules
        self.made = Done()
        self.taken: frozenset[str] = frozenset()
        self.settings: tuple[str, ...] = ()
        self._calls = 0
        self._one_order = False

    def prepare(self, weights: Mapping[str, Tensor]) -> None:
        """Run the file and construct the module, with a compiler at work where it has one."""
        limit_s = self._rules.foreign_build_s
        try:
            self.made = self._seat.link.ask(self._make, limit_s)
        except (GuestFailedError, GuestLostError) as error:
            raise rejected(error, "its file was run and its module constructed") from error

    def __call__(
        self, arguments: Sequence[Argument], weights: Mapping[str, Tensor]
    ) -> tuple[Tensor, ...]:
        """One call on arguments that lie in the seat's memory; copies of the outputs."""
        try:
            return self._call(arguments, weights)
        except (GuestFailedError, GuestLostError) as error:
            raise rejected(error, "it was called") from error

    @contextmanager
    def in_one_order(self) -> Iterator[None]:
        """The library in the guest adds up in one order; a guest is not believed what has none."""
        self._one_order = True
        try:
            yield
        finally:
            self._one_order = False

    def _call(
        self, arguments: Sequence[Argument], weights: Mapping[str, Tensor]
    ) -> tuple[Tensor, ...]:
        seat, limit_s = self._seat, self._limit_s() if self._calls else self._first_s()
        outputs = seat.outputs(self._runtime)
        order = Weights(weights=seat.named(tuple(weights.items())))
        self.taken = frozenset(seat.link.ask(order, limit_s).names)
        arranged = Arrange(
            arguments=(slots_of(seat.arena, arguments),),
            outputs=(tuple(place_of(seat.arena, output) for output in outputs),),
        )
        seat.link.ask(arranged, limit_s)
        before = seat.link.books()
        exact = self._rules.has(Defence.EXACT_RESULT)
        go = Go(
            calls=(Call(arguments=0, outputs=0),),
            exact=exact,
            one_order=self._one_order,
            as_bytes=exact and bool(secrets.randbits(1)),
        )
        running = seat.link.started(go, limit_s)
        self._settle()
        running.wait()
        taken = tuple(output.clone() for output in outputs)
        self._settle()
        done = running.report()
        self._afterwards(before, done, outputs, taken)
        stored = seat.link.ask(Store(weights=seat.named(tuple(weights.items()))), limit_s)
        self._no_threads(stored)
        return taken

    def _settle(self) -> None:
        if self._runtime.device == "cuda":
            torch.cuda.synchronize()

    def _afterwards(
        self, before: Books, done: Done, outputs: Sequence[Tensor], taken: Sequence[Tensor]
    ) -> None:
        """What goes on after the guest said that it was done is no part of a result."""
        after = self._seat.link.books()
        time.sleep(_PAUSE_S)
        late = self._seat.link.books()
        self.settings = tuple(dict.fromkeys((*self.settings, *done.settings)))
        self._calls += 1
        if self._rules.has(Defence.LATE_CHANGES):
            unchanged(outputs, taken)
        if self._rules.has(Defence.COMPANIONS):
            self._alone(before, after, late, done)

    def _alone(self, before: Books, after: Books, late: Books, done: Done) -> None:
        if late.processes > before.processes:
            names = ", ".join(late.names[before.processes :])
            raise RejectedError(
                Verdict.CHEATING,
                f"a call left {late.processes - before.processes} processes running ({names})",
            )
        self._no_threads(done)
        if self._calls > 2 and late.threads > before.threads:
            raise RejectedError(
                Verdict.CHEATING,
                f"a call left {late.threads - before.threads} threads more than it found",
            )
        used = late.cpu_ms - after.cpu_ms
        if self._calls > 2 and used > _IDLE_SHARE * _PAUSE_S * 1e3:
            raise RejectedError(
                Verdict.CHEATING,
                f"after it said that it was done the guest went on to compute: {used:.0f} ms of "
                f"processor time in a pause of {_PAUSE_S * 1e3:.0f} ms",
            )

    def _no_threads(self, done: Done) -> None:
        if done.python_threads and self._rules.has(Defence.COMPANIONS):
            names = ", ".join(done.python_threads[:4])
            raise RejectedError(
                Verdict.CHEATING, f"threads of the candidate outlive its calls ({names})"
            )


def unchanged(outputs: Sequence[Tensor], taken: Sequence[Tensor]) -> None:
    """RejectedError when an output is not what it was when the guest said that it was done."""
    at_rest(outputs, taken, "the work was still going on when the candidate said that it was done")
