"""The loop of a guest: the shared memory first, then an order in, a report out."""

import os
import socket

from kernelwright.tools.evaluate.foreign.guest.clocks import opened
from kernelwright.tools.evaluate.foreign.guest.steps import Steps
from kernelwright.tools.evaluate.foreign.messages import ORDER, Memory
from kernelwright.tools.evaluate.messages.wire import frame, receive_blocking
from kernelwright.tools.evaluate.process_setup import resolve_vector_math


def serve(connection: socket.socket) -> None:
    """Carry out orders until the judge closes the connection."""
    resolve_vector_math()
    process = os.getpid()
    _, descriptors, _, _ = socket.recv_fds(connection, 1, 1)
    memory = ORDER.validate_json(receive_blocking(connection))
    if not isinstance(memory, Memory) or not descriptors:
        raise ConnectionError("a guest is told of its memory first")
    steps = Steps(opened(memory, descriptors[0]), memory.device)
    while True:
        order = ORDER.validate_json(receive_blocking(connection))
        report = steps.take(order)
        if os.getpid() != process:
            os._exit(0)  # a fork that foreign code made has no say here
        connection.sendall(frame(report.model_dump_json().encode()))
