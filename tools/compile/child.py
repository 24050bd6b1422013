"""A script that compiles on request, one JSON line in and one out; nothing of ours is imported.

It is a separate process so that a compile that hangs, eats memory or crashes can be killed, and
a persistent one because importing the CUDA compiler costs more than a small compile. It
must stay a plain script: importing the house would triple its start.

Requests: {"kind": "nvrtc", "source", "architecture", "include", "output", "memory_bytes"} or
{"kind": "commands", "commands": [[..], ..], "folder", "memory_bytes"}.
Answers: {"ok", "log"}, with "lacks" where this machine misses something and "knows" (the
architectures) after a failure of NVRTC's.
"""

import ctypes
import io
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1


def when_the_parent_dies(signal_number: int) -> None:
    """Ask for a signal when the process that started this one dies, even by SIGKILL."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal_number)
    # It may have died before the kernel was asked.
    if os.getppid() != int(sys.argv[1]):
        end_group()


def end_group(*_: object) -> None:
    """End this process and everything that it started."""
    os.killpg(0, signal.SIGKILL)


def limit_memory(size_bytes: int) -> None:
    """A template bomb must fail here, not push the machine into swap."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if hard == resource.RLIM_INFINITY or size_bytes < hard:
        resource.setrlimit(resource.RLIMIT_AS, (size_bytes, hard))


def run_commands(request: Mapping[str, Any]) -> dict[str, Any]:
    """Run commands in order until one fails; their words are the log."""
    # A compiler driver starts others, which a signal to this process alone would orphan.
    signal.signal(signal.SIGTERM, end_group)
    when_the_parent_dies(signal.SIGTERM)
    log = ""
    for command in request["commands"]:
        done = subprocess.run(
            command,
            cwd=request["folder"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # Safe here: this process has one thread.
            preexec_fn=lambda: limit_memory(request["memory_bytes"]),
            check=False,
        )
        log += done.stdout.decode("utf-8", errors="replace")
        if done.returncode != 0:
            return {"ok": False, "log": log}
    return {"ok": True, "log": log}


def run_nvrtc(request: Mapping[str, Any]) -> dict[str, Any]:
    """Compile CUDA source to a cubin for a named architecture; needs no driver."""
    # Inside NVRTC no handler of ours would run.
    when_the_parent_dies(signal.SIGKILL)
    try:
        from cuda.core import Program, ProgramOptions
    except ImportError as error:
        return {"ok": False, "log": "", "lacks": f"cuda-core cannot be imported ({error})"}
    headers = [request["include"], *cuda_headers()]
    # No fast maths: precision is the candidate's own, visible choice (__expf and the like).
    options = ProgramOptions(
        name="kernel.cu",
        std="c++17",
        arch=request["architecture"],
        include_path=headers,
        ptxas_options=["-v"],
        lineinfo=True,
    )
    log = io.StringIO()
    try:
        program = Program(request["source"], code_type="c++", options=options)
        cubin = program.compile("cubin", logs=log)
    except Exception as error:
        words = f"{log.getvalue()}\n{error}".replace("\0", "").strip()
        return {"ok": False, "log": words, "knows": architectures()}
    Path(request["output"]).write_bytes(bytes(cubin.code))
    return {"ok": True, "log": log.getvalue().replace("\0", "")}


def architectures() -> list[str]:
    """What this NVRTC can compile for, without the variants that carry a letter."""
    from cuda.bindings import nvrtc

    _, numbers = nvrtc.nvrtcGetSupportedArchs()
    return [f"sm_{number}" for number in numbers]


def cuda_headers() -> list[str]:
    """Folders of the CUDA runtime's and CCCL's headers, wherever they are installed."""
    from cuda import pathfinder

    found = (pathfinder.find_nvidia_header_directory(name) for name in ("cudart", "cccl"))
    return [str(folder) for folder in found if folder]


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """One request to one answer."""
    return run_nvrtc(request) if request["kind"] == "nvrtc" else run_commands(request)


def main() -> None:
    """Answer until the parent closes the pipe."""
    when_the_parent_dies(signal.SIGKILL)
    # Libraries print to descriptor 1 at times; the answers keep a private copy of it.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        if request["kind"] == "nvrtc":
            limit_memory(request["memory_bytes"])
        out.write(json.dumps(answer(request)) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
