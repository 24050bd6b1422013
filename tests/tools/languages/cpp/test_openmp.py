"""A kernel and torch must share one OpenMP runtime, or their threads spin against each other."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import asyncio, ctypes, json, re
import torch
from kernelwright.tools.languages import compile_candidate, new_candidate
from kernelwright.tools.languages import load_candidate

KERNEL = '''#include "kernelwright.hpp"
#include <omp.h>
extern "C" void count(int* most, int* used) {
    most[0] = omp_get_max_threads();
    int seen = 0;
    #pragma omp parallel reduction(+ : seen)
    seen += 1;
    used[0] = seen;
}
'''
PLAN = '''def forward(x):
    most, used = zeros(1, "int32"), zeros(1, "int32")
    launch("count", args=(most, used))
    return most, used
'''
candidate = new_candidate("cpp", KERNEL, PLAN)
built = asyncio.run(compile_candidate(candidate, architecture=None, timeout_s=120))
runner = load_candidate(candidate, built, "cpu")
x = torch.randn(1 << 16)
torch.exp(x).sum()
counts = []
for threads in (None, 1, 3):
    if threads is not None:
        torch.set_num_threads(threads)
    torch.exp(x)
    most, used = runner((x,), {})
    counts.append([torch.get_num_threads(), int(most), int(used)])
maps = open("/proc/self/maps").read()
runtimes = sorted(set(re.findall(r"/\\S*lib(?:gomp|iomp|omp)[^/\\s]*", maps)))
print(json.dumps({"counts": counts, "runtimes": runtimes}))
"""


def test_one_runtime_serves_torch_and_kernels_and_follows_torchs_threads(
    home_of_tests: Path,
) -> None:
    ran = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    found = json.loads(ran.stdout.strip().splitlines()[-1])
    assert len(found["runtimes"]) == 1, found
    for threads, most, used in found["counts"]:
        assert threads == most == used
