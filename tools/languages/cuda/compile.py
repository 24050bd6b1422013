"""CUDA through NVRTC: a cubin for a named architecture, on a machine with or without a GPU.

Host code, ptxas options of the candidate's choice and separate linking are not covered.
"""

import os
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from kernelwright.tools.languages.base.c_source import INCLUDE, headers_digest
from kernelwright.tools.languages.base.compilers import Compiler, CompileRefusedError
from kernelwright.tools.languages.base.language import Compiled, CompileJob
from kernelwright.tools.languages.cuda.cubins import CUDA_PACKAGES, version_of
from kernelwright.tools.languages.cuda.parts import Cubin, Part, packed, parted
from kernelwright.tools.types import CompileReport, EnvironmentLacksError

_WIDE = 8  # processors, from which on the programs of a large candidate are compiled at once
_NVRTC, _PARTS = (Path(__file__).with_name(name) for name in ("build.py", "parts.py"))
_FUNCTION = re.compile(r"Compiling entry function '([^']+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_ERROR = re.compile(r"^.*\berror\s*:\s*.+$", re.MULTILINE)
_UNKNOWN_ARCHITECTURE = "invalid value for --gpu-architecture"


def compile_cuda(compiler: Compiler, job: CompileJob) -> Compiled:
    """Compile to a cubin, with the log and each kernel's resources.

    Raises:
        CompileRefusedError: When NVRTC refuses the source or the architecture.
        EnvironmentLacksError: When cuda-core or NVRTC is not installed.
    """
    architecture = named(job.architecture)
    parts = parted(job.source) if _is_wide() else ()
    sources = [part.text for part in parts] or [job.source]
    outputs = [job.folder / f"kernel_{number}.cubin" for number in range(len(sources))]
    request = {
        "kind": "module",
        "module": str(_NVRTC),
        "sources": sources,
        "architecture": architecture,
        "include": str(INCLUDE),
        "outputs": [str(output) for output in outputs],
    }
    answer = compiler.ask(request, job.timeout_s)
    if answer.lacks:
        raise EnvironmentLacksError(f"{answer.lacks}; pip install cuda-core nvidia-cuda-nvrtc")
    if not answer.ok:
        raise CompileRefusedError(_message(answer.log, architecture, answer.knows), answer.log)
    reports = parse_reports(answer.log)
    return Compiled(artifact=_joined(outputs, parts), log=answer.log, reports=reports)


def _is_wide() -> bool:
    """Whether this process may use processors enough for several programs of one candidate."""
    if hasattr(os, "sched_getaffinity"):  # not on every system
        return len(os.sched_getaffinity(0)) >= _WIDE
    return (os.cpu_count() or 1) >= _WIDE


def _joined(outputs: Sequence[Path], parts: Sequence[Part]) -> Path:
    """One object of all cubins; that of a single program is its cubin."""
    whole = outputs[0].with_name("kernel.cubin")
    if parts:
        made = zip(outputs, parts, strict=True)
        whole.write_bytes(packed([Cubin(path.read_bytes(), part.kernels) for path, part in made]))
        for path in outputs:
            path.unlink()
    else:
        outputs[0].rename(whole)
    return whole


def named(architecture: str | None) -> str:
    """The architecture; ValueError where the caller named none."""
    if architecture is None:
        raise ValueError("a CUDA candidate needs an architecture to compile for")
    return architecture


def parse_reports(log: str) -> tuple[CompileReport, ...]:
    """Registers, spills, static shared memory and stack of every kernel in a `ptxas -v` log."""
    marks = list(_FUNCTION.finditer(log))
    ends = [mark.start() for mark in marks[1:]] + [len(log)]
    return tuple(
        _report(mark.group(1), log[mark.end() : end]) for mark, end in zip(marks, ends, strict=True)
    )


@cache
def cuda_identity() -> str:
    """What decides NVRTC's output besides source and architecture: versions and our headers."""
    versions = [f"{name}={version_of(name)}" for name in CUDA_PACKAGES]
    # The options stand in one script, in the other how a source is divided.
    scripts = [path.read_text(encoding="utf-8") for path in (_NVRTC, _PARTS)]
    return "\n".join([*versions, os.environ.get("CUDA_PATH", ""), *scripts, headers_digest()])


def _report(kernel: str, text: str) -> CompileReport:
    stack, registers, shared = _STACK.search(text), _REGISTERS.search(text), _SHARED.search(text)
    return CompileReport(
        kernel=kernel,
        registers=int(registers.group(1)) if registers else None,
        spill_bytes=int(stack.group(2)) + int(stack.group(3)) if stack else None,
        # ptxas leaves the figure out when a kernel has no static shared memory.
        shared_bytes=int(shared.group(1)) if shared else 0,
        stack_bytes=int(stack.group(1)) if stack else None,
    )


def _message(log: str, architecture: str, known: tuple[str, ...]) -> str:
    if _UNKNOWN_ARCHITECTURE in log:
        words = f"this NVRTC does not know the architecture {architecture!r}"
        return f"{words}; it knows {', '.join(known)} and their lettered variants"
    first = _ERROR.search(log)
    return first.group().strip() if first else (log.strip() or "NVRTC failed without a word")
