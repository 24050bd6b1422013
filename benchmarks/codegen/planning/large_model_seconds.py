"""What a large model costs before its first candidate runs: reading, planning, writing, NVRTC.

    python benchmarks/codegen/planning/large_model_seconds.py PROJECT zoo.gpt:make_model
        [--hardware h200] [--ideas 4] [--compile]

Needs no GPU: files are traced on fake tensors and NVRTC compiles for the device's architecture. One
line of JSON for every step, with seconds of the wall and of this process; those of the compilers
are their own. It runs the project's code in this process: use it on code that is trusted.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from kernelwright.agents.coder.coder import CoderRequest, PlaybookCoder
from kernelwright.agents.planner.planner import PlannerInput
from kernelwright.agents.planner.playbook import PlaybookPlanner
from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.codegen.library.kernel_library import repertoire_for
from kernelwright.tools.languages import compile_candidate, shutdown_compilers
from kernelwright.tools.tasks import import_exporter, trace
from kernelwright.tools.tasks.sources import find
from kernelwright.tools.types import Candidate, Refusal, TracePolicy

Result = TypeVar("Result")


def timed(step: str, make: Callable[[], Result], **told: object) -> Result:
    """Do a step, and print what it took."""
    wall, own = time.perf_counter(), time.process_time()
    made = make()
    took = {"wall_s": time.perf_counter() - wall, "own_s": time.process_time() - own}
    rounded = {name: round(value, 2) for name, value in took.items()}
    sys.stdout.write(json.dumps({"step": step, **rounded, **told}) + "\n")
    sys.stdout.flush()
    return made


def main() -> None:
    """Every step once, in the order of a search."""
    words = argparse.ArgumentParser(description="Seconds before the first candidate runs.")
    words.add_argument("project", type=Path)
    words.add_argument("builds", help="package.module:function that builds the model")
    words.add_argument("--hardware", default="h200")
    words.add_argument("--ideas", type=int, default=4)
    words.add_argument("--compile", action="store_true", help="compile each idea's first candidate")
    asked = words.parse_args()
    os.chdir(asked.project)
    hardware = hardware_profile(asked.hardware)
    found = find(Path(asked.builds).absolute(), TracePolicy(makes=True, device="cuda"))
    if isinstance(found, Refusal):
        sys.exit(found.sentence)
    scratch = tempfile.TemporaryDirectory()
    os.chdir(scratch.name)  # the weights of what is built are written there
    timed("import the exporter", import_exporter)
    task = timed("trace", lambda: trace(found.source, str(found.path), found.policy))
    if isinstance(task, Refusal):
        sys.exit(task.sentence)
    repertoire = timed("forms", lambda: repertoire_for(task, hardware), nodes=len(task.graph.nodes))
    options = timed("options", repertoire.options)
    wanted = PlannerInput(round=1, wanted=asked.ideas, floor_ms=1e-3)
    planner, coder = PlaybookPlanner(repertoire), PlaybookCoder(repertoire)
    proposal = timed("plan", lambda: asyncio.run(planner.plan(wanted)), options=len(options))
    firsts: list[Candidate] = []
    for idea in proposal.ideas:
        request = CoderRequest(idea=idea, count=3)
        answer = timed("write", lambda request=request: asyncio.run(coder.write(request)))
        firsts += answer.candidates[:1]
    for candidate in firsts if asked.compile else ():
        compiling = compile_candidate(
            candidate, architecture=hardware.architecture, timeout_s=300.0
        )
        kernels = candidate.kernel.count("__global__")
        timed("compile", lambda made=compiling: asyncio.run(made), kernels=kernels)
    shutdown_compilers()


if __name__ == "__main__":
    main()
