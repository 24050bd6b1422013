"""Whether the judge ever accepts what an independent float64 check refuses, over random modules.

    python benchmarks/judge/independent_check.py --target cpu --candidates 300 --out cpu.jsonl
    python benchmarks/judge/independent_check.py --target cuda --compile-only --hardware h200
        --limit-s 120 --out compiled.jsonl                          # no device is needed
    for g in 0 1 2 3; do CUDA_VISIBLE_DEVICES=$g python benchmarks/judge/independent_check.py
        --target cuda --part $g/4 --workers 16 --limit-s 150 --out part-$g.jsonl & done; wait
    python benchmarks/judge/independent_check.py --summary part-*.jsonl

Modules are drawn (`random_modules.py`), and the playbook writes every strategy for them, with its
own settings and with others. Each candidate is judged as at certification, but for time, and what
the judge looked into is held against `float64_check.py`, which draws other values and shares no
code with it (`check_worker.py` does both). A process takes a module at a time; one that hangs or
dies of a candidate is replaced, and the candidate is kept as such. Lines are written as candidates
end, and a second call with the same `--out` goes on. Numbers of modules are dealt out by
`--part`, so that parts never have the same one.
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(Path(__file__).parent))

from check_table import print_summary
from check_worker import DeviceLostError, Outcome, Plan, work

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.hardware import detect

# A candidate that takes longer, its compile included, hangs; a process has as long to begin.
_HANGS_S = 90.0
_TELL_S = 10.0


class _Report:
    """Sends what a process has to say to the one that started it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def begins(self, outcome: Outcome) -> None:
        """The parent will know whom a crash is due to."""
        self._connection.send(("begins", outcome.model_dump_json()))

    def ended(self, outcome: Outcome) -> None:
        """A line for the file."""
        self._connection.send(("ended", outcome.model_dump_json()))


def serve(connection: Connection, plan: Plan) -> None:
    """Take modules one after the other; a process's main."""
    import torch

    from kernelwright.tools.evaluate.process_setup import resolve_vector_math
    from kernelwright.tools.evaluate.verify.reasons import poisoned

    torch.set_num_threads(1)
    resolve_vector_math()
    while True:
        connection.send(("idle", ""))
        number, done = connection.recv()
        try:
            work(plan, number, done, _Report(connection))
        except DeviceLostError:
            return  # the next process goes on with the module
        except Exception as error:
            connection.send(("failed", f"{type(error).__name__}: {error}"[:400]))
            if poisoned(plan.hardware.kind):
                return


@dataclass
class _Member:
    """One process, with the module and the candidate that it is at."""

    process: multiprocessing.process.BaseProcess
    connection: Connection
    since: float = field(default_factory=time.monotonic)
    module: int | None = None
    candidate: Outcome | None = None


