"""The language object of C++ for the host's CPU."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.tools.candidates.arithmetic import ContractError
from kernelwright.tools.candidates.kernel_source import KernelSource, complete_settings
from kernelwright.tools.languages.base.c_source import (
    EXPORT_CACHE,
    check_includes,
    exported,
    listed,
    read_c_source,
    with_macros,
)
from kernelwright.tools.languages.base.compilers import Compiler, CompileRefusedError
from kernelwright.tools.languages.base.language import (
    CodeLine,
    Compiled,
    CompileJob,
    ExportParts,
    LanguageSpec,
)
from kernelwright.tools.languages.cpp.compile import (
    PRELUDE,
    compile_cpp,
    cpp_flags,
    cpp_identity,
    vector_evidence,
    vector_report,
)
from kernelwright.tools.languages.cpp.sanitizers import build_sanitized
from kernelwright.tools.types import Candidate, Evidence, Rank, Setting

if TYPE_CHECKING:
    import torch

    from kernelwright.tools.candidates.run.arguments import Launcher

_INSPECT_S = 60.0
_INCLUDES = frozenset(
    {
        PRELUDE.name,
        "algorithm",
        "array",
        "bit",
        "cfloat",
        "climits",
        "cmath",
        "cstddef",
        "cstdint",
        "cstring",
        "float.h",
        "immintrin.h",
        "limits",
        "limits.h",
        "math.h",
        "numeric",
        "omp.h",
        "stddef.h",
        "stdint.h",
        "string.h",
        "type_traits",
        "utility",
    }
)
_IMPORTS = (
    "contextlib", "ctypes", "hashlib", "os", "platform", "shutil", "subprocess", "tempfile",
)  # fmt: skip
_PROBE = """extern "C" void probe(const float* x, float* y, int n) {
    for (int i = 0; i < n; ++i) y[i] = x[i] * 2.0f + 1.0f;
}
"""
_PROBE_PLAN = """def forward(x):
    y = empty_like(x)
    launch("probe", args=(x, y, x.numel()))
    return y
"""
_LOADER = '''COMPILE_FLAGS = {compile_flags}
LINK_FLAGS = {link_flags}


def load(index: int) -> SimpleNamespace:
    """Build the kernels, or find them built, and load them; the index of a CPU is -1."""
    return load_kernels(build_library(KERNEL, HEADER, COMPILE_FLAGS, LINK_FLAGS), SIGNATURES)
'''


class CppLanguage:
    """C++20 as g++ compiles it for the processor at hand."""

    spec = LanguageSpec(
        name="cpp",
        title="C++",
        device="cpu",
        has_grid=False,
        suffixes=(".cpp", ".cc"),
        fences=("cpp", "c++", "cc", "cxx", "c"),
        lexer="cpp",
        web_lexer="cpp",
        prelude=PRELUDE,
        includes=_INCLUDES,
        alignment_bytes=64,
        plain_words=frozenset({"half"}),
        has_sanitizers=True,
        probe=_PROBE,
        probe_plan=_PROBE_PLAN,
    )

    def parse(self, kernel: str) -> KernelSource:
        """Read the `extern "C" void` functions."""
        return read_c_source(kernel, self.spec.name, qualifier="", has_grid=False)

    def check(self, kernel: str) -> None:
        """Keep files, sockets and processes out of reach by name.

        The check of the built object's symbols is the stronger barrier behind it.
        """
        check_includes(kernel, self.spec.includes)

    def with_settings(self, kernel: str, settings: Sequence[Setting]) -> str:
        """Tunables as macros."""
        return with_macros(kernel, settings)

    def identity(self, architecture: str | None) -> tuple[str, ...]:
        """Compiler, flags, processor, OpenMP runtime and headers."""
        return (cpp_identity(),)

    def compile(self, compiler: Compiler, job: CompileJob) -> Compiled:
        """Compile to a shared object."""
        return compile_cpp(compiler, job)

    def load(
        self, source: KernelSource, artifact: Path, device: "torch.device"
    ) -> "Mapping[str, Launcher]":
        """Load the shared object."""
        from kernelwright.tools.languages.cpp.loading import load_cpp

        return load_cpp(source, artifact)

    async def inspect(self, candidate: Candidate, architecture: str | None) -> tuple[Evidence, ...]:
        """Read the compiler's vectorisation report; costs a compile."""
        try:
            self.check(candidate.kernel)
            report = await vector_report(self._text(candidate), timeout_s=_INSPECT_S)
        except (ContractError, CompileRefusedError) as error:
            words = f"the compiler says nothing of its loops: {error}"
            unread = Evidence(name="code", rank=Rank.UNAVAILABLE, value=None, unit="", source=words)
            return (unread,)
        return vector_evidence(report)

    async def listing(
        self, candidate: Candidate, architecture: str | None
    ) -> tuple[CodeLine, ...] | str:
        """There is none: the compiler's own report says what became of the loops."""
        return "machine code of C++ is not listed; the readings say which loops were vectorised"

    async def build_sanitized(
        self, candidate: Candidate, folder: Path, *, timeout_s: float
    ) -> Path | str:
        """Build with the compiler's own sanitizers."""
        source = self.parse(candidate.kernel)
        return await build_sanitized(source, self._text(candidate), folder, timeout_s=timeout_s)

    def export(self, architecture: str | None) -> ExportParts:
        """Compile at first use with the host's compiler, with the flags of what was judged."""
        here = Path(__file__).parent
        compile_flags, link_flags = cpp_flags()
        return ExportParts(
            imports=_IMPORTS,
            launcher=exported(EXPORT_CACHE, here / "launcher.py"),
            loader=_LOADER.format(
                compile_flags=listed(compile_flags), link_flags=listed(link_flags)
            ),
            needs="a C++ compiler",
            compiled_by="the host's C++ compiler",
            not_verified=(
                "Other compilers and processors: the kernel is compiled where it runs, with "
                "`-march=native`.",
            ),
        )

    def _text(self, candidate: Candidate) -> str:
        settings = complete_settings(self.parse(candidate.kernel), candidate.settings)
        return self.with_settings(candidate.kernel, settings)


CPP = CppLanguage()
