"""Subscribers to a run's events and to what its models are writing.

Events come first as they happened before, then as they happen, each once. Subscribers are told from
the archive and never from the search itself, so that nothing is lost between the two; the search
only says that there is something new. A subscriber that fails, or that is slow, disturbs no other.

What models are writing is shown meanwhile and never kept. A subscriber is told what changed at most
a few times a second, however fast a model is. Whoever comes late gets the whole of what has been
written of the current answer; whoever comes after it finds the event.

A `Notifier` calls a person's pages whenever there may be something new for them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from kernelwright.graphs.run_view.events import EVENT, Event, Speech, Speeches
from kernelwright.tools.archive import Archive
from kernelwright.tools.types import Value

log = logging.getLogger(__name__)

Wake = Callable[[], None]


class Notifier:
    """The listeners of every person, known by the person's folder.

    They are called from whatever thread the news comes from, and say nothing of what it is.
    """

    def __init__(self) -> None:
        self._of: dict[Path, set[Wake]] = {}

    def subscribe(self, home: Path, wake: Wake) -> None:
        """Have something called whenever there may be something new for this person."""
        self._of.setdefault(home, set()).add(wake)

    def unsubscribe(self, home: Path, wake: Wake) -> None:
        """The opposite of `subscribe`; nothing happens where it is subscribed no longer."""
        self._of.get(home, set()).discard(wake)

    def notify(self, home: Path) -> None:
        """Call every subscriber of this person's."""
        for wake in tuple(self._of.get(home, ())):
            wake()


class Told(Value):
    """An event with its number in the run; `live` when it was told as it happened."""

    run: str
    seq: int
    event: Event
    live: bool = True


Hear = Callable[[Told], Awaitable[None]]
# The folder of the run to listen to; None while there is none.
WhichRun = Callable[[], Path | None]


class EventSubscriber:
    """Calls one listener. It lives on the loop, and in the context, in which it was started.

    Args:
        which: Which run is to be listened to; asked again whenever it is woken.
        hear: Is given the events in order.
        after: The number of the last event that is known already.
    """

    def __init__(self, which: WhichRun, hear: Hear, after: int = 0) -> None:
        self._which, self._hear, self._after = which, hear, after
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._woken.set()
        self._archive: Archive | None = None
        self._caught_up = False
        self._task = self._loop.create_task(self._listen())

    def wake(self) -> None:
        """Say, from any thread, that there may be something new."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._woken.set)

    def close(self) -> None:
        """Listen no more."""
        self._task.cancel()

    async def _listen(self) -> None:
        try:
            while True:
                await self._woken.wait()
                self._woken.clear()
                await self._tell_all()
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("a listener failed; the search goes on without it")
        finally:
            if self._archive is not None:
                self._archive.close()

    async def _tell_all(self) -> None:
        """Everything that was not told yet; a second look finds nothing and ends it."""
        while batch := await asyncio.to_thread(self._read):
            for told in batch:
                await self._hear(told)
                self._after = told.seq
        self._caught_up = True

    def _read(self) -> tuple[Told, ...]:
        folder = self._which()
        if folder is None:
            return ()
        archive, live = self._opened(folder), self._caught_up
        return tuple(
            Told(run=archive.id, seq=item.seq, event=EVENT.validate_json(item.payload), live=live)
            for item in archive.events(self._after)
        )

    def _opened(self, folder: Path) -> Archive:
        """The run's archive; another run is listened to from its beginning."""
        if self._archive is not None and self._archive.folder == folder:
            return self._archive
        if self._archive is not None:
            self._archive.close()
            self._after, self._caught_up = 0, False
        self._archive = Archive.open(folder)
        return self._archive


EVERY_S = 0.25

HearSpeech = Callable[[Speech], Awaitable[None]]
# The speeches of the search to listen in on; None while none runs.
WhichSpeeches = Callable[[], Speeches | None]


class StreamSubscriber:
    """Calls one listener. It lives on the loop, and in the context, in which it was started.

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
