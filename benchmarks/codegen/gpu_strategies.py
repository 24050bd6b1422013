"""Times every CUDA strategy of the playbook on loops of the sizes that suites use.

For each problem every strategy is compiled under its default setting, under settings that differ
from it in one tunable, and a few random ones, checked against float64, and timed with a flushed
L2. The share of the floor is the bytes that must move over the measured copy bandwidth. One JSON
line a measurement is written as it is made, so a run that is cut short loses nothing; a table of
the best ends each problem.

    python benchmarks/codegen/gpu_strategies.py results.jsonl --seconds 540 --settings 6
        --only softmax
    python benchmarks/codegen/gpu_strategies.py results.jsonl --round long

A round is a fixed choice of problems, strategies and seconds: `long` looks at rows that fit no
block, scans and column reductions, in less than two minutes; `long2` tries chosen settings of what
keeps long rows on chip, beside what was the fastest before, in 75 seconds; `windows` tries what
pooling and depthwise convolutions can be made of (a tile a thread, lines staged by a block, output
by output), in 75 seconds too, `window_sums` windows as reductions, several in one loop, in 120, and
`channel_windows` those of each channel with channels last, beside the library's, in 240;
`streams` what a plain stream of reads and writes depends on; `rows` looks at what row strategies
try first, and at what may be better, in 40 seconds; `scans` what reads that are shifted by one
element cost a scan, in 30; `waves` looks at blocks that run all at once, in 60; `turned` at rows
that are stored beside each other, in 60; `products` at products of matrices beside the library's,
in 300; `halves` at those of fp16 and how blocks share them, in 120, `layers` at those of
transformers, in 70, and `sides` at epilogues that tell parts of their rows apart, in 50; `depth` at
long sums of few results and short ones of many, in 60; `convolutions` at these, old ways and new,
in 360. Each entry has the device's time of every kernel of one call. To see the bytes that moved:

    ncu --clock-control none --profile-from-start off --csv \
        --metrics dram__bytes_read.sum,dram__bytes_write.sum,gpu__time_duration.sum \
        python benchmarks/codegen/gpu_strategies.py counted.jsonl --round counted --counted

What is not covered: library baselines beyond one eager call, and clocks (read those beside it).
"""

import argparse
import asyncio
import os
import random
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch
from strategies.bench import Bench, Expected, drawn, kernels_us
from strategies.loops import Problem
from strategies.rounds import ROUNDS, problems

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.candidates import valid_settings
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.ir import Strategy
from kernelwright.tools.codegen.library.assemble import assemble
from kernelwright.tools.languages import (
    CompileFailure,
    compile_candidate,
    load_candidate,
    new_candidate,
    parse_kernel,
    shutdown_compilers,
    with_settings,
)
from kernelwright.tools.types import Candidate, Setting


def settings_to_try(listed: list[tuple[Setting, ...]], count: int) -> list[tuple[Setting, ...]]:
    """The default, what differs from it in one tunable, then others at random."""
    default, *rest = listed

    def distance(setting: tuple[Setting, ...]) -> int:
        return sum(one.value != two.value for one, two in zip(setting, default, strict=True))

    near = [setting for setting in rest if distance(setting) == 1]
    far = [setting for setting in rest if distance(setting) > 1]
    mixed = random.Random(1)
    mixed.shuffle(near)
    mixed.shuffle(far)
    return [default, *near, *far][:count]


def chosen_candidates(
    problem: Problem, hardware: Hardware, chosen: list[tuple[str, str]]
) -> list[tuple[Strategy, Candidate]]:
    """One candidate for each (part of a strategy's name, changes to its default setting)."""
    emitter, made = CudaEmitter(), []
    strategies = emitter.strategies(problem.loop, hardware)
    for word, changes in chosen:
        found = sorted((one for one in strategies if word in one.name), key=lambda s: len(s.name))
        strategy = next(iter(found), None)
        if strategy is None:
            raise ValueError(f"{problem.name} has no strategy {word}")
        text = assemble(problem.program, emitter, {problem.loop.name: strategy}, hardware)
        default = valid_settings(parse_kernel(text.kernel, "cuda"))[0]
        wanted = {name: int(value) for name, value in (c.split("=") for c in changes.split())}
        kernel = text.kernel
        for name, value in wanted.items():
            # Values that a search would not try are looked at too.
            kernel = re.sub(rf"(// tune: \w+_{name} in .*)", rf"\1, {value}", kernel)
        base = new_candidate("cuda", kernel, text.plan)
        setting = tuple(
            one.model_copy(update={"value": wanted.get(one.name.split("_")[-1], one.value)})
            for one in default
        )
        try:
            made.append((strategy, with_settings(base, setting)))
        except ValueError as error:
            # What does not fit this problem's shared memory, say, may fit another's.
            print(f"{problem.name}, {changes}: {error}")
    return made


