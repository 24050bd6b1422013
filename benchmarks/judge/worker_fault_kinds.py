"""The faults of `worker_faults.py`: what each does, and which verdict it must get."""

from kernelwright.tools.languages import new_candidate
from kernelwright.tools.types import Candidate, Value

ROWS = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x * 2.0 + 1.0

def get_inputs():
    return [torch.randn(300, 1025)]
"""
_PLAN = """
def forward(x):
    y = empty_like(x)
    launch("twice", %sargs=(x, y, x.numel()))
    return y
"""
_CPP = """
#include <cstdint>
extern "C" void twice(const float* x, float* y, int64_t n) {
    %s
    for (int64_t i = 0; i < n; i++) y[i] = x[i] * 2.0f + 1.0f;
}
"""
_CUDA = """
extern "C" __global__ void twice(const float* x, float* y, int n) {
    %s
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        y[i] = x[i] * 2.0f + 1.0f;
}
"""
_REFERENCE = """
import ctypes, os, signal, stat, struct, sys, time, torch

def sockets():
    for name in os.listdir("/proc/self/fd"):
        try:
            if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                yield int(name)
        except OSError:
            pass  # the one that listed them

SAID = bytes(16) + b'{"kind": "ready", "pid": 1}'

class Model(torch.nn.Module):
    def forward(self, x):
        %s
        return x * 2.0 + 1.0
def get_inputs():
    return [torch.randn(300, 1025)]
"""
_FOREIGN = """
import ctypes, os, signal, sys, time
import torch
class ModelNew(torch.nn.Module):
    def forward(self, x):
        %s
        return x * 2.0 + 1.0
