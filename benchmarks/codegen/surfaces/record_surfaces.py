"""Measures the settings spaces of many loops as a whole, to judge search policies on them later.

    python benchmarks/codegen/surfaces/record_surfaces.py OUT --seconds 560
    python benchmarks/codegen/surfaces/record_surfaces.py OUT --seconds 560 --resume
    python benchmarks/codegen/surfaces/record_surfaces.py OUT --seconds 200 --resume --again 120
    python benchmarks/codegen/surfaces/record_surfaces.py OUT --seconds 60
        --only gelu softmax --points 40
    python benchmarks/codegen/surfaces/record_surfaces.py OUT --seconds 120
        --compile-only --points 3
    kernelwright ablate --recorded OUT

Every loop of `surface_modules.py` is traced, lowered and planned as a search does it; of its ways
and their settings up to 1,000 points are drawn evenly under a fixed seed. All processors but one
compile ahead, the last one checks each point once against float64 and times it with a flushed L2
and the host ahead. Loops take turns, a few points each, so that they are equally deep wherever the
time ends; a second call with `--resume` goes on. The fastest of a thousand short timings is mostly
the luckiest: with `--again` the fastest so many of each loop are timed five times as long, and what
that says takes the place of the first look. What does not compile, is wrong or hangs is kept
as such. A kernel that hangs, or takes the device's context along, ends the process, which becomes
another one that goes on behind it. Without a GPU all of it works with `--hardware cpu`;
`--compile-only` compiles for a device that is not there, and keeps what failed.

Lines are written as they are measured; what OUT holds is said in `tools/evaluate/surfaces`.
"""

import argparse
import asyncio
import multiprocessing
import os
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks" / "codegen")]

from surface_modules import MODULES
from surface_space import MOST_POINTS, Planned, planned

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.evaluate.surfaces import (
    Point,
    Space,
    append,
    known_spaces,
    read_points,
)
from kernelwright.tools.languages import (
    Built,
    CompileFailure,
    compile_candidate,
    new_candidate,
)
from kernelwright.tools.types import Candidate, Setting, Verdict

# Points that a loop gets in its turn, and how many compiles are waited for at most.
_SLICE = 8
_AHEAD = 12
# A candidate takes milliseconds, its comparison with the truth included.
_HANGS_S = 20.0
_COMPILE_S = 60.0
# Told every so many seconds.
_TELL_S = 20.0


def build(candidate: Candidate, architecture: str) -> Built | CompileFailure:
    """Compile one candidate; called in a process of the pool."""
    return asyncio.run(
        compile_candidate(candidate, architecture=architecture, timeout_s=_COMPILE_S)
    )


def end_children() -> None:
    """End the processes of the pool; their compilers end with them."""
    for child in multiprocessing.active_children():
        child.kill()


def candidate_of(space: Space, point: Point) -> Candidate:
    """What a coder would hand in for a point."""
    way = space.ways[point.way]
    names = zip(way.tunables, point.values, strict=True)
    settings = [Setting(name=name, value=value) for name, value in names]
    draft = way.draft
    return new_candidate(
        space.language, draft.kernel, draft.plan, settings=settings, strategies=draft.strategies
    )


def in_turns(plans: Sequence[Planned], done: set[tuple]) -> Iterator[tuple[Planned, Point]]:
    """Every loop's next few points, until nobody has any; what is known is left out."""
    waiting = []
    for plan in plans:
        points = (Point(loop=plan.space.name, way=way, values=v) for way, v in plan.order)
        waiting.append((plan, deque(point for point in points if point.key not in done)))
    while any(points for _, points in waiting):
        for plan, points in waiting:
            for _ in range(min(_SLICE, len(points))):
                yield plan, points.popleft()


