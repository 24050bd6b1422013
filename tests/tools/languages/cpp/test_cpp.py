import ctypes
from pathlib import Path

import pytest

from kernelwright.tools.languages import Built, CompileFailure
from kernelwright.tools.languages.cpp import compile as cpp
from kernelwright.tools.languages.cpp.compile import cpp_compiler
from kernelwright.tools.languages.cpp.restrictions import read_shared_object
from kernelwright.tools.types import EnvironmentLacksError, Verdict

SUM = """#include "kernelwright.hpp"
// tune: N in 1, 2
extern "C" void total(const float* x, float* y, long long n) {
    double sum = 0;
    #pragma omp parallel for reduction(+ : sum)
    for (long long i = 0; i < n; ++i) sum += std::exp(x[i]) * N;
    y[0] = static_cast<float>(sum);
}
"""


async def test_a_kernel_compiles_and_computes(compiled) -> None:
    built = await compiled(SUM, N=2)
    assert isinstance(built, Built), built
    assert built.functions == ("total",)
    x, y = (ctypes.c_float * 1000)(), (ctypes.c_float * 1)()
    ctypes.CDLL(str(built.artifact)).total(x, y, ctypes.c_longlong(1000))
    assert y[0] == 2000


async def test_a_mistake_is_named_with_the_line_as_written(compiled) -> None:
    failure = await compiled(SUM.replace("std::exp(x[i])", "std::exq(x[i])"))
    assert isinstance(failure, CompileFailure)
    assert failure.verdict is Verdict.COMPILE_ERROR
    assert failure.message.startswith("kernel.cpp:6:")
    assert "exq" in failure.message


async def test_a_function_that_is_nowhere_is_a_failure(compiled) -> None:
    kernel = 'void elsewhere();\nextern "C" void f(int n) { elsewhere(); }'
    failure = await compiled(kernel)
    assert isinstance(failure, CompileFailure)
    assert "elsewhere" in failure.message


def calling(declaration: str, call: str) -> str:
    return f'extern "C" {declaration};\nextern "C" void f(char* x) {{ {call}; }}'.replace(
        "char* x", "signed char* x"
    )


@pytest.mark.parametrize(
    ("symbol", "kernel"),
    [
        ("open", calling("int open(const char*, int)", 'open("/etc/passwd", 0)')),
        ("system", calling("int system(const char*)", 'system("true")')),
        ("execve", calling("int execve(...)", "execve(x)")),
        ("fork", calling("int fork()", "fork()")),
        ("syscall", calling("long syscall(long, ...)", "syscall(39)")),
        ("dlopen", calling("void* dlopen(const char*, int)", "dlopen(0, 1)")),
        ("dlsym", calling("void* dlsym(void*, const char*)", "dlsym(0, 0)")),
        ("pthread_create", calling("int pthread_create(...)", "pthread_create(x)")),
        ("mmap", calling("void* mmap(...)", "mmap(x)")),
        ("mprotect", calling("int mprotect(...)", "mprotect(x)")),
        ("socket", calling("int socket(int, int, int)", "socket(1, 1, 1)")),
        ("write", calling("long write(int, const void*, unsigned long)", "write(1, x, 1)")),
        ("printf", calling("int printf(const char*, ...)", 'printf("%d", 1)')),
        ("getenv", calling("char* getenv(const char*)", 'x[0] = getenv("HOME")[0]')),
        ("clock_gettime", calling("int clock_gettime(...)", "clock_gettime(x)")),
        ("exit", calling("void exit(int)", "exit(0)")),
        ("signal", calling("void* signal(int, void*)", "signal(11, x)")),
        ("ptrace", calling("long ptrace(...)", "ptrace(x)")),
        ("environ", 'extern "C" char** environ;\nextern "C" void f(bool* x) { x[0] = environ; }'),
        ("PyRun_SimpleString", calling("int PyRun_SimpleString(...)", "PyRun_SimpleString(x)")),
        ("setrlimit", calling("int setrlimit(...)", "setrlimit(x)")),
        ("GOMP_target_ext", calling("void GOMP_target_ext(...)", "GOMP_target_ext(x)")),
    ],
)
async def test_a_kernel_that_reaches_for_the_host_is_refused(
    compiled, symbol: str, kernel: str
) -> None:
    failure = await compiled(kernel)
    assert isinstance(failure, CompileFailure), failure
    assert "may not call" in failure.message
    assert symbol in failure.message


