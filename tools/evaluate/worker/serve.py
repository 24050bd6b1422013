"""The loop of a worker: a request in, stages on the way, one reply out.

An unexpected exception is answered too, as `Broken`: the parent raises it where a person of
ours can see it.
"""

import os
import socket
import traceback

from kernelwright.tools.evaluate.messages import (
    REQUEST,
    Answer,
    Broken,
    Message,
    Ready,
    Reply,
    Request,
)
from kernelwright.tools.evaluate.messages.wire import UNASKED, frame, opened, receive_blocking
from kernelwright.tools.evaluate.vector_math import resolve_vector_math
from kernelwright.tools.evaluate.worker.desk import Desk


def serve(connection: socket.socket) -> None:
    """Answer requests until the parent closes the connection."""
    resolve_vector_math()
    process, token = os.getpid(), UNASKED

    def send(message: Message) -> None:
        # A fork that some code made goes on from wherever it was; it has no say here.
        if os.getpid() != process:
            os._exit(0)
        connection.sendall(frame(token + message.model_dump_json().encode()))

    desk = Desk(lambda stage: send(stage))
    send(Ready(pid=process))
    while True:
        token, asked = opened(receive_blocking(connection))
        request = REQUEST.validate_json(asked)
        send(_reply(desk, request))


def _reply(desk: Desk, request: Request) -> Reply:
    try:
        answer: Answer = desk.answer(request)
    except Exception as error:
        answer = Broken(
            words=f"{type(error).__name__} in a worker answering {request.kind!r}: {error}",
            detail=traceback.format_exc(),
        )
    return Reply(answer=answer, retire=desk.retire, phases=desk.meter.taken())
