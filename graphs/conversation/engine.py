"""A thread with an event loop of its own, in which searches run.

A search's own thinking and writing take the loop they run on for a tenth of a second now and
then; twenty of them would make a page stutter, so the page keeps its loop for itself.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


class Engine:
    """The loop; it is started when first needed and ended with `close`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The running loop."""
        with self._starting:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_run, args=(self._loop,), name="searches", daemon=True
                )
                self._thread.start()
            return self._loop

    def submit(self, work: Coroutine[object, object, Result]) -> Future[Result]:
        """Run something there, and do not wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    async def call(self, work: Coroutine[object, object, Result]) -> Result:
        """Run something there and wait for it on the caller's loop; a cancellation reaches it."""
        return await asyncio.wrap_future(self.submit(work))

    def tell(self, what: Callable[[], object]) -> None:
        """Call something there soon."""
        self.loop.call_soon_threadsafe(what)

    def close(self) -> None:
        """End the loop; what still runs there is cancelled and waited for."""
        with self._starting:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def _run(loop: asyncio.AbstractEventLoop) -> None:
    """Run until stopped, and leave nothing half done: a question holds a worker, or its lease."""
    try:
        loop.run_forever()
        if left := asyncio.all_tasks(loop):
            for task in left:
                task.cancel()
            loop.run_until_complete(asyncio.wait(left))
    finally:
        loop.close()
