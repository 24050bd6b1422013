"""C++ through the host's compiler: a shared object with a C interface, and its vectorised loops.

The object is linked against the OpenMP runtime that torch itself loads. Two runtimes in one
process would each keep a pool of spinning threads, and every timing would be of their quarrel.

To tell which loops were vectorised and what the assembly computes with, the kernel is compiled once
more with the compiler's own report switched on (GCC's `-fopt-info-vec`), without linking: what is
judged is never built with other flags. The report names lines, the assembly names registers. Only
for the few candidates that somebody looks at: it costs a compile. Not covered: clang's reports.
"""

import asyncio
import hashlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
import threading
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from kernelwright.tools.languages.base.c_source import INCLUDE, headers_digest
from kernelwright.tools.languages.base.compile import cache_folder, cache_key, work_folder
from kernelwright.tools.languages.base.compilers import Answer, Compiler, CompileRefusedError, pool
from kernelwright.tools.languages.base.language import Compiled, CompileJob
from kernelwright.tools.languages.cpp import restrictions
from kernelwright.tools.types import CompileReport, EnvironmentLacksError, Evidence, Rank, Value

PRELUDE = INCLUDE / "kernelwright.hpp"
_PRELUDE_TIMEOUT_S = 120.0
# One at a time: the threads of a first round would all do the same second's work.
_precompiling = threading.Lock()
_CODE_WORDS = (
    "-O3 -march=native -std=c++20 -fopenmp -fPIC -fno-semantic-interposition -fno-exceptions "
    "-fno-rtti -fno-threadsafe-statics -fno-stack-protector -fno-asynchronous-unwind-tables "
    # errno and floating-point traps cost vectorisation and nobody can observe them here. What
    # changes results (reassociation, no infinities) is the kernel's own choice, by pragma.
    "-fno-math-errno -fno-trapping-math -ffp-contract=fast -Wno-unknown-pragmas "
    # The tunables' macros shift the text; g++ would quote the wrong line beside the right number.
    "-fno-diagnostics-show-caret"
)
# Without the start files, the only code that runs when the object is loaded would be the kernel's.
_LINK_WORDS = "-shared -nostartfiles -Wl,-z,now -Wl,--as-needed"
# Where there are 512 bits g++ takes 256 by itself, which was up to a quarter slower on the one such
# processor that was tried (benchmarks/results/cpu/examples.md). Compilers for other families do
# not know the flag.
_WIDE = ["-mprefer-vector-width=512"] if platform.machine() == "x86_64" else []
_CODE, _LINK = [*_CODE_WORDS.split(), *_WIDE], _LINK_WORDS.split()
_ERROR = re.compile(r"^.*(?:\berror|undefined reference)\b.*$", re.MULTILINE)
_NO_COMPILER = "there is no C++ compiler ({name} was not found); apt-get install g++"


def compile_cpp(compiler: Compiler, job: CompileJob) -> Compiled:
    """Compile to a shared object.

    Raises:
        CompileRefusedError: When the compiler, or the check of what it built, refuses the source.
        EnvironmentLacksError: When there is no compiler.
    """
    command, folder = cpp_compiler(), job.folder
    text, assembly, output = (folder / f"kernel.{end}" for end in ("cpp", "s", "so"))
    text.write_text(job.source, encoding="utf-8")
    generate = [*assembly_command(compiler), text.name, "-o", assembly.name]
    link = [*command, *_LINK, assembly.name, "-o", output.name, *openmp_library(), "-lm"]
    answer = compiler.run([generate, link], folder, job.timeout_s)
    if not answer.ok:
        raise CompileRefusedError(_message(answer), answer.log)
    if job.contract:
        restrictions.check_built(job.source, assembly, output)
    assembly.unlink()
    reports = tuple(CompileReport(kernel=name) for name in job.functions)
    return Compiled(artifact=output, log=answer.log, reports=reports)


