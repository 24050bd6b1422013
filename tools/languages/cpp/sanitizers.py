"""Builds a C++ kernel into a program with the compiler's sanitizers, to be fed recorded launches.

The program reads launches from a file: buffers, each of which it allocates on its own, so that
the sanitizer guards both ends, and arguments. Their types follow from the functions themselves.
What is judged and timed is never built with these flags.

So a kernel could be another one here than where it is judged: by a macro that only one of the two
compiles defines, or by asking that a function of it be left alone. The preprocessed text of both
compiles must be the same, headers included, and exempt nothing. Not covered: a kernel that tells
the sanitizer's memory by its addresses.
"""

import asyncio
import re
from pathlib import Path

from kernelwright.tools.candidates.kernel_source import KernelSource
from kernelwright.tools.languages.base.c_source import INCLUDE
from kernelwright.tools.languages.base.compilers import Compiler, CompileRefusedError, pool
from kernelwright.tools.languages.cpp.compile import cpp_compiler, cpp_flags
from kernelwright.tools.types import Verdict

_FLAG_WORDS = (
    "-O1 -g -march=native -std=c++20 -fopenmp -fno-exceptions -fno-rtti -fno-omit-frame-pointer "
    "-ffp-contract=fast -Wno-unknown-pragmas -fno-diagnostics-show-caret "
    "-fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined"
)
_FLAGS = _FLAG_WORDS.split()
# However the source puts the attribute's name together, it is whole once it is preprocessed.
_EXEMPT = re.compile(r"\b_*(?:no_sanitize\w*|no_address_safety_analysis\w*)\b")
_REMEDY = "install the compiler's own: apt-get install g++ libasan8 libubsan1"

# Comes before the kernel, whose macros may have any name.
_READER = """\
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <vector>
namespace kernelwright_replay {
inline FILE* file;
inline std::vector<char*> buffers;
inline void fill(void* place, size_t bytes) {
  if (bytes && fread(place, 1, bytes, file) != bytes) exit(3);
}
inline int64_t word() {
  int64_t value;
  fill(&value, sizeof value);
  return value;
}
template <class T>
T argument() {
  const int64_t first = word(), second = word();
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<T>(buffers.at(first) + second);
  } else if constexpr (std::is_floating_point_v<T>) {
    double value;
    memcpy(&value, &first, sizeof value);
    return static_cast<T>(value);
  } else {
    return static_cast<T>(first);
  }
}
template <class... T>
void call(void (*function)(T...)) {
  std::tuple<T...> arguments{argument<T>()...};
  std::apply(function, arguments);
}
template <class Launch>
int run(const char* path, Launch launch) {
  file = fopen(path, "rb");
  if (!file) return 3;
  for (int64_t left = word(); left > 0; --left) {
    const int64_t function = word();
    buffers.resize(word());
    for (char*& buffer : buffers) {
      const int64_t bytes = word();
      void* place = nullptr;
      if (posix_memalign(&place, 64, bytes)) return 3;
      buffer = static_cast<char*>(place);
      fill(buffer, bytes);
    }
    launch(function);
    for (char* buffer : buffers) free(buffer);
  }
  puts("every launch came to its end");
  return 0;
}
}  // namespace kernelwright_replay
"""
_MAIN = """
int main(int, char** kernelwright_words) {
  return kernelwright_replay::run(kernelwright_words[1], [](int64_t kernelwright_number) {
    switch (kernelwright_number) {
%s
    }
  });
}
"""
CLEAN = "every launch came to its end"


async def build_sanitized(
    source: KernelSource, text: str, folder: Path, *, timeout_s: float
) -> Path | str:
    """The program, in a folder that is there; or why it cannot be built.

    A launch names a function by its place among the kernel's.

    Args:
        source: What the kernel exports.
        text: The kernel with its tunables set.
        folder: For the program and its source.
        timeout_s: For the compile.

    Raises:
        CompileRefusedError: When the kernel hides from sanitizers, as cheating.
        EnvironmentLacksError: When this machine has no C++ compiler.
    """
    ticket = pool().submit(lambda compiler: _build(compiler, source, text, folder, timeout_s))
    try:
        return await asyncio.wrap_future(ticket.future)
    except asyncio.CancelledError:
        ticket.cancel()
        raise


def _build(
    compiler: Compiler, source: KernelSource, text: str, folder: Path, timeout_s: float
) -> Path | str:
    cases = (
        f"      case {number}: kernelwright_replay::call({function.name}); break;"
        for number, function in enumerate(source.functions)
    )
    (folder / "replay.hpp").write_text(_READER, encoding="utf-8")
    (folder / "kernel.cpp").write_text(text + _MAIN % "\n".join(cases), encoding="utf-8")
    headers = [f"-I{INCLUDE}", "-include", "replay.hpp"]
    watched = _preprocessed(compiler, [*_FLAGS, *headers], folder, timeout_s)
    if watched and watched != _preprocessed(
        compiler, [*cpp_flags()[0], *headers], folder, timeout_s
    ):
        raise CompileRefusedError(
            "its source reads otherwise where a sanitizer watches", verdict=Verdict.CHEATING
        )
    if exempt := _EXEMPT.search(watched):
        words = f"it has sanitizers look away ({exempt.group()})"
        raise CompileRefusedError(words, verdict=Verdict.CHEATING)
    command = [*cpp_compiler(), *_FLAGS, *headers]
    try:
        whole = [*command, "kernel.cpp", "-o", "sanitized", "-lm"]
        answer = compiler.run([whole], folder, timeout_s)
    except CompileRefusedError as error:
        return error.message
    if answer.ok:
        return folder / "sanitized"
    lines = [line for line in answer.log.splitlines() if "error" in line or "cannot find" in line]
    said = (lines or answer.log.splitlines() or ["the compiler said nothing"])[0].strip()[:160]
    return f"no build with the compiler's sanitizers: {said} ({_REMEDY})"


def _preprocessed(compiler: Compiler, arguments: list[str], folder: Path, timeout_s: float) -> str:
    """What the compiler reads in the end; "" where it cannot, which the build will say."""
    text = folder / "kernel.ii"
    text.unlink(missing_ok=True)
    command = [*cpp_compiler(), *arguments, "-E", "-P", "kernel.cpp", "-o", text.name]
    try:
        answer = compiler.run([command], folder, timeout_s)
    except CompileRefusedError:
        return ""
    return text.read_text(encoding="utf-8", errors="replace") if answer.ok else ""
