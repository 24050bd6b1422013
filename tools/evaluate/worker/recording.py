"""Records the launches of one call of a C++ candidate, so that another program can make them again.

Of each launch: which function, every storage that its tensors lie in as it was just before, and
the arguments. Integers of eight bytes throughout, as `tools.languages.cpp.sanitizers` reads them.
"""

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import torch

from kernelwright.tools.candidates.source import KernelFunction
from kernelwright.tools.evaluate.messages import LAUNCHES, LaunchesRecorded, RecordRequest
from kernelwright.tools.evaluate.verify.bench import Draw
from kernelwright.tools.evaluate.verify.failures import rejection
from kernelwright.tools.evaluate.worker.station import Station
from kernelwright.tools.languages.loading import load_candidate

_MOST_BYTES = 512 * 2**20
_SIGNED_MAX = 2**63


class _TooMuchError(Exception):
    """The launches hold more than a file of theirs may."""


def recorded(station: Station, request: RecordRequest) -> LaunchesRecorded:
    """Write one call's launches on the task's own inputs down, or say why that cannot be."""
    bench = station.bench
    try:
        arguments = bench.draw(Draw("task", request.seed))
        weights = {name: value.clone() for name, value in bench.reference.weights().items()}
        runner = load_candidate(request.candidate, request.built, bench.device)
        runner.prepare(weights)
        with Path(LAUNCHES).open("wb") as file:
            recorder = _Recorder(file, runner.source.functions)
            runner.observe(recorder.around)
            runner(arguments, weights)
            recorder.finish()
    except _TooMuchError:
        return LaunchesRecorded(problem=f"its launches hold more than {_MOST_BYTES >> 20} MiB")
    except Exception as error:
        return LaunchesRecorded(problem=rejection(error).reason)
    return LaunchesRecorded()


class _Recorder:
    """Stands around every launch of a plan; the number of them is put in front at the end."""

    def __init__(self, file: BinaryIO, functions: Sequence[KernelFunction]) -> None:
        self._file = file
        self._functions = {item.name: (place, item) for place, item in enumerate(functions)}
        self._launches = 0
        self._word(0)

    def around(self, name: str, call: Callable[..., object]) -> Callable[..., object]:
        """The launch, written down before it is made; library operators are left alone."""
        if name not in self._functions:
            return call
        place, function = self._functions[name]

        def launch(values: Sequence[object], *more: object, **named: object) -> object:
            self._note(place, function, values)
            return call(values, *more, **named)

        return launch

    def finish(self) -> None:
        """Everything was launched."""
        self._file.seek(0)
        self._word(self._launches)

    def _note(self, place: int, function: KernelFunction, values: Sequence[object]) -> None:
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        storages = {item.untyped_storage().data_ptr(): item for item in tensors}
        self._word(place)
        self._word(len(storages))
        for start, tensor in storages.items():
            self._buffer(start, tensor.untyped_storage().nbytes())
        numbers = {start: number for number, start in enumerate(storages)}
        for parameter, value in zip(function.parameters, values, strict=True):
            real = parameter.scalar is not None and not parameter.scalar.is_integer
            self._file.write(_argument(value, numbers, real=real))
        self._launches += 1

    def _buffer(self, start: int, size: int) -> None:
        if self._file.tell() + size > _MOST_BYTES:
            raise _TooMuchError
        self._word(size)
        self._file.write(ctypes.string_at(start, size) if size else b"")

    def _word(self, value: int) -> None:
        self._file.write(struct.pack("q", value))


def _argument(value: object, numbers: Mapping[int, int], *, real: bool) -> bytes:
    """A buffer and the place in it, or a number's bits."""
    if isinstance(value, torch.Tensor):
        start = value.untyped_storage().data_ptr()
        return struct.pack("qq", numbers[start], value.data_ptr() - start)
    if not isinstance(value, int | float):
        raise TypeError(f"a launch with an argument of type {type(value).__name__}")
    if real:
        return struct.pack("dq", value, 0)
    return struct.pack("Qq" if value >= _SIGNED_MAX else "qq", int(value), 0)
