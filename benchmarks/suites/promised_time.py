"""Whether a search ends when it says, and how fast it goes: real searches from the command line.

Each one begins with a home of its own, as on a new machine; `--warm` lets all share one, as in
daily use. Prints, for each, wall seconds from the command to its end, what was promised, rounds,
judged candidates, judged candidates a minute of searching (from the first time of eager to the end
of the last round, without what torch.compile took), and the judge's seconds by phase; then medians.
Others on the machine disturb it: their share of the processors meanwhile is printed as well.

    python benchmarks/suites/promised_time.py --times 3
        --out benchmarks/results/cpu/promised_time.json
    python benchmarks/suites/promised_time.py --target cuda --search standard
        --example examples/softmax.py
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from kernelwright.graphs.run_view.events import (
    EVENT,
    BaselinesMeasured,
    CandidateJudged,
    Event,
    RoundFinished,
)
from kernelwright.tools.archive import Archive

PROMISE = "promise:0"


def once(asked: argparse.Namespace, home: Path) -> dict:
    """One search as a person begins it; its figures."""
    command = [
        sys.executable, "-m", "kernelwright", "optimize", str(ROOT / asked.example),
        "--search", asked.search, "--target", asked.target, "--json", "-",
    ]  # fmt: skip
    command += ["--seconds", str(asked.seconds)] if asked.seconds else []
    environment = {**os.environ, "KERNELWRIGHT_HOME": str(home)}
    began, busy_s, tree = time.monotonic(), busy(), Tree()
    started = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
        env=environment,
    )  # fmt: skip
    with tree.watched(os.getpid()):
        printed, said = started.communicate()
    wall_s = time.monotonic() - began
    if started.returncode:
        raise SystemExit(said[-2000:])
    others_s = max(0.0, busy() - busy_s - tree.used_s)
    summary = json.loads(printed)
    return {
        "wall_s": round(wall_s, 1),
        "others_share": round(others_s / wall_s / (os.cpu_count() or 1), 2),
        "own_processor_s": round(tree.used_s, 1),
        "search_s": round(summary["seconds"], 1),
        "rounds": summary["rounds"],
        "status": summary["status"],
        "candidates": summary["candidates"],
        "stopped_because": summary["stopped_because"],
        **told(summary["run"], home),
        "phases": [
            {"name": item["name"], "seconds": round(item["seconds"], 2), "times": item["times"]}
            for item in summary["phases"]
        ],
    }


def told(run: str, home: Path) -> dict:
    """What the run's events say: the promise, what was judged, and how fast."""
    archive = Archive.open(run, home)
    try:
        stored = archive.event(PROMISE)
        events = [EVENT.validate_json(item.payload) for item in archive.events()]
    finally:
        archive.close()
    judged = [e for e in events if isinstance(e, CandidateJudged) and e.effort == "screen"]
    span_s = searching_s(events)
    return {
        "promised": json.loads(stored.payload)["words"] if stored else "",
        "judged": len(judged),
        "searching_s": round(span_s, 1),
        "judged_per_minute": round(60 * len(judged) / span_s, 1) if span_s else None,
    }


def searching_s(events: list[Event]) -> float:
    """From eager's time to the end of the last round, without torch.compile's."""
    timed = [event for event in events if isinstance(event, BaselinesMeasured)]
    ended = [event.at for event in events if isinstance(event, RoundFinished)]
    if not timed or not ended:
        return 0.0
    first: datetime = timed[0].at
    compiling_s = sum(event.seconds for event in timed[1:] if event.at <= ended[-1])
    return (ended[-1] - first).total_seconds() - compiling_s


class Tree:
    """Processor seconds of a process and all that descends from it, looked at ten times a second.

    Workers behind a wall die with it, and what they used is added to nobody's waiting parent: those
    that end are counted by the last look at them.
    """

    def __init__(self) -> None:
        self._ticks: dict[tuple[int, str], int] = {}

    @property
    def used_s(self) -> float:
        """So far."""
        return sum(self._ticks.values()) / os.sysconf("SC_CLK_TCK")

    @contextmanager
    def watched(self, root: int) -> Iterator[None]:
        """Look until the block ends."""
        over = threading.Event()
        watcher = threading.Thread(target=self._watch, args=(root, over))
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def _watch(self, root: int, over: threading.Event) -> None:
        while not over.wait(0.1):
            parents, used = {}, {}
            for path in Path("/proc").glob("[0-9]*/stat"):
                with suppress(OSError):
                    fields = path.read_text(encoding="utf-8").rpartition(")")[2].split()
                    process = int(path.parent.name)
                    parents[process] = int(fields[1])
                    used[process] = fields[19], int(fields[11]) + int(fields[12])
            for process in used:
                above = process
                while above not in (0, 1, root):
                    above = parents.get(above, 0)
                if above == root:
                    begun, ticks = used[process]
                    self._ticks[process, begun] = ticks


def busy() -> float:
    """Seconds in which the machine's processors were not idle."""
    fields = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
    user, nice, system, _, _, irq, soft, steal = map(int, fields[:8])
    return (user + nice + system + irq + soft + steal) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    """Search, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--example", default="examples/softmax.py")
    parser.add_argument("--search", default="quick")
    parser.add_argument("--seconds", type=float, default=None)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--warm", action="store_true")
    parser.add_argument("--out", type=Path, default=None)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        homes = [Path(folder) / ("all" if asked.warm else str(n)) for n in range(asked.times)]
        runs = [once(asked, home) for home in homes]
    result = {
        "example": asked.example,
        "search": asked.search,
        "warm": asked.warm,
        **{
            f"median_{name}": median(run[name] or 0 for run in runs)
            for name in ("wall_s", "rounds", "judged", "judged_per_minute")
        },
        "runs": runs,
    }
    print(json.dumps(result, indent=1))
    if asked.out:
        asked.out.parent.mkdir(parents=True, exist_ok=True)
        asked.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
