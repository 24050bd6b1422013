"""Listening in on models while they speak: what they say is shown meanwhile and never kept.

A listener is told what changed at most a few times a second, however fast a model is. Whoever
comes late hears the whole of what is being said; whoever comes after it finds the event.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from kernelwright.graphs.run_view.speech import Speech, Speeches

log = logging.getLogger(__name__)

EVERY_S = 0.25

HearSpeech = Callable[[Speech], Awaitable[None]]
# The speeches of the search to listen in on; None while none runs.
WhichSpeeches = Callable[[], Speeches | None]


class Ear:
    """One listener's ear. It lives on the loop, and in the context, in which it was started.

    Args:
        which: Whose speeches; asked again whenever it is woken.
        hear: Is given a speech whenever it grew, and once more when it ended.
        every_s: How long it rests between two looks.
    """

    def __init__(self, which: WhichSpeeches, hear: HearSpeech, every_s: float = EVERY_S) -> None:
        self._which, self._hear, self._every_s = which, hear, every_s
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._woken.set()
        self._is_called = False
        self._told: dict[str, Speech] = {}
        self._task = self._loop.create_task(self._listen())

    def wake(self) -> None:
        """Say, from any thread and for every piece, that there is more."""
        if not self._is_called and not self._loop.is_closed():
            self._is_called = True
            self._loop.call_soon_threadsafe(self._woken.set)

    def close(self) -> None:
        """Listen no more."""
        self._task.cancel()

    async def _listen(self) -> None:
        try:
            while True:
                await self._woken.wait()
                self._woken.clear()
                self._is_called = False
                await self._tell()
                await asyncio.sleep(self._every_s)
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("a listener failed; the search goes on without it")

    async def _tell(self) -> None:
        speeches = self._which()
        now = {item.key: item for item in speeches.now()} if speeches else {}
        for key in [key for key in self._told if key not in now]:
            await self._hear(self._told.pop(key).model_copy(update={"ended": True}))
        for key, speech in now.items():
            if speech != self._told.get(key):
                self._told[key] = speech
                await self._hear(speech)