class Crew:
    """Deals modules out to processes, and writes down what comes back.

    Args:
        options: the command line.
        plan: what every process is told.
    """

    def __init__(self, options: argparse.Namespace, plan: Plan) -> None:
        self._options, self._plan = options, plan
        self._spawn = multiprocessing.get_context("spawn")
        self._done: dict[int, set[str]] = {}
        self._over: set[int] = set()
        self._again: list[int] = []
        self._counts: dict[str, int] = {}
        self._known()
        self._numbers = self._modules()
        self._file = options.out.open("a", encoding="utf-8")
        self._end = time.monotonic() + options.limit_s

    def _known(self) -> None:
        """What an earlier session wrote."""
        if not self._options.out.exists():
            return
        for line in self._options.out.read_text(encoding="utf-8").splitlines():
            found = json.loads(line)
            if "over" in found:
                self._over.add(found["over"])
                continue
            self._done.setdefault(found["module"], set()).add(found["candidate"])
            self._count(found["verdict"], found["check"])
        self._again = [number for number in self._done if number not in self._over]

    def _modules(self) -> Iterator[int]:
        part, parts = map(int, self._options.part.split("/"))
        number = part
        while True:
            if number not in self._over and number not in self._done:
                yield number
            number += parts

    def run(self) -> None:
        """Until the time is over, or there are enough candidates."""
        members = [self._start() for _ in range(self._options.workers)]
        told = time.monotonic()
        try:
            while time.monotonic() < self._end and not self._enough():
                ready = wait([member.connection for member in members], timeout=1.0)
                for at, member in enumerate(members):
                    alive = member.connection not in ready or self._heard(member)
                    if not alive or time.monotonic() - member.since > _HANGS_S:
                        members[at] = self._replaced(member, hung=alive)
                if time.monotonic() - told > _TELL_S:
                    told = time.monotonic()
                    print(f"{self._end - told:.0f} s left: {self._counts}", flush=True)
        finally:
            for member in members:
                member.process.kill()
            self._file.close()
        print(f"{self._counts}", flush=True)

    def _enough(self) -> bool:
        return sum(n for name, n in self._counts.items() if " " not in name) >= (
            self._options.candidates
        )

    def _start(self) -> _Member:
        mine, theirs = self._spawn.Pipe()
        process = self._spawn.Process(target=serve, args=(theirs, self._plan), daemon=False)
        process.start()
        theirs.close()
        return _Member(process, mine)

    def _replaced(self, member: _Member, *, hung: bool) -> _Member:
        """A new process for one that died or hangs; the candidate that it was at is kept."""
        member.process.kill()
        member.process.join()
        if member.candidate is not None:
            verdict = "timed_out" if hung else "crashed"
            words = f"the process ended with {member.process.exitcode}"
            update = {"verdict": verdict, "reason": words}
            self._write(member.candidate.model_copy(update=update))
        if member.module is not None:
            self._again.append(member.module)
        return self._start()

    def _heard(self, member: _Member) -> bool:
        """Take what a process says; False where it is gone."""
        try:
            kind, text = member.connection.recv()
        except (EOFError, OSError):
            return False
        member.since = time.monotonic()
        if kind == "begins":
            member.candidate = Outcome.model_validate_json(text)
        elif kind == "ended":
            member.candidate = None
            self._write(Outcome.model_validate_json(text))
        elif kind == "failed":
            print(f"module {member.module}: {text}", flush=True)
            self._count("module failed", "")
        else:
            self._deal(member)
        return True

    def _deal(self, member: _Member) -> None:
        """The next module for a process that has ended one."""
        if member.module is not None:
            self._over.add(member.module)
            self._file.write(json.dumps({"over": member.module}) + "\n")
        member.candidate = None
        member.module = self._again.pop() if self._again else next(self._numbers)
        done = frozenset(self._done.get(member.module, ()))
        member.connection.send((member.module, done))

    def _write(self, outcome: Outcome) -> None:
        self._done.setdefault(outcome.module, set()).add(outcome.candidate)
        self._count(outcome.verdict or "compiled", outcome.check)
        self._file.write(outcome.model_dump_json() + "\n")
        self._file.flush()

    def _count(self, verdict: str, check: str) -> None:
        self._counts[verdict] = self._counts.get(verdict, 0) + 1
        if check == "refused":
            name = f"{verdict} and refused"
            self._counts[name] = self._counts.get(name, 0) + 1


def read_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--target", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--hardware", default="", help="a profile instead of what is here")
    parser.add_argument("--candidates", type=int, default=10**9, help="end after so many")
    parser.add_argument("--limit-s", type=float, default=150.0, help="end after so long")
    parser.add_argument("--most", type=int, default=8, help="candidates of one module, at most")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 2) // 4))
    parser.add_argument("--part", default="0/1", help="K/N: every N-th module, from the K-th on")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--compile-only", action="store_true", help="nothing is run")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--summary", type=Path, nargs="+", help="print the table of these files")
    return parser.parse_args()


def main() -> None:
    """Judge and check, or print what came of it."""
    options = read_options()
    if options.summary:
        print_summary(options.summary)
        return
    if options.out is None:
        raise SystemExit("--out FILE is needed")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    hardware = _hardware(options)
    plan = Plan(hardware, options.seed, options.most, options.compile_only)
    # Torch's own threads would take the processors from the compilers.
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as home:  # compiles are counted as they are the first time
        os.environ["KERNELWRIGHT_HOME"] = home
        Crew(options, plan).run()


def _hardware(options: argparse.Namespace) -> Hardware:
    return hardware_profile(options.hardware) if options.hardware else detect(options.target)


if __name__ == "__main__":
    main()
