"""Which symbols a built C++ kernel may need from outside: maths, OpenMP, memory blocks.

This is what stands between a kernel and the host: without `open`, `system`, `dlopen` or
`syscall` to call, and without assembly to make the call itself, it computes and nothing else.
What remains (jumping to an address it computed) is for the worker's sandbox.
"""

import re

from tools.compile.elf import SharedObject

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


def forbidden_symbols(built: SharedObject) -> tuple[str, ...]:
    """Symbols that the object needs and a kernel may not."""
    return tuple(sorted(name for name in set(built.undefined) if not _allowed(name)))


def runs_when_loaded(built: SharedObject) -> bool:
    """Whether loading the object would run code of it, before the judge looks."""
    sections = any(name in _CONSTRUCTORS for name in built.sections)
    return sections or bool(_LOADER_RUNS & set(built.dynamic)) or built.chooses_when_loaded


def _allowed(symbol: str) -> bool:
    name = symbol.partition("@")[0]
    if _FORBIDDEN.fullmatch(name):
        return False
    if name in _OTHERS or _is_maths(name):
        return True
    return any(pattern.fullmatch(name) for pattern in _PATTERNS)


def _is_maths(name: str) -> bool:
    return name in _MATHS or (name[-1] in "fl" and name[:-1] in _MATHS)
