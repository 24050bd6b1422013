"""The guests of one judge: a fresh process for each candidate, and one for the reference.

The program starts and watches them; the judge holds the other end of each one's socket. A spare has
imported torch and waits for its memory and its source; it has a folder of its own and has met
nothing of anybody's. It is started while a candidate is only verified, never while one is timed,
and whoever comes next gets it.

In a judge of foreign code and in its guests threads of OpenMP that wait are asleep. By default they
spin for some milliseconds (libgomp) once they have nothing to do, which is right for a program that
has the processors to itself. Here three processes take turns on them, and each starts a round from
sleep: its threads are then often woken on one processor, where one spins in wait for another that
needs that very processor. Seen on two processors in a single process
(`benchmarks/timing/waking.py`): tanh of 0.25 MB took 7.8 ms after a pause of 20 ms, and 0.11 back
to back; with threads that sleep at once 0.41 and 0.22. So both sides pay for waking up, at every
operator that runs in parallel. Threads are not bound to processors, as what a file starts would be,
too.
"""

import asyncio
import contextlib
import shutil
import socket
import sys
import time
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from types import MappingProxyType

from kernelwright.tools.evaluate.foreign.messages import Books, books, name_of
from kernelwright.tools.evaluate.rules import Defence, Rules
from kernelwright.tools.evaluate.sandbox.bytecode import WORKER_IMPORTS, worker_environment
from kernelwright.tools.evaluate.sandbox.ending import Ended, Limits, until_over
from kernelwright.tools.evaluate.sandbox.process_tree import machine_bytes, moves
from kernelwright.tools.evaluate.sandbox.walled import Enclosure, Walled, start_walled
from kernelwright.tools.evaluate.sandbox.walls import standing
from kernelwright.tools.types import Isolation

ASLEEP: Mapping[str, str] = MappingProxyType({"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"})


_KEPT_OUTPUT_BYTES = 16_384
_PAUSE_S, _PAUSE_POLL_S = 0.5, 0.0005