@pytest.mark.parametrize(
    "kernel",
    [
        'extern "C" void f(int* x) { asm volatile("syscall"); }',
        'extern "C" void f(int* x) { __asm__("nop"); }',
        '#define J(a, b) a##b\nextern "C" void f(int* x) { J(as, m)("nop"); }',
        '__asm__(".globl q");\nextern "C" void f(int* x) {}',
        '#define J(a, b) a##b\nJ(as, m)(".globl q");\nextern "C" void f(int* x) {}',
    ],
)
async def test_assembly_is_refused_however_it_is_spelled(compiled, kernel: str) -> None:
    failure = await compiled(kernel)
    assert isinstance(failure, CompileFailure), failure
    assert failure.message == "a C++ kernel may not contain assembly"


@pytest.mark.parametrize(
    "kernel",
    [
        'static int made = [] { return 7; }();\nint* g = new int(made);\nextern "C" void f(int* x) '
        "{ x[0] = *g; }",
        '__attribute__((constructor)) static void early() { __builtin_trap(); }\nextern "C" void '
        "f(int* x) {}",
        '__attribute__((destructor)) static void late() { __builtin_trap(); }\nextern "C" void '
        "f(int* x) {}",
    ],
)
async def test_code_that_would_run_on_loading_is_refused(compiled, kernel: str) -> None:
    failure = await compiled(kernel)
    assert isinstance(failure, CompileFailure), failure
    assert "when it is loaded" in failure.message


@pytest.mark.parametrize(
    "line",
    [
        "#include <fstream>",
        "#include <unistd.h>",
        "#  include <thread>",
        "#include \\\n<unistd.h>",
        "#/**/include <unistd.h>",
        "%:include <unistd.h>",
        '#include "/etc/passwd"',
        "#define H <unistd.h>\n#include H",
        "#include_next <unistd.h>",
        'const char* a = R"(/*)";\n#include <unistd.h>\nconst char* b = R"(*/)";',
    ],
)
async def test_headers_outside_of_the_list_are_refused(compiled, line: str) -> None:
    failure = await compiled(f"{line}\n{SUM}")
    assert isinstance(failure, CompileFailure)
    assert "may not include" in failure.message


@pytest.mark.parametrize(
    "line",
    [
        '#if __has_include("/etc/passwd")\n#endif',
        "#if __has_\\\ninclude(<unistd.h>)\n#endif",
        '#pragma GCC dependency "/etc/passwd"',
        '_Pragma("GCC  dependency \\"/etc/passwd\\"")',
    ],
)
async def test_a_kernel_learns_nothing_of_the_hosts_files(compiled, line: str) -> None:
    failure = await compiled(f"{line}\n{SUM}")
    assert isinstance(failure, CompileFailure)
    assert "may not ask which files there are" in failure.message


async def test_maths_openmp_and_memory_blocks_are_allowed(compiled) -> None:
    kernel = """#include "kernelwright.hpp"
#include <algorithm>
#include <cstring>
#include <omp.h>
extern "C" void f(const double* x, double* y, float* z, int n) {
    #pragma omp parallel
    {
        int me = omp_get_thread_num();
        #pragma omp for schedule(dynamic)
        for (int i = 0; i < n; ++i) {
            y[i] = std::pow(std::lgamma(x[i]), std::erf(x[i])) + std::fmod(x[i], 3.0) + me;
            z[i] = std::tanh(z[i]) + std::log1p(std::fabs(z[i])) + std::sin(z[i]);
        }
        #pragma omp barrier
    }
    std::memset(y, 0, sizeof(double) * n);
    std::sort(y, y + n);
}
"""
    built = await compiled(kernel)
    assert isinstance(built, Built), built
    assert "omp_get_thread_num" in "".join(read_shared_object(built.artifact).undefined)


