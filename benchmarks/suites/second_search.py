"""How much sooner a search is at its result when the library knows its task, or one like it.

    python benchmarks/suites/second_search.py --target cpu --seconds 60 --out second.jsonl
    python benchmarks/suites/second_search.py --target cuda --earlier 20 --home EMPTY_FOLDER
        --seconds 10 --limit-s 500 --out earlier.jsonl

Every example is searched four times in a home of its own: with an empty library, again with what
that left there, and in other shapes with and without it. Told of each: the seconds from the start
to the first candidate whose screened time is within 5 % of the final best's, the seconds to the
end, and how many candidates were judged on the way. It is searched as a region of a model is:
compared with eager and not certified, as torch.compile's baseline and a certification take the same
time with a library and without. Screened times are of one run each, so that a machine's slow
minutes stand on both sides of the 5 %.

With `--earlier` so many loops of `benchmarks/codegen/surface_modules.py` are searched first, into
one library. Then each of their `LIKE` in other shapes is searched with that library, and without
it, by turns first; how long a profile takes on the device is known to both. What the library brings
is the seconds of the one over the other, and what it costs the fastest time of the one over the
other; the first candidate is told beside the final best. Every search is a line of `--out` as soon
as it ended. With `--home` the library stays there, so that the same call goes on where the last one
ended, was cut off by `--limit-s` or lost its device. With `--part K/N` a call makes every N-th
search, so that N GPUs share them: first the earlier ones (`--only earlier`), then what is compared
(`--only compared`), each with an `--out` of its own.
"""

import argparse
import asyncio
import json
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "codegen"))

from surface_modules import MODULES, Module

from kernelwright.graphs.regions.judge import RegionJudge, beside_eager_alone
from kernelwright.graphs.run_view.events import CandidateJudged, Event, RunStarted
from kernelwright.graphs.search.options.run_terms import opened
from kernelwright.graphs.search.run import start_search
from kernelwright.profiles.load import search_profile
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.memory import library_path
from kernelwright.tools.types import Refusal, TracePolicy

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
# Of each example the shapes of its inputs, and of a like one.
TASKS = {
    "softmax": (("4096x1024:float32",), ("3072x1536:float32",)),
    "rms_norm_residual": (
        ("2048x1536:float32", "2048x1536:float32"),
        ("3072x1536:float32", "3072x1536:float32"),
    ),
}
# Loops like the first of the recorded ones, in other shapes.
LIKE = {
    "gated": {"x": "2048, 14336", "y": "2048, 14336"},
    "row_sum_long": {"x": "96, 524288"},
    "middle_max": {"x": "48, 640, 1024"},
    "column_mean": {"x": "8192, 3072"},
    "arg_max": {"x": "4096, 12288"},
    "rms_norm": {"x": "6144, 5120"},
    "group_norm": {"x": "24, 96, 56, 56"},
    "instance_norm": {"x": "24, 48, 112, 112"},
    "batch_norm": {"x": "48, 96, 48, 48"},
    "softmax": {"x": "6144, 3072"},
    "log_softmax_middle": {"x": "24, 192, 3072"},
    "transpose_add": {"x": "6144, 3072", "y": "3072, 6144"},
}
NEAR = 1.05


async def searched(
    file: Path,
    inputs: tuple[str, ...],
    home: Path,
    executor: Executor,
    given: argparse.Namespace,
    *,
    fresh: bool,
) -> dict[str, object]:
    """One search, and when it was where it ended."""
    events: list[Event] = []
    profile = search_profile(given.search)
    summary = await start_search(
        file,
        TracePolicy(inputs=inputs),
        given.target,
        profile.limited(seconds=given.seconds) if given.seconds else profile,
        home=home,
        listener=events.append,
        executor=RegionJudge(executor),
        fresh=fresh,
    )
    if isinstance(summary, Refusal):
        return {"refused": summary.sentence, "screened_ms": None}
    judged = [item for item in events if isinstance(item, CandidateJudged)]
    begun = next(item.at for item in events if isinstance(item, RunStarted))
    screened = [i for i in judged if i.effort == "screen" and i.evaluation.screen is not None]
    best = summary.best.candidate if summary.best else ""
    final = next((_ms(i) for i in screened if i.evaluation.candidate == best), None)
    near = next((i for i in screened if final and _ms(i) <= NEAR * final), None)
    return {
        "status": summary.status,
        "within_5_percent_s": (near.at - begun).total_seconds() if near else None,
        "candidates_until_then": screened.index(near) + 1 if near else None,
        "candidates": len(screened),
        "first_ms": _ms(screened[0]) if screened else None,
        "seconds": summary.seconds,
        "screened_ms": final,
        "stopped_because": summary.stopped_because,
        "phases_s": {phase.name: round(phase.seconds, 2) for phase in executor.spent(str(file))},
    }


def _ms(item: CandidateJudged) -> float:
    assert item.evaluation.screen is not None
    return item.evaluation.screen.median_ms