def candidates(
    problem: Problem, hardware: Hardware, settings: int, only: tuple[str, ...]
) -> list[tuple[Strategy, Candidate]]:
    """Candidates in the order to try them: every strategy's default, then further settings."""
    emitter, queues = CudaEmitter(), []
    for strategy in emitter.strategies(problem.loop, hardware):
        if only and not any(word in strategy.name for word in only):
            continue
        text = assemble(problem.program, emitter, {problem.loop.name: strategy}, hardware)
        base = new_candidate("cuda", text.kernel, text.plan)
        listed = valid_settings(parse_kernel(text.kernel, "cuda"))
        tried = settings_to_try(listed, settings)
        queues.append([(strategy, with_settings(base, setting)) for setting in tried])
    return [q[i] for i in range(settings) for q in queues if i < len(q)]


# A candidate takes a second, its comparison with the truth included.
HANGS_S = 25.0


def context_is_lost() -> bool:
    """Whether nothing can run on the device from this process any more."""
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


async def measure(
    bench: Bench,
    problem: Problem,
    listed: list[tuple[Strategy, Candidate]],
    seconds: float,
    begin: int,
    anew: Callable[[int], None],
) -> None:
    """Compile, check and time a problem's candidates, from one on, until its time is over.

    A candidate that hangs, or takes the device's context along, is left behind: `anew` becomes
    another process that begins with the next one.
    """
    end = time.monotonic() + seconds
    data = drawn(problem)
    expected = Expected(problem, data)
    floor = problem.moved_bytes / BANDWIDTH["gb_s"] / 1e6
    problem.eager(data)  # libraries choose their kernels in the first call
    eager = bench.median_ms(lambda: problem.eager(data), 5)
    bench.write(problem=problem.name, kind="eager", ms=eager, floor_ms=floor)
    builds = [
        asyncio.ensure_future(
            compile_candidate(one, architecture=bench.hardware.architecture, timeout_s=60)
        )
        for _, one in listed[begin:]
    ]
    rows = []
    tried = enumerate(zip(listed[begin:], builds, strict=True), begin)
    for at, ((strategy, candidate), building) in tried:
        if time.monotonic() > end:
            building.cancel()
            continue
        shown = " ".join(f"{s.name.split('_')[-1]}={s.value}" for s in candidate.settings)
        entry = {"problem": problem.name, "strategy": strategy.name, "settings": shown}

        def hangs(entry: dict = entry, at: int = at) -> None:
            bench.write(**entry, failure=f"not done within {HANGS_S:g} s")
            anew(at + 1)

        timer = threading.Timer(HANGS_S, hangs)
        try:
            built = await building
            timer.start()
            entry |= _one(bench, problem, candidate, built, data, expected)
        except Exception as error:
            entry["failure"] = f"{type(error).__name__}: {error}"[:400]
        finally:
            timer.cancel()
        bench.write(**entry)
        rows.append(entry)
        if "failure" in entry and context_is_lost():
            _table(problem, rows, floor, eager)
            anew(at + 1)
    _table(problem, rows, floor, eager)


@contextmanager
def counted(bench: Bench) -> Iterator[None]:
    """What Nsight Compute looks at, where it was started with --profile-from-start off."""
    if bench.counted:
        torch.cuda.profiler.start()
    yield
    if bench.counted:
        torch.cuda.profiler.stop()


