"""A replay's writers take turns as they did in the recorded run.

Writers of one round work side by side, and a model answers when it answers; in a replay all answers
are there at once. Who was first matters, as candidates are known by the order they were written in.
"""

import asyncio
from time import monotonic

from kernelwright.agents.coder.coder import Coder, CoderAnswer, CoderRequest, Failure
from kernelwright.tools.archive import Archive
from kernelwright.tools.types import Candidate

POLL_S = 0.002
# A writer that waits longer without anything being written is past a difference; it goes on.
STUCK_S = 2.0


class CoderInTurn:
    """Hands out a coder's candidates when everything written before them is there."""

    def __init__(self, inner: Coder, past: Archive, present: Archive) -> None:
        self._inner = inner
        self._present = present
        written = [item.candidate for item in past.candidates()]
        self._place = {item.id: number for number, item in enumerate(written)}
        self._idea = {item.id: item.idea for item in written}

    async def write(self, order: CoderRequest) -> CoderAnswer:
        """Candidates for an idea, in turn."""
        return await self._in_turn(await self._inner.write(order))

    async def repair(self, order: CoderRequest, failure: Failure) -> CoderAnswer:
        """A repair, in turn."""
        return await self._in_turn(await self._inner.repair(order, failure))

    async def _in_turn(self, answer: CoderAnswer) -> CoderAnswer:
        wanted = self._before(answer.candidates)
        there, since = -1, monotonic()
        while there < wanted and monotonic() - since < STUCK_S:
            count = len(self._present.candidates())
            if count != there:
                there, since = count, monotonic()
            if there < wanted:
                await asyncio.sleep(POLL_S)
        return answer

    def _before(self, candidates: tuple[Candidate, ...]) -> int:
        """How many candidates were there when these were written.

        One that a sibling had written too, and first, is waited for.
        """
        known = [item for item in candidates if item.id in self._place]
        mine = [self._place[item.id] for item in known if self._idea[item.id] == item.idea]
        others = [self._place[item.id] + 1 for item in known if self._idea[item.id] != item.idea]
        return max([*mine[:1], *others], default=0)
