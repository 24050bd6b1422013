"""Which headers a kernel may include.

For C++ the list is what keeps files, sockets and processes out of reach by name; the check of
the built object's symbols is the stronger barrier behind it. For CUDA it keeps compiles short
and the compiler from quoting files of the host in its messages.
"""

import re
from collections.abc import Mapping

from tools.compile.results import CompileRefusedError
from tools.nouns import Language, Verdict

ALLOWED: Mapping[Language, frozenset[str]] = {
    Language.CUDA: frozenset(
        {
            "kernelwright.cuh",
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
    ),
    Language.CPP: frozenset(
        {
            "kernelwright.hpp",
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
    ),
}

_SPLICE = re.compile(r"\\[ \t]*\r?\n")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
# `%:` is how the language also spells `#`.
_DIRECTIVE = re.compile(r"(?:#|%:|\?\?=)[ \t]*(?:include_next|include|embed|import)\b([^\n]*)")
_HEADER = re.compile(r'\s*(?:<([^<>"\n]+)>|"([^<>"\n]+)")')


def check_includes(kernel: str, language: Language) -> None:
    """Refuse a kernel that includes what is not on the list.

    Comments are looked at with and without, because a raw string can disguise one as the other.

    Raises:
        CompileRefusedError: Naming the header and those that are allowed.
    """
    spliced = _SPLICE.sub("", kernel)
    for text in (spliced, _COMMENT.sub(" ", spliced)):
        for found in _DIRECTIVE.finditer(text):
            header = _HEADER.match(found.group(1))
            name = (header.group(1) or header.group(2)) if header else found.group(1).strip()
            if name not in ALLOWED[language]:
                known = ", ".join(sorted(ALLOWED[language]))
                words = f"a kernel may not include {name!r}; allowed are {known}"
                raise CompileRefusedError(words, verdict=Verdict.COMPILE_ERROR)
