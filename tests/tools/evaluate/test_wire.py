"""Frames between processes: whole, bounded and from whom they say."""

import asyncio
import socket

import pytest

from kernelwright.tools.evaluate.wire import (
    TOKEN_BYTES,
    ForgedError,
    frame,
    opened,
    receive,
    receive_blocking,
)


async def test_frames_arrive_whole_on_both_sides() -> None:
    left, right = socket.socketpair()
    with right:
        reader, writer = await asyncio.open_connection(sock=left)
        payload, token = b"x" * 300_000, b"t" * TOKEN_BYTES
        sending = asyncio.create_task(asyncio.to_thread(right.sendall, frame(token + payload)))
        assert opened(await receive(reader)) == (token, payload)
        await sending
        writer.write(frame(token + b"answer"))
        await writer.drain()
        assert await asyncio.to_thread(receive_blocking, right) == token + b"answer"
        writer.close()
        with pytest.raises(EOFError):
            await asyncio.to_thread(receive_blocking, right)


async def test_a_frame_longer_than_any_honest_one_is_refused() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(b"\xff" * 8)
    with pytest.raises(ForgedError, match="announced"):
        await receive(reader)
