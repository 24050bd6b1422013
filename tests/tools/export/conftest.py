"""Real candidates, written by hand, with the evaluation that a judge might have given them."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.export import Material
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.types import (
    Baseline,
    Baselines,
    Comparison,
    Conditions,
    Evaluation,
    LanguageName,
    Measurement,
    OutputError,
    Task,
    TracePolicy,
    Verdict,
    Verification,
)

PATH = "/usr/local/bin:/usr/bin:/bin"

SOFTMAX = """
import torch
from torch import nn

ROWS, COLUMNS = 48, 96


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
"""

SOFTMAX_KERNEL = """#include "kernelwright.hpp"
// tune: UNROLL in 1, 2
extern "C" void softmax_rows(const float* x, float* y, long long rows, long long columns) {
#pragma omp parallel for
  for (long long r = 0; r < rows; ++r) {
    float top = -kw::kInfinity, sum = 0;
    for (long long c = 0; c < columns; ++c) top = std::fmax(top, x[r * columns + c]);
    for (long long c = 0; c < columns; ++c) sum += std::exp(x[r * columns + c] - top);
    for (long long c = 0; c < columns; c += UNROLL)
      for (int u = 0; u < UNROLL; ++u)
        y[r * columns + c + u] = std::exp(x[r * columns + c + u] - top) / sum;
  }
}
"""

SOFTMAX_PLAN = """
def forward(x):
    rows, columns = x.shape
    y = empty_like(x)
    launch("softmax_rows", args=(x, y, rows, columns))
    return y
"""

# Everything at once: constructor arguments, nested weights, a buffer that the forward updates,
# two outputs, an integer input, a plain tensor attribute, and a fixed scalar.
BUSY = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width, momentum=0.1):
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(width, width, bias=False)])
        self.register_buffer("running", torch.zeros(width))
        self.register_buffer("calls", torch.tensor(0))
        self.shift = torch.full((width,), 0.5)
        self.momentum = momentum

    def forward(self, x, index, scale=2.0):
        mean = x.mean(0)
        with torch.no_grad():
            self.running.mul_(1 - self.momentum).add_(mean * self.momentum)
            self.calls.add_(1)
        y = self.parts[0](x) * scale + self.shift
        return y, y[:, 0] * index


def get_inputs():
    return [torch.randn(32, 24), torch.randint(0, 5, (32,)), 2.0]


def get_init_inputs():
    return [24]
"""

BUSY_KERNEL = """#include "kernelwright.hpp"
extern "C" void scale_shift(const float* x, const float* shift, const int64_t* index, float* y,
                            float* z, int rows, int columns, float scale) {
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < columns; ++c) y[r * columns + c] = x[r * columns + c] * scale + shift[c];
    z[r] = y[r * columns] * float(index[r]);
  }
}
extern "C" void column_means(const float* x, const float* before, float* after, int rows,
                             int columns, float momentum) {
  for (int c = 0; c < columns; ++c) {
    float sum = 0;
    for (int r = 0; r < rows; ++r) sum += x[r * columns + c];
    after[c] = before[c] * (1 - momentum) + sum / rows * momentum;
  }
}
"""

BUSY_PLAN = """
def prepare(weights):
    return {"turned": weights["parts.0.weight"].t().contiguous()}

def forward(x, index, scale):
    rows, columns = x.shape
    product = aten.mm(x, prepared["turned"])
    y = empty((rows, columns))
    z = empty((rows,), "float32")
    launch("scale_shift", args=(product.contiguous(), weights["shift"], index, y, z, rows,
                                columns, scale))
    after = empty_like(weights["running"])
    launch("column_means", args=(x, weights["running"], after, rows, columns, 0.1))
    update("running", after)
    update("calls", aten.add(weights["calls"], 1))
    return y, z
"""


def evaluation(candidate: str, *, low: float = 1.75) -> Evaluation:
    """What a judge says of a candidate that is 1.8 times as fast; `low` ends its interval."""
    conditions = Conditions(device="test CPU", l2_flushed=True, input_sets=3, threads=2)
    comparisons = tuple(
        Comparison(
            baseline=name,
            candidate_ms=0.5,
            baseline_ms=0.9,
            ratio=1.8,
            ci95_low=low,
            ci95_high=1.85,
            pairs=40,
            candidate_samples_ms=(0.5, 0.51),
            baseline_samples_ms=(0.9, 0.91),
            conditions=conditions,
        )
        for name in ("eager", "compile")
    )
    error = OutputError(
        output=0, distribution="task", error=1e-7, reference_error=9e-8, error_ratio=1.1
    )
    return Evaluation(
        candidate=candidate,
        verification=Verification(
            verdict=Verdict.CORRECT,
            reason="within 4x of PyTorch's own error everywhere",
            error_ratio=1.1,
            errors=(error,),
            method="own kernels",
            precision="float32",
            not_verified=("denormal inputs",),
        ),
        comparisons=comparisons,
    )


def baselines() -> Baselines:
    """Eager and compile, both measured."""
    conditions = Conditions(device="test CPU", l2_flushed=True, input_sets=3)
    measured = Measurement(
        median_ms=0.9, p10_ms=0.89, p90_ms=0.92, samples_ms=(0.9, 0.9), conditions=conditions
    )
    return Baselines(
        items=(
            Baseline(name="eager", measurement=measured),
            Baseline(name="compile", measurement=measured),
        )
    )


