"""`python -m kernelwright.tools.evaluate.profiling.child REQUEST SECONDS`: one candidate, twice.

Once to load and warm, once between the profiler's start and stop, so that nothing else is counted.
It imports torch first and then waits until the request's file is there, so that it can stand ready
without touching the device. Runs under Nsight Compute; what it prints is for whoever reads why that
failed.
"""

import os
import signal
import sys
import time
from pathlib import Path

WAITING_S = 600  # after which nobody will come any more
_POLL_S = 0.01


def main(asked: Path, limit_s: int) -> None:
    """Run the request's candidate on its task's own inputs."""
    import torch

    from kernelwright.tools.evaluate.messages import ProfileRequest
    from kernelwright.tools.evaluate.process_setup import no_new_processes, watch_processes
    from kernelwright.tools.evaluate.verify.reference_runtime import Draw, ReferenceRuntime
    from kernelwright.tools.languages import load_candidate

    watch_processes()
    while not asked.exists():
        time.sleep(_POLL_S)
    signal.alarm(limit_s)
    request = ProfileRequest.model_validate_json(asked.read_text(encoding="utf-8"))
    runtime = ReferenceRuntime(
        request.task, request.hardware, request.rules, request.seed, no_new_processes
    )
    arguments = runtime.draw(Draw("task", request.seed))
    weights = {name: value.clone() for name, value in runtime.reference.weights().items()}
    runner = load_candidate(
        request.candidate, request.built, runtime.device, host=runtime.reference.host
    )
    runner.prepare(weights)
    runner(arguments, weights)
    torch.cuda.synchronize()
    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    runner(arguments, weights)
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    # Whatever becomes of those who started it, it does not stay.
    signal.alarm(WAITING_S)
    main(Path(sys.argv[1]), int(sys.argv[2]))
    sys.stdout.flush()
    # Taking torch down costs half a second and tells nobody anything.
    os._exit(0)