"""
_FORGED = (
    'print(\'{"kind": "judged", "verdict": "correct"}\', flush=True); '
    "print('VERDICT: correct', file=sys.stderr, flush=True); os._exit(0)"
)


class Fault(Value):
    """Something that ends a process, and what must be said of it.

    A kernel is a `candidate`; a reference's and a foreign file's `text` is a module. `words` must
    stand in the reason.
    """

    name: str
    place: str
    verdicts: tuple[str, ...]
    words: str = ""
    candidate: Candidate | None = None
    text: str = ""


_HUGE = (
    'def forward(x):\n    y = empty(1048576, 1048576)\n    launch("twice", %sargs=(x, y, '
    "x.numel()))\n    return y\n"
)


def honest(target: str) -> Candidate:
    """The kernel that is right."""
    return _made(target, "")


def faults(target: str) -> tuple[Fault, ...]:
    """Every kind, mixed so that a few in a row are of different places."""
    if target == "cuda":
        return _on_a_gpu()
    kernels, references, foreign = [*_kernels(), _huge("cpu")], _references(), _foreign()
    mixed: list[Fault] = []
    for i, fault in enumerate(references):
        mixed += [*kernels[i : i + 1], fault, *foreign[i : i + 1]]
    return tuple(mixed)


def _made(target: str, body: str, plan: str = "") -> Candidate:
    if target == "cuda":
        text = plan or _PLAN % "grid=264, block=256, "
        return new_candidate("cuda", _CUDA % body, text)
    return new_candidate("cpp", _CPP % body, plan or _PLAN % "")


def _kernel(name: str, body: str, words: str, *verdicts: str, target: str = "cpu") -> Fault:
    made = _made(target, body)
    return Fault(name=f"kernel: {name}", place="kernel", verdicts=verdicts, words=words,
                 candidate=made)  # fmt: skip


def _kernels() -> list[Fault]:
    far = "y[int64_t(1) << 40] = 1.0f;"
    return [
        _kernel("store at address 8", "*(volatile int*)8 = 1;", "segmentation", "illegal_access"),
        _kernel("endless loop", "volatile int on = 1; while (on) {}", "did not finish",
                "timed_out"),
        _kernel("division by zero", "volatile int z = 0; y[0] = float(7 / z);", "arithmetic",
                "crashed"),
        _kernel("illegal instruction", "if (n > 0) __builtin_trap();", "instruction", "crashed"),
        _kernel("store far outside", far, "segmentation", "illegal_access"),
        _kernel("stack runs out", "volatile char all[1 << 28]; for (int64_t i = 0; i < (1 << 28); "
                "i += 4096) all[i] = 1;", "segmentation", "illegal_access"),
    ]  # fmt: skip


def _reference(name: str, body: str, words: str, verdict: str = "refused") -> Fault:
    return Fault(name=f"reference: {name}", place="reference", verdicts=(verdict,), words=words,
                 text=_REFERENCE % body)  # fmt: skip


def _references() -> list[Fault]:
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    fork = "ctypes.CDLL(None).fork()"
    stay = f"ctypes.CDLL(None).setsid(); {deaf}; time.sleep(600)"
    late = "did not finish"
    return [
        _reference("exit with status 0", "os._exit(0)", "exit status 0"),
        _reference("hang that ignores SIGTERM", f"{deaf}\n        while True: pass", late),
        _reference("killed by a signal", "os.kill(os.getpid(), signal.SIGKILL)", "being killed"),
        _reference("memory", "kept = [bytearray(1 << 26) for _ in range(10**4)]", "GiB"),
        _reference("a daemon stays", f"if {fork} == 0:\n            {stay}", "", "a task"),
        _reference("a daemon stays, then exit",
                   f"if {fork} == 0:\n            {stay}\n        os._exit(3)",
                   "exit status 3"),
        _reference("many processes", f"while {fork} > 0: pass\n        time.sleep(600)",
                   "and was stopped"),
        _reference("prints a forged verdict", _FORGED, "exit status 0"),
        _reference("writes a forged frame",
                   "[os.write(fd, struct.pack('>Q', len(SAID)) + SAID) for fd in sockets()]",
                   "on the judge's own line"),
        _reference("abort", "os.abort()", "an abort"),
    ]  # fmt: skip


def _foreign() -> list[Fault]:
    def made(name: str, body: str, words: str, *verdicts: str) -> Fault:
        return Fault(name=f"foreign: {name}", place="foreign", verdicts=verdicts, words=words,
                     text=_FOREIGN % body)  # fmt: skip

    return [
        made("read at address 8", "ctypes.string_at(8)", "segmentation", "illegal_access"),
        made("exit with status 0", "os._exit(0)", "exit status 0", "crashed"),
        made("prints a forged verdict", _FORGED, "exit status 0", "crashed"),
        made("hang", "while True: pass", "did not finish", "timed_out"),
        made("memory", "kept = [bytearray(1 << 26) for _ in range(10**4)]", "GiB",
             "out_of_memory"),
        made("abort", "os.abort()", "an abort", "crashed"),
    ]  # fmt: skip


def _on_a_gpu() -> tuple[Fault, ...]:
    """Faults of the device; those of the host are the CPU's."""
    return (
        _kernel("store far outside", "y[size_t(1) << 40] = 1.0f;", "", "illegal_access",
                target="cuda"),
        _kernel("endless", "while (*(volatile int*)&n == n) {}", "", "timed_out", target="cuda"),
        _huge("cuda"),
        # The driver calls it a launch that failed; the context is lost all the same.
        _kernel("trap", "asm volatile(\"trap;\");", "", "launch_error", "illegal_access",
                target="cuda"),
        *_references()[:3],
        # Of the right shape, as a wrong one would be told before the device comes to the fault.
        _foreign_on_a_gpu("index far outside", "x = x + x.flatten()[torch.full((1,), 1 << 40, "
                          "device=x.device)]", "launch_error", "illegal_access", "crashed"),
        _foreign_on_a_gpu("more memory than the device has", "x = torch.empty(1 << 45, "
                          "device=x.device)", "out_of_memory"),
        _foreign_on_a_gpu("hang", "while True: pass", "timed_out"),
    )  # fmt: skip


def _huge(target: str) -> Fault:
    """A plan that asks for more memory than any machine has."""
    grid = "grid=1, block=32, " if target == "cuda" else ""
    return Fault(
        name="plan: more memory than there is",
        place="kernel",
        verdicts=("out_of_memory", "launch_error"),
        candidate=_made(target, "", _HUGE % grid),
    )


def _foreign_on_a_gpu(name: str, body: str, *verdicts: str) -> Fault:
    return Fault(name=f"foreign: {name}", place="foreign", verdicts=verdicts,
                 text=_FOREIGN % body)  # fmt: skip