def _one(bench, problem: Problem, candidate: Candidate, built, data, expected) -> dict:
    if isinstance(built, CompileFailure):
        return {"failure": built.message[:400]}
    runner = load_candidate(candidate, built, "cuda:0")
    args = [data[name] for name in problem.program.parameters]
    with counted(bench):
        outputs = dict(zip(problem.program.returns, runner(args, {}), strict=True))
        torch.cuda.synchronize()
    error = expected.worst_error(outputs)
    del outputs
    reports = [(r.registers, r.spill_bytes) for r in built.reports] if built.reports else []
    ms = bench.median_ms(lambda: runner(args, {}))
    kernels = {} if bench.counted else kernels_us(lambda: runner(args, {}))
    return {"ms": ms, "error": error, "reports": reports, "kernels_us": kernels}


def _table(problem: Problem, rows: list[dict], floor: float, eager: float) -> None:
    print(f"\n{problem.name}: floor {floor:.3f} ms, eager {eager:.3f} ms, {len(rows)} candidates")
    timed = sorted((row for row in rows if "ms" in row), key=lambda row: row["ms"])
    seen: dict[str, int] = {}
    for row in timed:
        seen[row["strategy"]] = seen.get(row["strategy"], 0) + 1
        if seen[row["strategy"]] == 1:
            share = floor / row["ms"]
            print(
                f"  {row['strategy']:44s} {row['ms']:9.3f} ms  {share:5.1%} of the floor  "
                f"error {row['error']:.1e}  {row['settings']}"
            )
    failures: dict[str, str] = {}
    for row in rows:
        if "failure" in row:
            failures.setdefault(row["strategy"], row["failure"])
    for strategy, failure in failures.items():
        print(f"  {strategy:44s} FAILED {failure[:160]}")
    sys.stdout.flush()


def go_on(options: argparse.Namespace, names: list[str], begin: int, seconds: float) -> None:
    """Become another process that measures what is left; the device is free again then."""
    line = [str(options.output), "--round", options.round, "--seconds", f"{max(seconds, 1):.0f}"]
    line += ["--hardware", options.hardware, "--begin", str(begin)]
    line += ["--counted"] if options.counted else []
    line += ["--settings", str(options.settings)] if options.settings else []
    line += ["--strategies", *options.strategies] if options.strategies else []
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, __file__, *line, "--only", *names])


BANDWIDTH = {"gb_s": 1.0}


async def main() -> None:
    """Measure every problem that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--round", choices=ROUNDS, default="all")
    parser.add_argument("--seconds", type=float, help="for everything")
    parser.add_argument("--settings", type=int, help="tried for each strategy")
    parser.add_argument("--hardware", default="H200")
    parser.add_argument("--only", nargs="*", default=[], help="problems")
    parser.add_argument("--strategies", nargs="*", default=[], help="parts of their names")
    parser.add_argument("--counted", action="store_true", help="mark one call for ncu")
    parser.add_argument(
        "--begin", type=int, help="go on with the first problem's candidate of this number"
    )
    options = parser.parse_args()
    chosen = ROUNDS[options.round]
    end = time.monotonic() + (options.seconds or chosen.seconds)
    goes_on = options.begin is not None
    bench = Bench(options.output, hardware_profile(options.hardware), goes_on=goes_on)
    bench.counted = options.counted
    BANDWIDTH["gb_s"] = bench.copy_gb_s()
    print(f"{torch.cuda.get_device_name()}: copy {BANDWIDTH['gb_s']:.0f} GB/s")
    names, words = options.only or chosen.problems, options.strategies or chosen.strategies
    wanted = [name for name in problems() if not names or name in names]
    for at, name in enumerate(wanted):
        left = end - time.monotonic()
        if left < 3:
            print(f"no time left for {', '.join(wanted[at:])}")
            break
        try:
            share = left / (len(wanted) - at)
            settings = options.settings or chosen.settings
            problem = problems()[name]()
            mine = [(word, changes) for at, word, changes in chosen.chosen if at == name]
            if mine and not options.strategies:
                listed = chosen_candidates(problem, bench.hardware, mine)
            else:
                listed = candidates(problem, bench.hardware, settings, tuple(words))
            begin = 0 if at else options.begin or 0

            def anew(begin: int, names: list[str] = wanted[at:]) -> None:
                go_on(options, names, begin, end - time.monotonic())

            await measure(bench, problem, listed, share, begin, anew)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}")
            bench.write(problem=name, failure=str(error)[:400])
        torch.cuda.empty_cache()
    shutdown_compilers()


if __name__ == "__main__":
    asyncio.run(main())
