"""What a built C++ kernel may need from outside and contain: maths, OpenMP, memory blocks.

This is what stands between a kernel and the host: without `open`, `system`, `dlopen` or
`syscall` to call, and without assembly to make the call itself, it computes and nothing else.
Source can be disguised (pasted tokens, directives smuggled in through the name of a section), so
the compiler's own assembly is read for what no C++ of a kernel's comes to: a system call, a clock,
a change of the processor's rounding, text that only an assembler's own language makes.
What remains (jumping to an address it computed) is for the worker's sandbox.
"""

import re
from pathlib import Path

from kernelwright.tools.languages.base.results import CompileRefusedError
from kernelwright.tools.languages.cpp.elf import SharedObject, read_shared_object

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
    "change the thread's own registers": r"wr[fg]sbase\w*|wrpkru|msr\s+tpidr\w*",
    "contain an assembler's directive": (
        r"\.(?:incbin|include|macro|altmacro|rept|irpc?|pushsection|popsection|subsection|previous"
        r"|org|insn|reloc|symver|gnu_indirect_function)"
    ),
}
_FORBIDDEN_CODE = {
    what: re.compile(rf"(?<![\w.$@%])(?:{words})(?![\w.$@])") for what, words in _WORDS.items()
}
_SECTION = re.compile(r'\.section\s+([^,\s]+)(?:\s*,\s*"([^"]*)")?')
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
    for name, flags in _SECTION.findall(assembly):
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
