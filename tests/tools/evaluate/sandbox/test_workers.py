"""Workers end with whoever started them, and no secret reaches them."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelwright.tools.evaluate.messages import TraceRequest
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.sandbox.bytecode import worker_environment
from kernelwright.tools.evaluate.sandbox.process_tree import machine_bytes, resident_bytes
from kernelwright.tools.evaluate.sandbox.worker import WorkerProcess
from kernelwright.tools.types import TracePolicy

HANG = TraceRequest(source="while True: pass", path="hang.py", policy=TracePolicy())
PARENT = """
import asyncio, sys
from pathlib import Path
from kernelwright.tools.evaluate.messages import TraceRequest
from kernelwright.tools.evaluate.sandbox.worker import WorkerProcess
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.types import TracePolicy

async def main():
    worker = await WorkerProcess.start(Path(sys.argv[1]), Rules())
    print(worker.pid, flush=True)
    request = TraceRequest(source="while True: pass", path="hang.py", policy=TracePolicy())
    await worker.ask(request, 600)

asyncio.run(main())
"""


def gone(pid: int, within_s: float = 60.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except (ProcessLookupError, FileNotFoundError):
            return True
        if state[0] == "Z":
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize(
    "how",
    [
        pytest.param(signal.SIGKILL, id="kill"),
        pytest.param(signal.SIGTERM, id="term", marks=pytest.mark.exhaustive),
    ],
)
def test_a_worker_dies_with_its_parent(tmp_path: Path, how: signal.Signals) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        time.sleep(0.2)
        parent.send_signal(how)
        assert gone(worker)
    finally:
        parent.kill()
        parent.wait()
        assert parent.stdout is not None
        parent.stdout.close()


async def test_two_questions_are_answered_and_a_cancelled_one_ends_the_worker(
    tmp_path: Path,
) -> None:
    worker = await WorkerProcess.start(tmp_path, Rules())
    request = HANG.model_copy(update={"source": "print('noise' * 100_000)\n"})
    for _ in range(2):
        reply = await worker.ask(request, 60)
        assert reply.model_dump()["answer"]["result"]["sentence"]
    assert resident_bytes(worker.pid) > 0
    asking = asyncio.create_task(worker.ask(HANG, 600))
    await asyncio.sleep(0.2)
    asking.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asking
    assert not worker.alive
    assert gone(worker.pid)
    assert resident_bytes(worker.pid) == 0


@pytest.mark.exhaustive
async def test_a_worker_that_is_told_goodbye_ends(tmp_path: Path) -> None:
    worker = await WorkerProcess.start(tmp_path, Rules())
    await worker.aclose()
    assert gone(worker.pid)


def test_secrets_do_not_reach_a_worker(tmp_path: Path) -> None:
    environment = {
        "PATH": "/bin",
        "OMP_NUM_THREADS": "3",
        "PYTHONPYCACHEPREFIX": "/compiled",
        "OPENAI_API_KEY": "x",
        "CUDA_SECRET_TOKEN": "x",
        "HF_HOME": "/somewhere",
        "https_proxy": "http://proxy",
    }
    seen = worker_environment(tmp_path, environment)
    assert seen["PATH"] == "/bin"
    assert seen["OMP_NUM_THREADS"] == "3"
    assert seen["PYTHONPYCACHEPREFIX"] == "/compiled"  # else every start compiles what it imports
    assert not {"OPENAI_API_KEY", "CUDA_SECRET_TOKEN", "HF_HOME", "https_proxy"} & seen.keys()
    assert Path(seen["TORCHINDUCTOR_CACHE_DIR"]).is_relative_to(tmp_path)


ALLOCATING = """
import resource, torch

def call():
    a = torch.ones(2_000_000)
    b = a * 2
    return (b + a).exp().sum()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

for _ in range(20):
    call()
before = faults()
for _ in range(20):
    call()
print((faults() - before) // 20)
"""


@pytest.mark.exhaustive
def test_a_worker_keeps_the_memory_that_a_call_has_freed(tmp_path: Path) -> None:
    """One call allocates some 6000 pages; whether it met fresh ones used to be chance."""
    environment = worker_environment(tmp_path)
    for _ in range(3):
        done = subprocess.run(
            [sys.executable, "-c", ALLOCATING], env=environment, capture_output=True, text=True
        )
        assert int(done.stdout) < 1000, done.stderr


def test_the_machine_has_memory() -> None:
    assert machine_bytes() > 1 << 28
