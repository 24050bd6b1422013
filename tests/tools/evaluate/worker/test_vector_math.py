"""MKL's functions are resolved by one thread, in every process where references or guests run."""

import socket

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.tools.evaluate.foreign.guest import steps as guest
from kernelwright.tools.evaluate.process_setup import FUNCTIONS
from kernelwright.tools.evaluate.worker import request_handler as worker


class _Single(TorchDispatchMode):
    """Notes which functions were called with one element, of which type, before any other."""

    def __init__(self) -> None:
        super().__init__()
        self.resolved: set[tuple[str, torch.dtype]] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        if name in FUNCTIONS:
            assert args[0].numel() == 1, "several threads may share a longer one"
            self.resolved.add((name, args[0].dtype))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("process", [worker, guest], ids=["worker", "guest"])
def test_a_process_resolves_them_before_it_hears_a_first_order(process):
    mine, theirs = socket.socketpair()
    mine.shutdown(socket.SHUT_WR)  # there is no order
    with mine, theirs, _Single() as calls, pytest.raises((EOFError, ConnectionError)):
        process.serve(theirs)
    floats = torch.float32, torch.float64
    assert calls.resolved == {(name, dtype) for name in FUNCTIONS for dtype in floats}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_each_is_a_function_of_torchs_that_this_input_is_in_the_domain_of(name):
    assert torch.isfinite(getattr(torch, name)(torch.full((1,), 0.5))).all()
