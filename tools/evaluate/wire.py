"""Frames on a socket between two of our processes: eight bytes of length, then JSON.

Between parent and worker a token stands before the JSON. It is drawn for every question and comes
back with everything that is said to it. So what an earlier candidate left running, or code that
only knows the socket, cannot answer for the judge. Code that reads the judge's memory can: for
that, processes are apart (see docs/trust.md).
"""

import asyncio
import socket
import struct

_HEADER = struct.Struct(">Q")
_LONGEST_BYTES = 1 << 30
TOKEN_BYTES = 16
UNASKED = bytes(TOKEN_BYTES)  # for what a worker says before any question


def frame(payload: bytes) -> bytes:
    """The payload with its length in front."""
    return _HEADER.pack(len(payload)) + payload


def opened(content: bytes) -> tuple[bytes, bytes]:
    """The token and the rest of what judge and worker say to each other."""
    return content[:TOKEN_BYTES], content[TOKEN_BYTES:]


class ForgedError(Exception):
    """A frame that no worker of ours writes."""


def length(header: bytes) -> int:
    """The length a header announces; ForgedError when no honest frame is that long."""
    (size,) = _HEADER.unpack(header)
    if size > _LONGEST_BYTES:
        raise ForgedError(f"a frame of {size} bytes was announced")
    return int(size)


async def receive(reader: asyncio.StreamReader) -> bytes:
    """The next payload (parent's side); IncompleteReadError when the other side is gone."""
    header = await reader.readexactly(_HEADER.size)
    return await reader.readexactly(length(header))


def receive_blocking(connection: socket.socket) -> bytes:
    """The next payload (worker's side); EOFError when the parent is gone."""
    return _exactly(connection, length(_exactly(connection, _HEADER.size)))


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(min(size - len(parts), 1 << 20))
        if not part:
            raise EOFError("the parent closed the connection")
        parts += part
    return bytes(parts)
