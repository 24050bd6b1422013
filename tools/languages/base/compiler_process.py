"""A script that compiles on request, one JSON line in and one out; nothing of ours is imported.

It is a separate process so that a compile that hangs, eats memory or crashes can be killed, and
a persistent one because importing a compiler can cost more than a small compile. It must stay a
plain script: importing Kernelwright would triple its start. It knows no language.

Requests: {"kind": "commands", "commands": [[..], ..], "folder", "memory_bytes"}, or
{"kind": "module", "module", "memory_bytes", ..} for a plain script at the path `module`, whose
function `answer(request)` is called. Answers: {"ok", "log"}, with "lacks" where this machine
misses something and "knows" (the architectures) after a compiler did not know one.
"""

import ctypes
import importlib.util
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
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
            # A compiler that is killed leaves its files there, and the folder is removed.
            env={**os.environ, "TMPDIR": request["folder"]},
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


def run_module(request: Mapping[str, Any]) -> dict[str, Any]:
    """Let a plain script of a language compile in this process; its memory is limited for good."""
    # Inside a compiler that is a library no handler of ours would run.
    when_the_parent_dies(signal.SIGKILL)
    limit_memory(request["memory_bytes"])
    answered: dict[str, Any] = module_at(request["module"]).answer(request)
    return answered


@cache
def module_at(path: str) -> Any:
    """The script at a path, run once as a module of its own."""
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """One request to one answer."""
    return run_module(request) if request["kind"] == "module" else run_commands(request)


def main() -> None:
    """Answer until the parent closes the pipe."""
    when_the_parent_dies(signal.SIGKILL)
    # Libraries print to descriptor 1 at times; the answers keep a private copy of it.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    for line in sys.stdin:
        out.write(json.dumps(answer(json.loads(line))) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
