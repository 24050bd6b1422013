"""The ways PyTorch itself does a task, as calls that can be timed beside a candidate.

`eager`; `compile`, torch.compile as it comes; on a GPU also `graph` and `compile-graph`, these two
replayed as CUDA graphs (one a set of inputs, so that nothing is copied), and `max-autotune`; of a
product the vendor's library asked in other ways (`cublaslt`), where sums may be kept in fp16 eager
and that library with sums in float32 as well, and of eight bits eager with fast sums. One that
cannot be made is a fact about the module, not an error.
"""

from __future__ import annotations

import copy
import os
import shlex
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from kernelwright.tools.candidates.run.arguments import without_gradients
from kernelwright.tools.evaluate.rules import FAST, FAST_SUMS, FP16_SUMS, GRAPHS, LIBRARY, WIDER
from kernelwright.tools.evaluate.timing import cublaslt
from kernelwright.tools.evaluate.timing.harness import Harness, Timed
from kernelwright.tools.evaluate.verify.reference_runtime import Guard, ReferenceRuntime
from kernelwright.tools.evaluate.verify.truth import Argument
from kernelwright.tools.types import DType, Measurement

if TYPE_CHECKING:
    from torch._inductor.cpu_vec_isa import VecISA

MODES = {"compile": None, "max-autotune": "max-autotune-no-cudagraphs"}
_LONGEST_MESSAGE = 400
_AS_FAST = 1.03  # times the fastest making
# What tells torch.compile's functions of one file from those of another.
_NAMES_FILE = "_hash_containing_file"


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
    on a CPU a precompiled header costs more than the one kernel that it is for. What was dynamic in
    an earlier process is found by the user's file, which is read for that: where it may not be, it
    goes by its name, as it does where there is none.
    """
    from torch._dynamo import pgo
    from torch._inductor import config

    if hasattr(pgo, _NAMES_FILE):
        setattr(pgo, _NAMES_FILE, str)
    for name in ("autotune_local_cache", "cpp_cache_precompile_headers"):
        if hasattr(config, name):
            setattr(config, name, False)
    _ask_for_the_widest_vectors_only()


def _ask_for_the_widest_vectors_only() -> None:
    """Inductor compiles a program for each kind of vectors, then takes the first that works.

    The same choice without building the tests of those that are not looked at, and with a test that
    leaves ATen's headers out: what the processor has it says itself, and whether the compiler knows
    the instructions shows in a line. Seven seconds of a processor each.
    """
    from torch._inductor import config, cpu_vec_isa

    kinds = getattr(cpu_vec_isa, "supported_vec_isa_list", None)
    features = getattr(cpu_vec_isa, "x86_isa_checker", None)
    chosen_otherwise = os.getenv("ATEN_CPU_CAPABILITY") or config.cpp.simdlen is not None
    if not kinds or features is None or chosen_otherwise or not features():
        return

    @cache
    def widest() -> list[object]:
        has = features()
        able = (kind for kind in kinds if all(flag in has for flag in str(kind).split()))
        return list(islice(filter(bool, able), 1))

    cpu_vec_isa.valid_vec_isa_list = widest  # type: ignore[assignment]
    if hasattr(cpu_vec_isa.VecISA, "check_build"):
        cpu_vec_isa.VecISA.check_build = _known_to_the_compiler  # type: ignore[assignment,method-assign]


def _known_to_the_compiler(kind: VecISA, code: str) -> bool:
    """Whether it takes these vectors' options, and `code` where that includes nothing of ATen."""
    from torch._inductor.cpp_builder import get_cpp_compiler

    asked = "#include <immintrin.h>\n" if "ATen" in code else code
    command = [*shlex.split(get_cpp_compiler()), *kind.build_arch_flags().split()]
    try:
        done = subprocess.run(
            [*command, "-x", "c++", "-fsyntax-only", "-"],
            input=asked, text=True, capture_output=True, timeout=60, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def tune_again() -> list[object]:
    """Let the next compilation choose settings anew for kernels that lie ready.

    Returns:
        What was in use, which graphs that were captured of it still need.
    """
    from torch._inductor.codecache import PyCodeCache

    kept: list[object] = list(getattr(PyCodeCache, "modules", ()))
    torch._dynamo.reset()
    PyCodeCache.cache_clear()
    return kept


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
        self._used: list[object] = []
        self.setup_s: dict[str, float] = {}
        self.fastest: dict[str, Measurement] = {}  # of what was made more than once

    def get(self, name: str) -> Timed:
        """The call of that name, having run at least once.

        Raises:
            BaselineFailedError: it cannot be made; always again with the same words.
            ValueError: there is no such baseline.
        """
        if name not in self._made:
            start = made_from = time.perf_counter()
            self._made[name] = self._make(name)
            if name in MODES and isinstance(self._made[name], BaselineFailedError):
                # What another process compiled may not run here, which is no fault of the module's.
                forget_compiled()
                made_from = time.perf_counter()
                self._made[name] = self._make(name)
            if name in MODES and self._harness.on_gpu:
                first_s = time.perf_counter() - made_from
                self._made[name] = self._made_again(name, self._made[name], first_s)
            self.setup_s[name] = time.perf_counter() - start
        made = self._made[name]
        if isinstance(made, BaselineFailedError):
            raise made
        return made

    def _made_again(
        self, name: str, made: Timed | BaselineFailedError, first_s: float
    ) -> Timed | BaselineFailedError:
        """A compiler's choice of settings, drawn again until it is as fast as the fastest seen.

        What is called from then on is the last one, which need not be that one. Of a large module
        whose first making alone took `first_s`, longer than the rules allow for all further ones,
        it stays the only one: among so many kernels no single draw decides, and each would take as
        long again. A small one's first making may take as long, as compilers are imported in it and
        caches are empty; there a draw decides most.
        """
        rules, start = self._runtime.rules, time.monotonic()
        if first_s > rules.makings_s and self._is_large():
            return made
        taken: list[Measurement] = []
        while not isinstance(made, BaselineFailedError):
            taken.append(self._harness.measure(made, seconds=0.05, least=7, most=21))
            fastest_ms = min(item.median_ms for item in taken)
            enough = len(taken) > 2 and taken[-1].median_ms <= _AS_FAST * fastest_ms
            late = time.monotonic() - start > rules.makings_s
            if enough or late or len(taken) >= rules.makings:
                break
            self._used += tune_again()
            made = self._make(name)
        if taken:
            each = ", ".join(f"{item.median_ms:.4g}" for item in taken)
            best = min(taken, key=lambda item: item.median_ms)
            noted = best.conditions.noted(f"the fastest of {len(taken)} makings: {each} ms")
            self.fastest[name] = best.model_copy(update={"conditions": noted})
        return made

    def _is_large(self) -> bool:
        return len(self._runtime.task.graph.nodes) >= self._runtime.rules.drawn_once_nodes

    def _make(self, name: str) -> Timed | BaselineFailedError:
        makers: dict[str, Callable[[], Timed]] = {
            "eager": self._eager,
            **{mode: partial(compiled, self._runtime, mode) for mode in MODES},
            **{name: partial(self._graphed, of) for name, of in GRAPHS.items()},
            **{name: partial(self._library, name) for name in (*LIBRARY, WIDER[1])},
            WIDER[0]: partial(self._summed, FP16_SUMS, False),
            FAST: partial(self._summed, FAST_SUMS, True),
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

    def _summed(self, how: str, value: bool) -> Timed:
        """Eager with the library's sums kept otherwise, of a module that lets it be told."""
        module = copy.copy(self._runtime.reference.module)
        if getattr(module, how, value) is value:
            raise BaselineFailedError("the module does not say how its sums are kept")
        setattr(module, how, value)
        return self._eager(module)

    def _eager(self, module: torch.nn.Module | None = None) -> Timed:
        module = self._runtime.reference.module if module is None else module
        guard = self._guard

        def first(arguments: Sequence[Argument]) -> object:
            with guard(), torch.no_grad():
                return module(*arguments)

        first(self._harness.sets[0])

        return partial(without_gradients, module)

    def _library(self, name: str) -> Timed:
        """A call of cuBLASLt for a product, whose result was seen to be eager's."""
        graph = self._runtime.task.graph
        sums = DType.FLOAT32 if name in WIDER else graph.sums
        product = cublaslt.Product(graph, self._runtime.device, sums)
        if name == LIBRARY[0]:
            call = cublaslt.first_choice(product)
        else:
            call = cublaslt.fastest(product, self._harness.quick_ms)
        inputs = self._harness.sets[0]
        expected = self._runtime.own(inputs)
        if not cublaslt.is_alike(call(inputs), expected.outputs[0]):
            raise BaselineFailedError("what it computes is not the product")
        return call

    def _graphed(self, of: str) -> Timed:
        call = self._harness.as_graph(self.get(of))
        if call is None:
            raise BaselineFailedError(f"{of} cannot be captured in a CUDA graph")
        return call