async def after_others(given: argparse.Namespace) -> list[dict[str, object]]:
    """So many loops into one library, and then their like with it and without."""
    rows = rows_of(given.out)
    done = {(row["example"], row["search"]) for row in rows}
    known = dict(islice(MODULES.items(), given.earlier))
    like = {name: replace(known[name], inputs=of) for name, of in LIKE.items() if name in known}
    known = {} if given.only == "compared" else share(known, given.part)
    like = {} if given.only == "earlier" else share(like, given.part)
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kernelwright-earlier-") as folder:
        home = given.home or Path(folder)
        home.mkdir(parents=True, exist_ok=True)
        async with opened(None, given.target) as judge, beside_eager_alone(judge):
            for name, search, text in searches(known, like):
                if (name, search) in done:
                    continue
                if time.monotonic() - began_s > given.limit_s:
                    print("the time is over; the same call goes on")
                    break
                file = home / (f"{name}.py" if search == EARLIER else f"like_{name}.py")
                file.write_text(text)
                told(rows, given, name, search, await once(file, home, judge, given, search))
    compared(rows)
    return rows


def share(modules: dict[str, Module], part: str) -> dict[str, Module]:
    """Every N-th of them from the K-th, of a part "K/N"."""
    first, every = (int(word) for word in part.split("/"))
    return dict(islice(modules.items(), first - 1, None, every))


EARLIER, WITH, WITHOUT = "earlier", "library", "without"


def searches(known: dict[str, Module], like: dict[str, Module]) -> Iterator[tuple[str, str, str]]:
    """Loop, which search and the file's text: the earlier ones, then their like by turns first."""
    for name, module in known.items():
        yield name, EARLIER, module.text
    for number, (name, module) in enumerate(like.items()):
        for search in (WITH, WITHOUT) if number % 2 else (WITHOUT, WITH):
            yield name, search, module.text


async def once(
    file: Path, home: Path, judge: Executor, given: argparse.Namespace, search: str
) -> dict[str, object]:
    """An earlier search into the library, or one with what those left there, or without."""
    if search == EARLIER:
        return await searched(file, (), home, judge, given, fresh=False)
    with tempfile.TemporaryDirectory() as own:
        # As the earlier ones left it, each time; what is known of the device's pace both have.
        if (home / "pace").is_dir():
            shutil.copytree(home / "pace", Path(own) / "pace")
        if search == WITH:
            shutil.copy(library_path(home), library_path(Path(own)))
        return await searched(file, (), Path(own), judge, given, fresh=search == WITHOUT)


def rows_of(out: Path | None) -> list[dict[str, object]]:
    """The searches that stand in the file already."""
    if out is None or not out.exists():
        return []
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    return [line for line in lines if "example" in line]


def told(
    rows: list[dict[str, object]],
    given: argparse.Namespace,
    name: str,
    search: str,
    row: dict[str, object],
) -> None:
    """Keep a search's row, and print it."""
    rows.append({"example": name, "search": search, **row})
    kept(given, rows[-1])
    print(json.dumps(rows[-1]), flush=True)


def kept(given: argparse.Namespace, line: dict[str, object]) -> None:
    """Write a line at the file's end."""
    if given.out is not None:
        with given.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def compared(rows: list[dict[str, object]]) -> None:
    """Print what the library brought."""
    of = {(row["example"], row["search"]): row for row in rows}
    names = [name for name in LIKE if (name, "library") in of and (name, "without") in of]
    pairs = [(of[name, "library"], of[name, "without"]) for name in names]
    pairs = [pair for pair in pairs if all(row["screened_ms"] for row in pair)]
    if not pairs:
        return
    started = median(with_it["first_ms"] / with_it["screened_ms"] for with_it, _ in pairs)
    seconds = median(with_it["seconds"] / without["seconds"] for with_it, without in pairs)
    times = median(with_it["screened_ms"] / without["screened_ms"] for with_it, without in pairs)
    print(f"{len(pairs)} pairs, medians: first over final {started:.3f}, seconds {seconds:.2f}, ")
    print(f"final time with over without {times:.3f}")


async def measured(given: argparse.Namespace) -> list[dict[str, object]]:
    """Every search of every example."""
    rows: list[dict[str, object]] = []
    for name, (same, like) in TASKS.items():
        with tempfile.TemporaryDirectory(prefix="kernelwright-second-") as folder:
            home = Path(folder)
            for words, inputs, fresh in (
                ("empty library", same, True),
                ("same task", same, False),
                ("other shapes, library", like, False),
                ("other shapes, without", like, True),
            ):
                file = EXAMPLES / f"{name}.py"
                async with opened(None, given.target) as judge, beside_eager_alone(judge):
                    found = await searched(file, inputs, home, judge, given, fresh=fresh)
                told(rows, given, name, words, found)
    return rows


def main() -> None:
    """Measure, and keep what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--search", default="quick")
    parser.add_argument("--seconds", type=float, help="of a search; else its profile's own")
    parser.add_argument("--earlier", type=int, default=0, help="searches before, of other loops")
    parser.add_argument("--home", type=Path, help="where the earlier ones' library stays")
    parser.add_argument("--part", default="1/1", help="every N-th loop from the K-th, as K/N")
    parser.add_argument("--only", default="", choices=["earlier", "compared"])
    parser.add_argument("--limit-s", type=float, default=math.inf, help="then none is begun")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.out is not None and given.out.exists() and not (given.earlier and given.home):
        parser.error(f"{given.out} exists; only --earlier with its --home goes on with a file")
    conditions = {
        "at": datetime.now(UTC).isoformat(),
        "processors": os.cpu_count(),
        "load_average": os.getloadavg(),
        "search": given.search,
        "seconds": given.seconds,
    }
    kept(given, conditions)
    asyncio.run(after_others(given) if given.earlier else measured(given))


if __name__ == "__main__":
    main()
