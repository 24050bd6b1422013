"""How much sooner a search is at its result when the library knows its task, or one like it.

    python benchmarks/suites/second_search.py --target cpu --seconds 60 --out second.json

Every example is searched four times in a home of its own: with an empty library, again with what
that left there, and in other shapes with and without it. Told of each: the seconds from the start
to the first candidate whose screened time is within 5 % of the final best's, the seconds to the
end, and how many candidates were judged on the way. It is searched as a region of a model is:
compared with eager and not certified, as torch.compile's baseline and a certification take the same
time with a library and without. Screened times are of one run each, so that a machine's slow
minutes stand on both sides of the 5 %.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kernelwright.graphs.regions.judge import RegionJudge
from kernelwright.graphs.run_view.events import CandidateJudged, Event, RunStarted
from kernelwright.graphs.search.options.run_terms import opened
from kernelwright.graphs.search.run import start_search
from kernelwright.profiles.load import search_profile
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
NEAR = 1.05


async def searched(
    name: str, inputs: tuple[str, ...], home: Path, given: argparse.Namespace, *, fresh: bool
) -> dict[str, object]:
    """One search, and when it was where it ended."""
    events: list[Event] = []
    async with opened(None, given.target) as executor:
        summary = await start_search(
            EXAMPLES / f"{name}.py",
            TracePolicy(inputs=inputs),
            given.target,
            search_profile(given.search).limited(seconds=given.seconds),
            home=home,
            listener=events.append,
            executor=RegionJudge(executor),
            fresh=fresh,
        )
    if isinstance(summary, Refusal):
        raise SystemExit(f"{name}: {summary.sentence}")
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
        "seconds": summary.seconds,
        "screened_ms": final,
        "stopped_because": summary.stopped_because,
    }


def _ms(item: CandidateJudged) -> float:
    assert item.evaluation.screen is not None
    return item.evaluation.screen.median_ms


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
                found = await searched(name, inputs, home, given, fresh=fresh)
                rows.append({"example": name, "search": words, **found})
                print(json.dumps(rows[-1]), flush=True)
    return rows


def main() -> None:
    """Measure, and keep what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--search", default="quick")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    rows = asyncio.run(measured(given))
    conditions = {
        "at": datetime.now(UTC).isoformat(),
        "processors": os.cpu_count(),
        "load_average": os.getloadavg(),
        "search": given.search,
        "seconds": given.seconds,
    }
    if given.out is not None:
        given.out.write_text(json.dumps({"conditions": conditions, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
