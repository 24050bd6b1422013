"""Answers the judge's questions about guests, from outside of both their walls."""

import asyncio
import contextlib
import socket
from collections.abc import Mapping

from tools.evaluate.foreign.errands import INQUIRY, Finding, Inquiry
from tools.evaluate.foreign.host.guest_process import GuestProcess
from tools.evaluate.wire import frame, receive


class Usher:
    """Serves one judge. `descriptor` is the judge's end.

    Args:
        guests: by name.
    """

    def __init__(self, guests: Mapping[str, GuestProcess]) -> None:
        self._guests = guests
        self._ours, self._theirs = socket.socketpair()
        self._serving = asyncio.create_task(self._serve())

    @property
    def descriptor(self) -> int:
        """The judge's end, to be inherited by the judge."""
        return self._theirs.fileno()

    async def aclose(self) -> None:
        """Stop answering."""
        self._serving.cancel()
        await asyncio.gather(self._serving, return_exceptions=True)
        self._theirs.close()

    async def _serve(self) -> None:
        reader, writer = await asyncio.open_connection(sock=self._ours)
        try:
            with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
                while True:
                    inquiry = INQUIRY.validate_json(await receive(reader))
                    finding = await self._find(inquiry)
                    writer.write(frame(finding.model_dump_json().encode()))
                    await writer.drain()
        finally:
            writer.close()

    async def _find(self, inquiry: Inquiry) -> Finding:
        guest = self._guests[inquiry.guest]
        if inquiry.stop:
            return Finding(ended=await guest.stop(inquiry.stop, inquiry.limit_s))
        return Finding(books=guest.books())