def assembly_command(compiler: Compiler) -> list[str]:
    """The command that makes assembly of a kernel, but for its files.

    Raises:
        EnvironmentLacksError: When there is no compiler.
    """
    command = cpp_compiler()
    prelude = _precompiled(compiler, command)
    folders = [f"-I{folder}" for folder in (prelude, INCLUDE) if folder is not None]
    return [*command, *_CODE, *folders, "-S"]


def _precompiled(compiler: Compiler, command: Sequence[str]) -> Path | None:
    """A folder with the prelude compiled, to put first on the include path; None where it fails.

    Reading the standard headers is most of what a small kernel costs: with them precompiled, a
    compile takes a tenth of the time. A compiler that cannot use the result ignores it.
    """
    folder = cache_folder() / f"prelude-{cache_key(cpp_identity())[:32]}"
    with _precompiling:
        if not folder.is_dir() and not _precompile(compiler, command, folder):
            return None
    return folder


def _precompile(compiler: Compiler, command: Sequence[str], folder: Path) -> bool:
    with work_folder() as made:
        output = made / f"{PRELUDE.name}.gch"
        full = [*command, *_CODE, "-w", "-x", "c++-header", str(PRELUDE), "-o", str(output)]
        try:
            if not compiler.run([full], made, _PRELUDE_TIMEOUT_S).ok:
                return False
        except CompileRefusedError:
            return False
        try:
            made.rename(folder)
        except OSError:
            # Another process was faster; a folder that is neither is removed for the next try.
            if not (folder / output.name).is_file():
                shutil.rmtree(folder, ignore_errors=True)
                return False
    return True


def cpp_compiler() -> list[str]:
    """The compiler's command: `CXX` when set, else g++.

    Raises:
        EnvironmentLacksError: When it is not there.
    """
    command = shlex.split(os.environ.get("CXX", "")) or ["g++"]
    found = shutil.which(command[0])
    if found is None:
        raise EnvironmentLacksError(_NO_COMPILER.format(name=command[0]))
    return [found, *command[1:]]


@cache
def openmp_library() -> tuple[str, ...]:
    """How to link against the OpenMP runtime that `import torch` loads, without importing it."""
    spec = importlib.util.find_spec("torch")
    if spec is not None and spec.origin is not None:
        package = Path(spec.origin).parent
        for folder in (package / "lib", package.parent / "torch.libs"):
            for library in sorted(folder.glob("libgomp*.so*")):
                return (str(library),)
    # A torch built on this machine uses the system's runtime, which has the same name.
    return ("-lgomp",)


def cpp_flags() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the compiler and the linker are told, so that an export can tell them the same."""
    return tuple(_CODE), tuple(_LINK)


def cpp_identity() -> str:
    """What decides the object besides the source: compiler, flags, processor, runtime, headers.

    And what it was held against: what passed another check may not pass this one.
    """
    command = cpp_compiler()
    binary = Path(command[0]).resolve()
    stat = binary.stat()
    which = f"{binary} {stat.st_size} {stat.st_mtime_ns} {command[1:]}"
    flags = " ".join((*_CODE, *_LINK, *openmp_library()))
    return "\n".join((which, flags, _processor(), headers_digest(), _check_digest()))


@cache
def _check_digest() -> str:
    return hashlib.sha256(Path(restrictions.__file__).read_bytes()).hexdigest()


@cache
def _processor() -> str:
    """What -march=native means here; a shared home folder serves different machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return os.uname().machine
    wanted = ("model name", "flags", "Features", "CPU part")
    shown = dict.fromkeys(line for line in lines if line.startswith(wanted))
    return hashlib.sha256("\n".join(shown).encode()).hexdigest()


def _message(answer: Answer) -> str:
    first = _ERROR.search(answer.log)
    return first.group().strip() if first else (answer.log.strip() or "the compiler said nothing")