async def test_without_a_compiler_the_command_that_helps_is_named(
    compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(EnvironmentLacksError, match=r"no-such-compiler.*apt-get install g\+\+"):
        await compiled(SUM)


async def test_cxx_says_which_compiler(
    compiled, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    real, seen = cpp_compiler()[0], tmp_path / "seen"
    wrapper = tmp_path / "my-c++"
    wrapper.write_text(f'#!/bin/sh\necho run >> {seen}\nexec {real} "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("CXX", f"{wrapper} -DEXTRA=1")
    # Another compiler would first precompile the prelude for itself.
    monkeypatch.setattr(cpp, "_precompiled", lambda *_: None)
    built = await compiled(SUM.replace("* N", "* N * EXTRA"))
    assert isinstance(built, Built), built
    assert seen.exists()


def test_only_shared_objects_are_read(tmp_path: Path) -> None:
    (tmp_path / "text.so").write_text("no object")
    with pytest.raises(ValueError, match="no 64-bit"):
        read_shared_object(tmp_path / "text.so")


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        ("static int n;\nextern \"C\" void f(int* x) { x[0] = n++; }", "state between calls"),
        ("thread_local int n;\nextern \"C\" void f(int* x) { x[0] = n++; }", "state between"),
        ("extern \"C\" void f(int* x) { static int n = 3; x[0] = n++; }", "state between calls"),
        (
            "#include <immintrin.h>\nextern \"C\" void f(int* x) { _mm_setcsr(x[0]); }",
            "change how the processor rounds",
        ),
        (
            "#include <immintrin.h>\nextern \"C\" void f(int64_t* x) { x[0] = _rdtsc(); }",
            "read a clock",
        ),
        (
            "#include <immintrin.h>\n"
            "extern \"C\" void f(int* x) { __writeeflags(__readeflags() | 1 << 18); }",
            "change the processor's flags",
        ),
        (
            "#define J(a, b) a##b\n"
            '__attribute__((J(sec, tion)(".rodata,\\"a\\"\\n\\tsyscall\\n#"))) const int q = 1;\n'
            'extern "C" void f(int* x) { x[0] = *(volatile const int*)&q; }',
            "ask the system",
        ),
        (
            "__attribute__((section(\".mine\"))) const int q = 1;\n"
            "extern \"C\" void f(int* x) { x[0] = *(volatile const int*)&q; }",
            "section of its own",
        ),
        ("#include <omp.h>\nextern \"C\" void f(int* x) { omp_set_num_threads(1); }", "omp_set"),
        (
            "extern \"C\" void GOMP_parallel_start(void (*)(void*), void*, unsigned);\n"
            "static void work(void* x) { *(int*)x = 1; }\n"
            "extern \"C\" void f(int* x) { GOMP_parallel_start(work, x, 2); }",
            "GOMP_parallel_start",
        ),
        ("extern \"C\" void _init() {}\nextern \"C\" void f(int* x) {}", "when it is loaded"),
    ],
    ids=[
        "static", "thread-local", "static-inside", "rounding", "clock", "flags",
        "smuggled-assembly", "own-section", "sets-threads", "does-not-join", "init",
    ],
)  # fmt: skip
async def test_what_would_outlast_or_escape_the_call_is_refused(
    compiled, kernel: str, words: str
) -> None:
    failure = await compiled("#include <cstdint>\n" + kernel)
    assert isinstance(failure, CompileFailure), failure
    assert words in failure.message


async def test_tables_and_joined_threads_are_allowed(compiled) -> None:
    kernel = """#include <cstdint>
    static const float table[4] = {1, 2, 3, 4};
    static const float* const rows[2] = {table, table + 2};
    extern "C" void f(float* x, int64_t n) {
        float sum = 0;
    #pragma omp parallel for reduction(+ : sum)
        for (int64_t i = 0; i < n; i++) { x[i] += rows[i & 1][i & 1]; sum += x[i]; }
    #pragma omp critical
        x[0] = sum;
    }"""
    assert not isinstance(await compiled(kernel), CompileFailure)
