"""C++ through the host's compiler: a shared object with a plain C interface.

The object is linked against the OpenMP runtime that torch itself loads. Two runtimes in one
process would each keep a pool of spinning threads, and every timing would be of their quarrel.
"""

import hashlib
import importlib.util
import os
import platform
import re
import shlex
import shutil
from functools import cache
from pathlib import Path

from tools.compile.assembly import found_in
from tools.compile.cuda import INCLUDE, headers_digest
from tools.compile.elf import read_shared_object
from tools.compile.headers import precompiled
from tools.compile.pool import Answer, Compiler
from tools.compile.results import CompileRefusedError
from tools.compile.symbols import forbidden_symbols, runs_when_loaded
from tools.lacking import EnvironmentLacksError

_PRELUDE = INCLUDE / "kernelwright.hpp"
_MEMORY_BYTES = 6 << 30
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
# processor that was tried (docs/benchmarks.md). Compilers for other families do not know the flag.
_WIDE = ["-mprefer-vector-width=512"] if platform.machine() == "x86_64" else []
_CODE, _LINK = [*_CODE_WORDS.split(), *_WIDE], _LINK_WORDS.split()
_ERROR = re.compile(r"^.*(?:\berror|undefined reference)\b.*$", re.MULTILINE)
_ASSEMBLY = re.compile(r"\b(?:asm|__asm|__asm__)\b")
_NO_COMPILER = "there is no C++ compiler ({name} was not found); apt-get install g++"


def compile_cpp(
    compiler: Compiler, source: str, output: Path, timeout_s: float, *, contract: bool = True
) -> str:
    """Compile to a shared object at `output`; the compiler's log.

    `contract` is whether what was built is held against the allow-lists.

    Raises:
        CompileRefusedError: When the compiler, or the check of what it built, refuses the source.
        EnvironmentLacksError: When there is no compiler.
    """
    command, assembly = cpp_compiler(), output.with_suffix(".s")
    text = output.with_name("kernel.cpp")
    text.write_text(source, encoding="utf-8")
    generate = [*assembly_command(compiler), text.name, "-o", assembly.name]
    link = [*command, *_LINK, assembly.name, "-o", output.name, *openmp_library(), "-lm"]
    request = {
        "kind": "commands",
        "commands": [generate, link],
        "folder": str(output.parent),
        "memory_bytes": _MEMORY_BYTES,
    }
    answer = compiler.ask(request, timeout_s)
    if not answer.ok:
        raise CompileRefusedError(_message(answer), answer.log)
    if contract:
        _check(source, assembly, output)
    assembly.unlink()
    return answer.log


def assembly_command(compiler: Compiler) -> list[str]:
    """The command that makes assembly of a kernel, but for its files.

    Raises:
        EnvironmentLacksError: When there is no compiler.
    """
    command = cpp_compiler()
    prelude = precompiled(compiler, command, _CODE, _PRELUDE, cpp_identity())
    folders = [f"-I{folder}" for folder in (prelude, INCLUDE) if folder is not None]
    return [*command, *_CODE, *folders, "-S"]


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
    """What decides the object besides the source: compiler, flags, processor, runtime, headers."""
    command = cpp_compiler()
    binary = Path(command[0]).resolve()
    stat = binary.stat()
    which = f"{binary} {stat.st_size} {stat.st_mtime_ns} {command[1:]}"
    flags = " ".join((*_CODE, *_LINK, *openmp_library()))
    return "\n".join((which, flags, _processor(), headers_digest()))


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


def _check(source: str, assembly: Path, output: Path) -> None:
    if _ASSEMBLY.search(source):
        raise CompileRefusedError("a C++ kernel may not contain assembly")
    if found := found_in(assembly.read_text(encoding="utf-8")):
        raise CompileRefusedError(f"a C++ kernel may not {found}")
    built = read_shared_object(output)
    if names := forbidden_symbols(built):
        words = f"a C++ kernel may not call {', '.join(names)}"
        raise CompileRefusedError(f"{words}; only maths, OpenMP and memcpy's kind are allowed")
    if runs_when_loaded(built):
        raise CompileRefusedError("a C++ kernel may not run code when it is loaded")
    if built.writable_bytes:
        raise CompileRefusedError(
            "a C++ kernel may not keep state between calls: it has writable static or thread-local "
            "storage (make tables const, and ask the plan for scratch memory)"
        )


def _message(answer: Answer) -> str:
    first = _ERROR.search(answer.log)
    return first.group().strip() if first else (answer.log.strip() or "the compiler said nothing")