_FLAGS = ("-fopt-info-vec-optimized", "-fopt-info-vec-missed")
_VECTORISED = re.compile(
    r":(?P<line>\d+):\d+: optimized:\s+loop vectorized using (?P<bytes>\d+) byte vectors"
)
_MISSED = re.compile(r":(?P<line>\d+):\d+: missed:\s+couldn't vectorize loop")
_BECAUSE = re.compile(r":\d+:\d+: missed:\s+not vectorized: (?P<why>.+)")
_ARITHMETIC = r"^\s+v?(?:add|sub|mul|div|fn?m(?:add|sub)\d+|sqrt|max|min)"
_PACKED = re.compile(_ARITHMETIC + r"p[sd]\s", re.MULTILINE)
_SCALAR = re.compile(_ARITHMETIC + r"s[sd]\s", re.MULTILINE)


class VectorReport(Value):
    """What became of the loops of a kernel's source, and of its floating-point instructions.

    `widest_bits` is of the vectors that the compiler chose, 0 where it vectorised nothing.
    `missed` counts loops that stayed scalar although the vectoriser looked at them.
    """

    vectorised: int
    missed: int
    widest_bits: int
    packed_instructions: int
    scalar_instructions: int
    reasons: tuple[str, ...] = ()

    @property
    def packed_share(self) -> float | None:
        """Share of floating-point instructions that work on vectors; None where there are none."""
        total = self.packed_instructions + self.scalar_instructions
        return self.packed_instructions / total if total else None


def read_vectors(report: str, assembly: str) -> VectorReport:
    """Read the compiler's report and its assembly (x86-64, AT&T syntax).

    A line that was vectorised in one copy of its loop and missed in another (the rest after the
    last full vector) counts as vectorised.
    """
    widths = {int(m["line"]): int(m["bytes"]) for m in _VECTORISED.finditer(report)}
    missed = {int(m["line"]) for m in _MISSED.finditer(report)} - set(widths)
    reasons = dict.fromkeys(m["why"].strip() for m in _BECAUSE.finditer(report))
    return VectorReport(
        vectorised=len(widths),
        missed=len(missed),
        widest_bits=8 * max(widths.values(), default=0),
        packed_instructions=len(_PACKED.findall(assembly)),
        scalar_instructions=len(_SCALAR.findall(assembly)),
        reasons=tuple(reasons)[:3] if missed else (),
    )


async def vector_report(text: str, *, timeout_s: float) -> VectorReport:
    """Compile a kernel, its tunables set, once more, with the vectoriser's report on.

    Raises:
        CompileRefusedError: When the compiler refuses, or has no such report.
        EnvironmentLacksError: When this machine has no C++ compiler.
    """
    ticket = pool().submit(lambda compiler: _compiled(compiler, text, timeout_s))
    try:
        return await asyncio.wrap_future(ticket.future)
    except asyncio.CancelledError:
        ticket.cancel()
        raise


def _compiled(compiler: Compiler, text: str, timeout_s: float) -> VectorReport:
    with work_folder() as folder:
        (folder / "kernel.cpp").write_text(text, encoding="utf-8")
        command = [*assembly_command(compiler), *_FLAGS, "kernel.cpp", "-o", "kernel.s"]
        answer = compiler.run([command], folder, timeout_s)
        if not answer.ok:
            raise CompileRefusedError("the compiler has no such report", answer.log)
        assembly = (folder / "kernel.s").read_text(encoding="utf-8")
    return read_vectors(answer.log, assembly)


def vector_evidence(found: VectorReport) -> tuple[Evidence, ...]:
    """The report as static readings."""
    source = "the compiler's vectorisation report"
    why = f": {'; '.join(found.reasons)}" if found.reasons else ""
    readings = [
        _static("vectorised_loops", found.vectorised, "loops", source),
        _static("missed_loops", found.missed, "loops", f"{source}{why}"),
        _static("vector_bits", found.widest_bits, "bits", source),
    ]
    if found.packed_share is not None:
        words = "floating-point instructions of the assembly that work on vectors"
        readings.append(_static("packed_share", found.packed_share, "", words))
    return tuple(readings)


def _static(name: str, value: float, unit: str, source: str) -> Evidence:
    return Evidence(name=name, rank=Rank.STATIC, value=value, unit=unit, source=source)
