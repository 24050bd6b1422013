"""What a built C++ kernel may need from outside and contain: maths, OpenMP, memory blocks.

This is what stands between a kernel and the host: without `open`, `system`, `dlopen` or
`syscall` to call, and without assembly to make the call itself, it computes and nothing else.
Source can be disguised (pasted tokens, directives smuggled in through the name of a section), so
the compiler's own assembly is read for what no C++ of a kernel's comes to: a system call, a clock,
a change of the processor's rounding, text that only an assembler's own language makes.
What remains (jumping to an address it computed) is for the worker's sandbox.

Of an ELF object, the little is read that the symbol check needs: sections and undefined symbols.
64-bit little-endian only, which is every host that CPython and torch ship for on Linux.
"""

import re
import struct
from collections.abc import Sequence
from pathlib import Path

from kernelwright.tools.languages.base.compilers import CompileRefusedError
from kernelwright.tools.types import Value

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_TAG = struct.Struct("<qQ")
_DYNSYM, _INDIRECT = 11, 10
_LOAD, _DYNAMIC, _TLS, _RELRO = 1, 2, 7, 0x6474E552
_WRITABLE = 2


class SharedObject(Value):
    """What an object needs from others, and how its parts are called.

    `writable_bytes` is what stays writable once it is loaded, thread-local storage included;
    `dynamic` the tags of the loader's table; `chooses_when_loaded` whether a function's address
    is decided by code of its own.
    """

    undefined: tuple[str, ...]
    defined: tuple[str, ...]
    sections: tuple[str, ...]
    writable_bytes: int = 0
    dynamic: tuple[int, ...] = ()
    chooses_when_loaded: bool = False


def read_shared_object(path: Path) -> SharedObject:
    """Read a shared object; ValueError when it is none of ours to read."""
    data = path.read_bytes()
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError(f"{path.name} is no 64-bit little-endian ELF object")
    header = _HEADER.unpack_from(data)
    offset, size, count, names_index = header[6], header[11], header[12], header[13]
    sections = [_SECTION.unpack_from(data, offset + size * index) for index in range(count)]
    names = _table(data, sections[names_index])
    segments = [
        _SEGMENT.unpack_from(data, header[5] + header[9] * index) for index in range(header[10])
    ]
    undefined: list[str] = []
    defined: list[str] = []
    indirect = False
    for section in sections:
        if section[1] == _DYNSYM:
            strings = _table(data, sections[section[6]])
            for start in range(section[4], section[4] + section[5], _SYMBOL.size):
                name, kind, _, index, _, _ = _SYMBOL.unpack_from(data, start)
                indirect = indirect or kind & 15 == _INDIRECT
                if name:
                    (defined if index else undefined).append(_string(strings, name))
    return SharedObject(
        undefined=tuple(undefined),
        defined=tuple(defined),
        sections=tuple(_string(names, section[0]) for section in sections),
        writable_bytes=_writable_bytes(segments),
        dynamic=_dynamic(data, segments),
        chooses_when_loaded=indirect,
    )


def _writable_bytes(segments: Sequence[tuple[int, ...]]) -> int:
    """Bytes that can be written after loading: writable, and not made read-only by the loader."""
    fixed = [(item[3], item[3] + item[6]) for item in segments if item[0] == _RELRO]
    total = sum(item[6] for item in segments if item[0] == _TLS)
    for item in segments:
        if item[0] == _LOAD and item[1] & _WRITABLE:
            start, end = item[3], item[3] + item[6]
            covered = [max(0, min(end, to) - max(start, at)) for at, to in fixed]
            total += end - start - sum(covered)
    return total


