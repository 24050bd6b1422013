"""Answers the judge's questions about guests, and brings them in, from outside of all walls."""

import asyncio
import contextlib
import socket

from kernelwright.tools.evaluate.foreign.errands import INQUIRY, Finding, Inquiry
from kernelwright.tools.evaluate.foreign.host.guests import Guests
from kernelwright.tools.evaluate.messages.wire import frame, receive


class Usher:
    """Serves one judge. `descriptor` is the judge's end.

    Args:
        guests: whom it may bring in.
    """

    def __init__(self, guests: Guests) -> None:
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
                    if inquiry.seat:
                        self._hand_over(inquiry)
        finally:
            writer.close()

    async def _find(self, inquiry: Inquiry) -> Finding:
        if inquiry.seat:
            await self._guests.seat(inquiry.guest)
            return Finding()
        guest = self._guests.named(inquiry.guest)
        if guest is None:
            raise ConnectionError(f"nobody is seated as {inquiry.guest}")
        if inquiry.stop:
            return Finding(ended=await guest.stop(inquiry.stop, inquiry.limit_s))
        return Finding(books=guest.books())

    def _hand_over(self, inquiry: Inquiry) -> None:
        """The judge's end of a guest's socket; a byte never meets a full buffer here."""
        guest = self._guests.named(inquiry.guest)
        assert guest is not None
        socket.send_fds(self._ours, [b"g"], [guest.descriptor])
        guest.handed_over()
