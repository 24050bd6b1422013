"""The guests of one judge: a fresh one for each candidate, and one for the reference.

A spare has imported torch and waits for its memory and its source; it has a folder of its own and
has met nothing of anybody's. It is started while a candidate is only verified, never while one
is timed, and whoever comes next gets it.
"""

import asyncio
import shutil
from itertools import count
from pathlib import Path

from kernelwright.tools.evaluate.defences import Defence
from kernelwright.tools.evaluate.foreign.host.guest_process import GuestProcess
from kernelwright.tools.evaluate.rules import Rules


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
        """Who has the name now."""
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