def _dynamic(data: bytes, segments: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    tags: list[int] = []
    for item in segments:
        if item[0] == _DYNAMIC:
            for start in range(item[2], item[2] + item[5], _TAG.size):
                tag, _ = _TAG.unpack_from(data, start)
                if tag == 0:
                    break
                tags.append(tag)
    return tuple(tags)


def _table(data: bytes, section: tuple[int, ...]) -> bytes:
    return data[section[4] : section[4] + section[5]]


def _string(table: bytes, start: int) -> str:
    return table[start : table.index(b"\0", start)].decode("ascii", errors="replace")


_MATHS_WORDS = (
    "acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 "
    "fabs fdim floor fma fmax fmin fmod frexp hypot ilogb ldexp lgamma lgamma_r llrint llround "
    "log log10 log1p log2 logb lrint lround modf nearbyint nextafter pow remainder remquo rint "
    "round roundeven scalbln scalbn sin sincos sinh sqrt tan tanh tgamma trunc j0 j1 y0 y1 exp10 "
    "finite isnan isinf"
)
_MEMORY_WORDS = (
    "memcpy memmove memset memcmp aligned_alloc malloc calloc free _Znwm _ZdlPv _ZdlPvm "
    "_ZnwmSt11align_val_t _ZdlPvmSt11align_val_t _ZdlPvSt11align_val_t abort __assert_fail "
    "__tls_get_addr"
)
# Weak references that the toolchain itself leaves in every shared object.
_TOOLCHAIN_WORDS = (
    "__cxa_finalize __gmon_start__ _ITM_deregisterTMCloneTable _ITM_registerTMCloneTable "
    "__stack_chk_fail _GLOBAL_OFFSET_TABLE_"
)
_MATHS = frozenset(_MATHS_WORDS.split())
_OTHERS = frozenset(_MEMORY_WORDS.split()) | frozenset(_TOOLCHAIN_WORDS.split())
_PATTERNS = (
    re.compile(r"(?:GOMP|omp)_\w+"),
    re.compile(r"_ZGV[bcdeNsn]\w+"),  # vectorised libm
    re.compile(r"__(?:signbit|fpclassify|isnan|isinf|finite)[fl]?"),
    # Half-precision conversions of libgcc.
    re.compile(r"__(?:extend|trunc|fix|float)\w+"),
    # libm's own internal entry points, reached through -ffinite-math-only.
    re.compile(r"__(\w+?)f?_finite"),
)
# OpenMP can offload and print its settings; neither is maths. What sets the runtime's defaults
# would outlive the call and slow down PyTorch, which shares the runtime; what starts a team
# without waiting for its end would let threads work on after it.
_FORBIDDEN = re.compile(
    r"(?:GOMP_target|GOMP_offload|omp_target|omp_display|omp_capture|omp_pause|GOMP_\w*_start_nowait"
    r"|GOMP_parallel_start|GOMP_parallel_\w+_start|GOMP_parallel_end|omp_control)\w*"
    r"|omp_set_(?!lock|nest_lock)\w+"
)
_CONSTRUCTORS = frozenset({".init_array", ".ctors", ".preinit_array", ".init", ".fini_array"})
# What the loader runs by the object's table: INIT, FINI and their arrays.
_LOADER_RUNS = frozenset({12, 13, 25, 26, 32})
_ASSEMBLY = re.compile(r"\b(?:asm|__asm|__asm__)\b")
_LITERAL = re.compile(r'"(?:\\.|[^"\\\n])*"')
# The compiler brackets assembly with #APP however the source disguised the keyword.
_INLINE = re.compile(r"^\s*#\s*APP", re.MULTILINE)
_WORDS = {
    "ask the system": r"syscall|sysenter|int\s+\$(?:0x80|128)|svc|hvc|smc",
    "read a clock": r"rdtscp?|rdpmc|mrs\s+\w+,\s*cnt\w+",
    "change how the processor rounds": (
        r"v?ldmxcsr|fldcw|fldenv|frstor|f?xrstors?(?:64)?|msr\s+fpcr"
    ),
    # Alignment checks and the direction of copies would stay, for PyTorch too.
    "change the processor's flags": r"popf[qlw]?",
    "change the thread's own registers": r"wr[fg]sbase\w*|wrpkru|msr\s+tpidr\w*",
    "contain an assembler's directive": (
        r"\.(?:incbin|include|macro|altmacro|rept|irpc?|pushsection|popsection|subsection|previous"
        r"|org|insn|reloc|symver|gnu_indirect_function)"
    ),
}
_FORBIDDEN_CODE = {
    what: re.compile(rf"(?<![\w.$@%])(?:{words})(?![\w.$@])") for what, words in _WORDS.items()
}
_ASSEMBLY_SECTION = re.compile(r'\.section\s+([^,\s]+)(?:\s*,\s*"([^"]*)")?')
_PLAIN_SECTION = re.compile(
    r"\.(?:text|rodata|data|bss|tbss|tdata|note|gnu|eh_frame|comment|init_array|fini_array|ctors|dtors)[\w.$-]*"
)


def check_built(source: str, assembly: Path, output: Path) -> None:
    """Hold what was built against the allow-lists.

    Raises:
        CompileRefusedError: Naming what a kernel may not do.
    """
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


def forbidden_symbols(built: SharedObject) -> tuple[str, ...]:
    """Symbols that the object needs and a kernel may not."""
    return tuple(sorted(name for name in set(built.undefined) if not _allowed(name)))


def runs_when_loaded(built: SharedObject) -> bool:
    """Whether loading the object would run code of it, before the judge looks."""
    sections = any(name in _CONSTRUCTORS for name in built.sections)
    return sections or bool(_LOADER_RUNS & set(built.dynamic)) or built.chooses_when_loaded


def found_in(assembly: str) -> str:
    """What the assembly does that a kernel may not, as a verb and its object; empty if nothing."""
    if _INLINE.search(assembly):
        return "contain assembly"
    bare = _LITERAL.sub('""', assembly)
    for what, pattern in _FORBIDDEN_CODE.items():
        if pattern.search(bare):
            return what
    for name, flags in _ASSEMBLY_SECTION.findall(assembly):
        runs = "x" in flags and not name.startswith(".text")
        if runs or not _PLAIN_SECTION.fullmatch(name):
            return f"make a section of its own ({name[:40]})"
    return ""


def _allowed(symbol: str) -> bool:
    name = symbol.partition("@")[0]
    if _FORBIDDEN.fullmatch(name):
        return False
    if name in _OTHERS or _is_maths(name):
        return True
    return any(pattern.fullmatch(name) for pattern in _PATTERNS)


def _is_maths(name: str) -> bool:
    return name in _MATHS or (name[-1] in "fl" and name[:-1] in _MATHS)
