"""Plays the CUDA kernels of a whole candidate on the CPU, in the emulator of the tests.

The plan is carried out by the project's own PlanRunner; only the object it loads is a shared
library that g++ makes of the same kernel text. Not played: what tests/tools/codegen/cuda/emulator
says (timing, limits of memory, warps that diverge at a shuffle).
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from kernelwright.tools.candidates import KernelSource
from kernelwright.tools.candidates.kernel_source import KernelFunction
from kernelwright.tools.candidates.run import PlanRunner
from kernelwright.tools.candidates.run.arguments import Converters, Extent
from kernelwright.tools.languages import INCLUDE, parse_kernel
from kernelwright.tools.languages.base.c_source import with_macros
from kernelwright.tools.types import Candidate

EMULATOR = Path(__file__).parents[1] / "tests" / "tools" / "codegen" / "cuda" / "emulator"
_KERNEL = re.compile(r'extern "C" __global__ void __launch_bounds__\(.*\)\s*(\w+)\(([^)]*)\) \{')
_FLAGS = ("-std=c++20", "-O0", "-fPIC", "-w", "-pthread", "-fno-strict-aliasing")
_FLAGS += ("-fvisibility=hidden",)


class Emulated:
    """Kernels of several candidates in one library; their functions must not share names."""

    def __init__(self, candidates: Sequence[Candidate], folder: Path) -> None:
        self._library = ctypes.CDLL(str(_compiled(candidates, folder)))

    def runner(self, candidate: Candidate) -> PlanRunner:
        """What carries the candidate's plan out on the CPU."""
        source = parse_kernel(candidate.kernel, "cuda")
        return PlanRunner(candidate, source, self._load, "cpu")

    def _load(self, source: KernelSource, device: torch.device) -> Mapping[str, _Function]:
        return {item.name: _Function(self._library, item) for item in source.functions}


class _Function:
    """One kernel; every parameter of the playbook's is a pointer."""

    def __init__(self, library: ctypes.CDLL, function: KernelFunction) -> None:
        self._call = library[f"run_{function.name}"]
        self._convert = Converters(function, torch.device("cpu"))

    def __call__(
        self,
        arguments: Sequence[object],
        grid: Extent = 1,
        block: Extent = 1,
        shared: int = 0,
        cluster: Extent = 1,
    ) -> None:
        values = [int(value) for value in self._convert(arguments)]
        self._call(grid, block, cluster, shared, (ctypes.c_void_p * len(values))(*values))


def prelude(folder: Path) -> None:
    """Compile the headers once for all libraries of a folder."""
    text = '#include "emulator.hpp"\n#include "kernelwright.cuh"\n'
    (folder / "prelude.hpp").write_text(text, encoding="utf-8")
    _compiler(["-x", "c++-header", str(folder / "prelude.hpp")], folder / "prelude.hpp.gch")


def _compiled(candidates: Sequence[Candidate], folder: Path) -> Path:
    parts = ['#include "prelude.hpp"']
    for candidate in candidates:
        text = with_macros(candidate.kernel, candidate.settings)
        parts.append(text.replace('#include "kernelwright.cuh"', ""))
        parts += [_entry(name, given) for name, given in _KERNEL.findall(candidate.kernel)]
    source = folder / f"{candidates[0].id}.cpp"
    source.write_text("\n".join(parts), encoding="utf-8")
    _compiler(["-shared", "-I", str(folder), str(source)], source.with_suffix(".so"))
    return source.with_suffix(".so")


def _entry(name: str, parameters: str) -> str:
    types = [p.rsplit(" ", 1)[0].replace("__restrict__", "") for p in parameters.split(",")]
    args = ", ".join(f"({kind})a[{at}]" for at, kind in enumerate(types))
    return (
        f'extern "C" __attribute__((visibility("default"))) void run_{name}(unsigned grid, '
        f"unsigned block, unsigned cluster, unsigned shared, void** a) "
        f"{{ emulator::launch(grid, block, cluster, shared, [=] {{ {name}({args}); }}); }}"
    )


def _compiler(words: Sequence[str], output: Path) -> None:
    includes = ["-I", str(EMULATOR), "-I", str(INCLUDE)]
    command = ["g++", *_FLAGS, *includes, *words, "-o", str(output)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the emulator's compiler refused: {done.stderr[:3000]}")
