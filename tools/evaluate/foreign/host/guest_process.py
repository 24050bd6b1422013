"""One guest, started and watched by the program; the judge holds the other end of its socket."""

import asyncio
import contextlib
import socket
import sys
from pathlib import Path

from kernelwright.tools.evaluate.foreign.books import Books, books
from kernelwright.tools.evaluate.foreign.host.threads import ASLEEP
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.sandbox.ended import Ended
from kernelwright.tools.evaluate.sandbox.environment import worker_environment
from kernelwright.tools.evaluate.sandbox.memory import machine_bytes
from kernelwright.tools.evaluate.sandbox.walled import Enclosure, Walled, start_walled
from kernelwright.tools.evaluate.sandbox.walls import standing
from kernelwright.tools.evaluate.sandbox.watch import Limits, until_over
from kernelwright.tools.types import Isolation

_KEPT_OUTPUT_BYTES = 16_384


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