class Recording:
    """One session: compiles ahead, measures in order, writes down."""

    def __init__(self, options: argparse.Namespace, pool: ProcessPoolExecutor, workers: int):
        self._options, self._pool = options, pool
        self._folder: Path = options.output
        self._room = _AHEAD * workers
        self._hardware = hardware_profile(options.hardware)
        self._end = time.monotonic() + options.seconds
        self._told, self._counts = time.monotonic(), [0, 0]
        self._device = "cpu" if self._hardware.kind == "cpu" else "cuda:0"
        self._loops: dict[str, object] = {}
        self._clock: object = None

    def plans(self, names: Sequence[str], modules: str) -> list[Planned]:
        """What there is to measure, planned side by side; spaces not known yet are kept."""
        known, found = known_spaces(self._folder), []
        most = self._options.points
        jobs = [self._pool.submit(planned, n, self._options.hardware, modules, most) for n in names]
        for name, job in zip(names, jobs, strict=True):
            try:
                plan = job.result()
            except ValueError as error:
                print(error)
                continue
            if name not in known:
                append(self._folder, plan.space)
            elif known[name] != plan.space:
                raise SystemExit(f"{name} was recorded with other kernels; use another folder")
            found.append(plan)
            print(f"{name}: {len(plan.space.ways)} ways, {plan.space.drawn} points", flush=True)
        return found

    def record(self, plans: Sequence[Planned]) -> None:
        """Measure until everything is known or the time is over."""
        done = {point.key for point in read_points(self._folder)}
        if self._options.again:
            done = self._all_but_the_fastest(plans, done)
        todo, ahead = in_turns(plans, done), deque()
        self._fill(ahead, todo)
        while ahead and (left := self._end - time.monotonic()) > 0:
            plan, point, candidate, building = ahead.popleft()
            try:
                built = building.result(timeout=left)
            except TimeoutError:
                break
            point = self._measured(plan, point, candidate, built, done)
            append(self._folder, point)
            self._tell(point)
            self._fill(ahead, todo)
        print(f"{self._counts[0]} points, {self._counts[1]} of them with a time", flush=True)

    def _all_but_the_fastest(self, plans: Sequence[Planned], done: set[tuple]) -> set[tuple]:
        """Everything but what is to be looked at again; eager mode is timed anew as well."""
        from surface_measure import MORE_SAMPLES

        every = {(p.space.name, way, v) for p in plans for way, v in p.order}
        fastest: dict[str, dict[tuple, Point]] = {}
        for point in read_points(self._folder):
            if point.median_ms is not None and point.way >= 0:
                fastest.setdefault(point.loop, {})[point.key] = point
        for of in fastest.values():
            again = [point for point in of.values() if point.samples < MORE_SAMPLES]
            again.sort(key=lambda point: point.median_ms or 0.0)
            left = self._options.again - (len(of) - len(again))
            every -= {point.key for point in again[: max(0, left)]}
        return every

    def _fill(self, ahead: deque, todo: Iterator[tuple[Planned, Point]]) -> None:
        while len(ahead) < self._room and (item := next(todo, None)) is not None:
            plan, point = item
            candidate = candidate_of(plan.space, point)
            building = self._pool.submit(build, candidate, self._hardware.architecture)
            ahead.append((plan, point, candidate, building))

    def _measured(
        self,
        plan: Planned,
        point: Point,
        candidate: Candidate,
        built: Built | CompileFailure,
        done: set[tuple],
    ) -> Point:
        if self._options.compile_only:
            verdict = built.verdict if isinstance(built, CompileFailure) else Verdict.CORRECT
            why = built.message[:200] if isinstance(built, CompileFailure) else ""
            reports = built.reports if isinstance(built, Built) else ()
            found = {"verdict": verdict, "reason": why, "reports": reports}
            return point.model_copy(update=found)
        from surface_measure import context_is_lost, crashed

        timer = threading.Timer(_HANGS_S, self._go_on, [point, Verdict.TIMED_OUT, "it hangs"])
        loop = self._loop(plan, done)
        timer.start()
        try:
            return loop.measured(point, candidate, built)
        except RuntimeError as error:
            found = crashed(point, error)
            if context_is_lost():
                self._go_on(found, found.verdict, found.reason)
            return found
        finally:
            timer.cancel()
            # A kernel is not kept; its cubin on the disk would be of no further use.
            if isinstance(built, Built):
                built.artifact.unlink(missing_ok=True)

    def _loop(self, plan: Planned, done: set[tuple]):
        """The loop with its data on the device; eager mode is timed when it is made."""
        from surface_measure import MORE_SAMPLES, SAMPLES, Clock, Loop

        samples = MORE_SAMPLES if self._options.again else SAMPLES
        name = plan.space.name
        if self._clock is None:
            self._clock = Clock(self._device, int(self._hardware.cache_mib * 2**20))
        if name not in self._loops:
            self._loops[name] = loop = Loop(name, plan.task, self._device, self._clock, samples)
            if (name, -1, ()) not in done:
                append(self._folder, loop.eager())
        return self._loops[name]

    def _go_on(self, point: Point, verdict: Verdict, reason: str) -> None:
        """Keep a point that took the device along, and become another process behind it."""
        append(self._folder, point.model_copy(update={"verdict": verdict, "reason": reason}))
        left = self._end - time.monotonic()
        print(f"{point.loop}, way {point.way}, {point.values}: {reason}; {left:.0f} s left")
        sys.stdout.flush()
        end_children()
        options = self._options
        line = [str(options.output), "--seconds", f"{max(left, 0):.0f}", "--resume"]
        line += ["--hardware", options.hardware, "--points", str(options.points)]
        line += ["--again", str(options.again)] if options.again else []
        line += ["--workers", str(options.workers)] if options.workers else []
        line += ["--only", *options.only] if options.only else []
        os.execv(sys.executable, [sys.executable, __file__, *line])

    def _tell(self, point: Point) -> None:
        self._counts[0] += 1
        self._counts[1] += point.median_ms is not None
        if time.monotonic() - self._told > _TELL_S:
            self._told = time.monotonic()
            left = self._end - self._told
            print(f"{self._counts[0]} points ({point.loop}), {left:.0f} s left", flush=True)


def read_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("output", type=Path, help="a folder")
    parser.add_argument("--seconds", type=float, required=True, help="for everything")
    parser.add_argument("--resume", action="store_true", help="go on with what the folder holds")
    parser.add_argument("--only", nargs="*", default=[], choices=[*MODULES], help="loops")
    parser.add_argument("--points", type=int, default=MOST_POINTS, help="of a loop, at most")
    parser.add_argument("--again", type=int, default=0, help="time the fastest of a loop longer")
    parser.add_argument("--hardware", default="h200")
    parser.add_argument("--workers", type=int, help="processes that compile")
    parser.add_argument("--compile-only", action="store_true", help="no device is there")
    return parser.parse_args()


def main() -> None:
    """Record."""
    options = read_options()
    options.output.mkdir(parents=True, exist_ok=True)
    if not options.resume and any(options.output.glob("*.jsonl")):
        raise SystemExit(f"{options.output} holds a recording; --resume goes on with it")
    workers = options.workers or max(1, (os.cpu_count() or 2) - 1)
    # Torch's own threads would take the processors from the compilers.
    os.environ["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")
    spawn = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as home:
        os.environ.setdefault("KERNELWRIGHT_HOME", home)
        with ProcessPoolExecutor(workers, mp_context=spawn) as pool:
            recording = Recording(options, pool, workers)
            recording.record(recording.plans(options.only or [*MODULES], home))
            # What still compiles is of no use any more, and would hold up the end.
            end_children()


if __name__ == "__main__":
    main()
