"""The ways PyTorch itself does a task, as calls that can be timed beside a candidate.

`eager`; `compile`, torch.compile as it comes; on a GPU also `graph`, eager replayed as a CUDA
graph, and `max-autotune`. One that cannot be made is a fact about the module, not an error.
"""

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

from kernelwright.tools.candidates.run.arguments import without_gradients
from kernelwright.tools.evaluate.timing.harness import Harness, Timed
from kernelwright.tools.evaluate.verify.reference_runtime import Guard, ReferenceRuntime
from kernelwright.tools.evaluate.verify.truth import Argument

MODES = {"compile": None, "max-autotune": "max-autotune-no-cudagraphs"}
_LONGEST_MESSAGE = 400


class BaselineFailedError(Exception):
    """Why PyTorch cannot do the task in this way."""


def compiled(runtime: ReferenceRuntime, name: str) -> Timed:
    """torch.compile's forward, which compiles when it is first called; `name` is of `MODES`."""
    keep_to_oneself()
    forward = torch.compile(runtime.reference.module, mode=MODES[name])

    return partial(without_gradients, forward)


def keep_to_oneself() -> None:
    """Let torch.compile leave out what is of no use to a process with a folder of its own.

    Kernels that are found ready would look for their best setting, and write it, where the process
    that made them had its folder, which nobody else can write; so every process chooses itself. And
    on a CPU a precompiled header costs more than the one kernel that it is for.
    """
    from torch._inductor import config

    for name in ("autotune_local_cache", "cpp_cache_precompile_headers"):
        if hasattr(config, name):
            setattr(config, name, False)


def forget_compiled() -> None:
    """Let the next compilation find nothing ready, in memory or in a folder."""
    torch._dynamo.reset()
    for variable in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        if used := os.environ.get(variable):
            os.environ[variable] = tempfile.mkdtemp(prefix=Path(used).name, dir=Path(used).parent)


class BaselineCalls:
    """Makes each baseline once and keeps it; a failure is remembered as well."""

    def __init__(self, runtime: ReferenceRuntime, harness: Harness, guard: Guard) -> None:
        self._runtime = runtime
        self._harness = harness
        self._guard = guard
        self._made: dict[str, Timed | BaselineFailedError] = {}
        self.setup_s: dict[str, float] = {}

    def get(self, name: str) -> Timed:
        """The call of that name, having run at least once.

        Raises:
            BaselineFailedError: it cannot be made; always again with the same words.
            ValueError: there is no such baseline.
        """
        if name not in self._made:
            start = time.perf_counter()
            self._made[name] = self._make(name)
            if name in MODES and isinstance(self._made[name], BaselineFailedError):
                # What another process compiled may not run here, which is no fault of the module's.
                forget_compiled()
                self._made[name] = self._make(name)
            self.setup_s[name] = time.perf_counter() - start
        made = self._made[name]
        if isinstance(made, BaselineFailedError):
            raise made
        return made

    def _make(self, name: str) -> Timed | BaselineFailedError:
        makers: dict[str, Callable[[], Timed]] = {
            "eager": self._eager,
            **{mode: partial(compiled, self._runtime, mode) for mode in MODES},
            "graph": self._graphed,
        }
        if name not in makers:
            raise ValueError(f"unknown baseline {name!r}; known are {', '.join(makers)}")
        try:
            call = makers[name]()
            call(self._harness.sets[0])
        except Exception as error:  # torch.compile raises nearly every class there is
            words = " ".join(str(error).split())[:_LONGEST_MESSAGE]
            return BaselineFailedError(f"{type(error).__name__}: {words}")
        return call

    def _eager(self) -> Timed:
        module = self._runtime.reference.module
        guard = self._guard

        def first(arguments: Sequence[Argument]) -> object:
            with guard(), torch.no_grad():
                return module(*arguments)

        first(self._harness.sets[0])

        return partial(without_gradients, module)

    def _graphed(self) -> Timed:
        call = self._harness.as_graph(self.get("eager"))
        if call is None:
            raise BaselineFailedError("the forward cannot be captured in a CUDA graph")
        return call
