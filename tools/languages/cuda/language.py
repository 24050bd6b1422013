"""The language object of CUDA C++ for NVIDIA GPUs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.tools.candidates.kernel_source import KernelSource
from kernelwright.tools.languages.base.c_source import (
    EXPORT_CACHE,
    INCLUDE,
    check_includes,
    exported,
    read_c_source,
    with_macros,
)
from kernelwright.tools.languages.base.compile import compile_in
from kernelwright.tools.languages.base.compilers import CompileFailure, Compiler
from kernelwright.tools.languages.base.language import (
    CodeLine,
    Compiled,
    CompileJob,
    ExportParts,
    LanguageSpec,
)
from kernelwright.tools.languages.cuda.compile import compile_cuda, cuda_identity, named
from kernelwright.tools.languages.cuda.inspection import cubin_evidence, unread
from kernelwright.tools.languages.cuda.listing import listed
from kernelwright.tools.types import Candidate, Evidence, Setting

if TYPE_CHECKING:
    import torch

    from kernelwright.tools.candidates.run.arguments import Launcher

_INSPECT_S = 60.0
_IMPORTS = (
    "contextlib", "ctypes", "hashlib", "importlib.metadata", "os", "struct", "tempfile",
)  # fmt: skip
_PRELUDE = INCLUDE / "kernelwright.cuh"
_TENSOR_CORES = INCLUDE / "kernelwright_mma.cuh"
_INCLUDES = frozenset(
    {
        _PRELUDE.name,
        _TENSOR_CORES.name,
        "cooperative_groups.h",
        "cooperative_groups/memcpy_async.h",
        "cooperative_groups/reduce.h",
        "cuda/atomic",
        "cuda/barrier",
        "cuda/pipeline",
        "cuda/ptx",
        "cuda/std/cstdint",
        "cuda/std/limits",
        "cuda_bf16.h",
        "cuda_fp16.h",
        "cuda_fp8.h",
        "cuda_pipeline.h",
        "cuda_pipeline_primitives.h",
        "math_constants.h",
    }
)
_PROBE = """extern "C" __global__ void probe(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * 2.0f + 1.0f;
}
"""
_PROBE_PLAN = """def forward(x):
    y = empty_like(x)
    launch("probe", grid=x.numel() // 256, block=256, args=(x, y, x.numel()))
    return y
"""
_LOADER = '''ARCHITECTURE = {architecture!r}


def load(index: int) -> SimpleNamespace:
    """The kernels, compiled or kept from before, on a GPU of the architecture they fit."""
    found = "sm_%d%d" % torch.cuda.get_device_capability(index)
    if found != ARCHITECTURE.rstrip("af"):
        words = f"the kernels were verified on {{ARCHITECTURE}}, this is {{found}}"
        raise KernelUnavailableError(words)
    return load_kernels(cubin_of(KERNEL, HEADER, ARCHITECTURE), SIGNATURES, index)
'''


class CudaLanguage:
    """CUDA C++17 as NVRTC compiles it, inline PTX included."""

    spec = LanguageSpec(
        name="cuda",
        title="CUDA",
        device="cuda",
        has_grid=True,
        suffixes=(".cu",),
        fences=("cuda", "cu", "cuh"),
        marks=("__global__",),
        lexer="cuda",
        web_lexer="cpp",
        prelude=_PRELUDE,
        includes=_INCLUDES,
        further=(_TENSOR_CORES,),
        alignment_bytes=256,
        probe=_PROBE,
        probe_plan=_PROBE_PLAN,
    )

    def parse(self, kernel: str) -> KernelSource:
        """Read the `extern "C" __global__ void` functions."""
        return read_c_source(kernel, self.spec.name, qualifier="__global__", has_grid=True)

    def check(self, kernel: str) -> None:
        """Keep compiles short, and the compiler from quoting files of the host in its messages."""
        check_includes(kernel, self.spec.includes)

    def with_settings(self, kernel: str, settings: Sequence[Setting]) -> str:
        """Tunables as macros."""
        return with_macros(kernel, settings)

    def identity(self, architecture: str | None) -> tuple[str, ...]:
        """Architecture, versions of NVRTC and its headers, our options and prelude."""
        return named(architecture), cuda_identity()

    def compile(self, compiler: Compiler, job: CompileJob) -> Compiled:
        """Compile to a cubin; needs no GPU."""
        return compile_cuda(compiler, job)

    def load(
        self, source: KernelSource, artifact: Path, device: "torch.device"
    ) -> "Mapping[str, Launcher]":
        """Load the cubin into torch's context."""
        from kernelwright.tools.languages.cuda.loading import load_cuda

        return load_cuda(source, artifact, device)

    async def inspect(self, candidate: Candidate, architecture: str | None) -> tuple[Evidence, ...]:
        """Read the SASS; compiles where no earlier compile is at hand."""
        built = await compile_in(self, candidate, architecture=architecture, timeout_s=_INSPECT_S)
        if isinstance(built, CompileFailure):
            return (unread(f"it does not compile here: {built.message}"),)
        return await cubin_evidence(built.artifact)

    async def listing(
        self, candidate: Candidate, architecture: str | None
    ) -> tuple[CodeLine, ...] | str:
        """The SASS, with the kernel's lines; compiles where no earlier compile is at hand."""
        built = await compile_in(self, candidate, architecture=architecture, timeout_s=_INSPECT_S)
        if isinstance(built, CompileFailure):
            return f"it does not compile here: {built.message}"
        return await listed(built.artifact)

    async def build_sanitized(
        self, candidate: Candidate, folder: Path, *, timeout_s: float
    ) -> Path | str:
        """There is none: compute-sanitizer watches a whole worker instead."""
        return "CUDA kernels have no program of their own"

    def export(self, architecture: str | None) -> ExportParts:
        """Compile at first use with NVRTC, for the architecture that was verified."""
        here = Path(__file__).parent
        return ExportParts(
            imports=_IMPORTS,
            launcher=exported(EXPORT_CACHE, here / "cubins.py", here / "launcher.py"),
            loader=_LOADER.format(architecture=architecture),
            needs="cuda-core with NVRTC (pip install cuda-core nvidia-cuda-nvrtc)",
            compiled_by="NVRTC through cuda-core: the same as load_inline, without a host compiler",
            not_verified=(
                f"Other GPUs of architecture {architecture}: results should agree, times will not. "
                "On another\n  architecture `module.py` runs the reference.",
            ),
        )


CUDA = CudaLanguage()