@cache
def traced(source: str, policy: TracePolicy) -> Task:
    """The task of a text, traced once: it is a value."""
    from kernelwright.tools.tasks import trace

    task = trace(source, "model.py", policy)
    assert isinstance(task, Task), task
    return task


@pytest.fixture(scope="session")
def material() -> Callable[..., Material]:
    """Makes what is exported from a reference, a kernel and a plan."""

    def make(
        source: str = SOFTMAX,
        kernel: str = SOFTMAX_KERNEL,
        plan: str = SOFTMAX_PLAN,
        *,
        entry: str | None = None,
        makes: bool = False,
        language: LanguageName = "cpp",
        inputs: tuple[str, ...] = (),
        forced: bool = False,
        low: float = 1.75,
    ) -> Material:
        task = traced(source, TracePolicy(entry=entry, makes=makes, inputs=inputs))
        candidate = new_candidate(language, kernel, plan)
        hardware = hardware_profile("generic CPU" if language == "cpp" else "H200")
        return Material(
            task=task,
            candidate=candidate,
            evaluation=evaluation(candidate.id, low=low),
            baselines=baselines(),
            hardware=hardware,
            forced=forced,
        )

    return make


# Importing torch costs seconds, so one process does it and every script runs in a fork of it. It is
# isolated (-I), knows nothing of this repository, and refuses to import it by accident.
NURSERY = """
import json, os, sys, traceback

class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("agents", "graphs", "profiles", "tools", "ui", "kernelwright"):
            raise ImportError(name)

sys.meta_path.insert(0, Nothing())
import torch
import torch._dynamo

for line in sys.stdin:
    request = json.loads(line)
    child = os.fork()
    if child == 0:
        os.dup2(os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
        os.dup2(1, 2)
        os.chdir(request["cwd"])
        os.environ["PATH"] = request["path"]
        sys.argv = ["-c", *request["arguments"]]
        status = 0
        try:
            exec(compile(request["code"], "<script>", "exec"), {"__name__": "__main__"})
        except SystemExit as end:
            status = int(end.code or 0)
        except BaseException:
            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """The process that has imported torch and forks."""
    home = tmp_path_factory.mktemp("nursery")
    environment = {"KERNELWRIGHT_EXPORT_CACHE": str(home / "built"), "HOME": str(home)}
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", NURSERY],
        cwd=home,
        env=environment | {"PATH": PATH},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def outside(nursery: subprocess.Popen[str], tmp_path: Path) -> Callable[..., str]:
    """Runs Python where Kernelwright cannot be imported, and returns what it printed."""

    def run(code: str, *arguments: str | Path, cwd: Path, status: int = 0, path: str = PATH) -> str:
        output = tmp_path / "output.txt"
        request = {
            "code": code,
            "arguments": [str(item) for item in arguments],
            "cwd": str(cwd),
            "path": path,
            "output": str(output),
        }
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        nursery.stdin.write(json.dumps(request) + "\n")
        nursery.stdin.flush()
        got = int(nursery.stdout.readline())
        said = output.read_text()
        assert got == status, said
        return said

    return run


# `module` is an export as whoever took it home imports it, `theirs` the reference in it.
TAKEN_HOME = """
import importlib.util, sys
from pathlib import Path
import torch
folder = Path(sys.argv[1])
spec = importlib.util.spec_from_file_location("taken_home", folder / "module.py")
module = importlib.util.module_from_spec(spec)
sys.modules["taken_home"] = module
spec.loader.exec_module(module)
theirs = module.reference
"""


@pytest.fixture
def taken_home(outside: Callable[..., str]) -> Callable[..., str]:
    """`taken_home(code, folder, cwd=...)` runs Python beside the export in that folder."""

    def run(code: str, folder: Path, **more: Any) -> str:
        return outside(TAKEN_HOME + code, folder, **more)

    return run


@pytest.fixture(scope="session")
def softmax() -> tuple[str, str, str]:
    """Reference, kernel and plan of a softmax."""
    return SOFTMAX, SOFTMAX_KERNEL, SOFTMAX_PLAN


@pytest.fixture(scope="session")
def busy() -> tuple[str, str, str]:
    """Reference, kernel and plan of a module with everything at once."""
    return BUSY, BUSY_KERNEL, BUSY_PLAN


CUDA_KERNEL = """#include "kernelwright.cuh"
// tune: THREADS in 32, 64
extern "C" __global__ void softmax_rows(const float* x, float* y, int columns) {
  const int row = blockIdx.x;
  float top = -INFINITY, sum = 0;
  for (int c = 0; c < columns; ++c) top = fmaxf(top, x[row * columns + c]);
  for (int c = 0; c < columns; ++c) sum += expf(x[row * columns + c] - top);
  for (int c = threadIdx.x; c < columns; c += THREADS)
    y[row * columns + c] = expf(x[row * columns + c] - top) / sum;
}
"""

CUDA_PLAN = """
def forward(x):
    rows, columns = x.shape
    y = empty_like(x)
    launch("softmax_rows", grid=rows, block=THREADS, args=(x, y, columns))
    return y
"""


@pytest.fixture(scope="session")
def cuda_softmax() -> tuple[str, str]:
    """Kernel and plan of a softmax in CUDA."""
    return CUDA_KERNEL, CUDA_PLAN


@pytest.fixture(scope="session")
def python() -> str:
    """The interpreter, for tests that need a process of their own."""
    return sys.executable