class GuestProcess:
    """A started guest. Use `start`; `descriptor` is the judge's end of the conversation."""

    def __init__(
        self, walled: Walled, scratch: Path, judge_end: socket.socket, rules: Rules
    ) -> None:
        self.scratch = scratch
        self._walled = walled
        self._judge_end = judge_end
        self._rules = rules
        self._output = bytearray()
        self._how: str = "exited"
        self._amount = 0
        self._limit_s = 0.0
        self._present: frozenset[int] = frozenset()
        self._moving: frozenset[int] = frozenset()
        self._tasks = [asyncio.create_task(self._listen()), asyncio.create_task(self._watch())]

    @classmethod
    async def start(cls, scratch: Path, rules: Rules, device: str) -> "GuestProcess":
        """Start a guest behind the wall, in a folder of its own; it waits for its memory."""
        ours, theirs = socket.socketpair()
        environment = {
            **worker_environment(scratch),
            **ASLEEP,
            "TORCH_EXTENSIONS_DIR": str(scratch / "extensions"),
        }
        try:
            walled = await start_walled(
                Enclosure(
                    argv=(
                        *(sys.executable, "-P", "-m", "kernelwright.tools.evaluate.foreign.guest"),
                        str(theirs.fileno()),
                    ),
                    scratch=scratch,
                    environment=environment,
                    descriptors=(theirs.fileno(),),
                    device=device,
                    ahead=WORKER_IMPORTS,
                ),
                behind=standing(rules, device),
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return cls(walled, scratch, ours, rules)

    @property
    def descriptor(self) -> int:
        """The judge's end, to be handed over to the judge."""
        return self._judge_end.fileno()

    def handed_over(self) -> None:
        """The judge has its end; this program keeps none, so that a hang-up is one."""
        self._judge_end.close()

    @property
    def isolation(self) -> Isolation:
        """How it is kept apart."""
        return self._walled.isolation

    def books(self) -> Books:
        """What it used up to now."""
        running = self._walled.processes()
        return books(running, self._walled.held_bytes(running))

    async def pause(self) -> None:
        """Let everything that it started stand still; returns when it does.

        On a busy machine it takes its while until every thread has heard. One that waits for a
        disk may not hear for long: it does nothing meanwhile, and is not blamed later.
        """
        self._walled.pause()
        until_s = time.monotonic() + _PAUSE_S
        while True:
            self._moving = frozenset(pid for pid in self._walled.processes() if moves(pid))
            if not self._moving or time.monotonic() > until_s:
                break
            await asyncio.sleep(_PAUSE_POLL_S)
        self._present = frozenset(self._walled.processes())

    def resume(self) -> tuple[str, ...]:
        """Let it go on; names of those that did not stand still until now.

        A timer of the kernel's can wake a process that nobody told to go on.
        """
        now = [pid for pid in self._walled.processes() if pid not in self._moving]
        woke = [name_of(pid) for pid in now if pid not in self._present or moves(pid)]
        self._walled.resume()
        return tuple(woke)

    async def stop(self, how: str, limit_s: float) -> Ended:
        """End it if it still runs; how it ended.

        Args:
            how: `timed_out`, or `exited` when it went by itself.
            limit_s: the time that was too long.
        """
        if how == "exited":
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._walled.wait(), 5.0)
        if self._walled.alive:
            self._how, self._limit_s = "timed_out", limit_s
        await self._walled.end()
        return Ended.model_validate(
            {
                "how": self._how,
                "status": self._walled.status,
                "stage": None,
                "output": self._output.decode(errors="replace").strip(),
                "limit_s": self._limit_s,
                "amount": self._amount,
            }
        )

    async def aclose(self) -> None:
        """End it and everything that it started."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._walled.end()
        self._judge_end.close()

    async def _watch(self) -> None:
        """End it when it uses more memory, processes or files than it may."""
        limits = Limits(
            memory_bytes=int(machine_bytes() * self._rules.memory_fraction),
            processes=self._rules.processes_max,
            scratch_bytes=self._rules.scratch_bytes,
            poll_s=self._rules.memory_poll_s,
        )
        excess = await until_over(self._walled, self.scratch, limits)
        self._how, self._amount = excess.how, excess.amount
        await self._walled.end()

    async def _listen(self) -> None:
        """Keep the tail of the output; a pipe that nobody empties would stop the guest."""
        while part := await self._walled.output.read(65_536):
            self._output += part
            del self._output[:-_KEPT_OUTPUT_BYTES]


class Guests:
    """Starts guests and ends them.

    Args:
        scratch: the folder of their folders.
        device: what they work on.

    Attributes:
        spare_next: Start a spare once the next guest is seated.
    """

    def __init__(self, scratch: Path, device: str) -> None:
        self._scratch, self._device = scratch, device
        self._rules = Rules()
        self._numbers = count()
        self._seated: dict[str, GuestProcess] = {}
        self._spare: asyncio.Task[GuestProcess] | None = None
        self.spare_next = False

    async def judged_by(self, rules: Rules) -> None:
        """Which rules hold for guests from now on; a spare behind another wall is let go."""
        if rules.has(Defence.SANDBOX) != self._rules.has(Defence.SANDBOX):
            await self._drop_spare()
        self._rules = rules

    def prepare(self) -> None:
        """Start a spare in the background, if there is none."""
        if self._spare is None:
            self._spare = asyncio.create_task(self._start())

    async def seat(self, name: str) -> GuestProcess:
        """A guest that has met nobody, in the place of the one that had this name."""
        await self.leave(name)
        if self._spare is None:
            self._spare = asyncio.create_task(self._start())
        # Shielded: a judge that is given up meanwhile must not leave a process half started.
        guest = await asyncio.shield(self._spare)
        self._spare = None
        self._seated[name] = guest
        if self.spare_next:
            self.spare_next = False
            self.prepare()
        return guest

    def named(self, name: str) -> GuestProcess | None:
        """The guest that has the name now."""
        return self._seated.get(name)

    async def leave(self, name: str) -> None:
        """End whoever has this name, and what it wrote."""
        if (guest := self._seated.pop(name, None)) is not None:
            await asyncio.shield(self._end(guest))

    async def aclose(self) -> None:
        """End all of them."""
        await self._drop_spare()
        await self.leave_all()

    async def leave_all(self) -> None:
        """End those that are seated; a spare has met none of them."""
        for name in tuple(self._seated):
            await self.leave(name)

    async def _start(self) -> GuestProcess:
        folder = self._scratch / f"guest-{next(self._numbers)}"
        return await GuestProcess.start(folder, self._rules, self._device)

    async def _drop_spare(self) -> None:
        if self._spare is None:
            return
        spare, self._spare = self._spare, None
        (guest,) = await asyncio.gather(spare, return_exceptions=True)
        if isinstance(guest, GuestProcess):
            await self._end(guest)

    async def _end(self, guest: GuestProcess) -> None:
        await guest.aclose()
        await asyncio.to_thread(shutil.rmtree, guest.scratch, ignore_errors=True)
