"""Searches on this CPU whose model's server misbehaves: does every one end with its best so far?

Each kind of fault of `misbehaving_server.py` is injected at least `--each` times: first into every
answer of a search, then into every second one, until the count is reached. Judge, compiler, graph,
archive and HTTP are the real ones; only the model's good answers are written here. A run counts as
sound when it finished, said what went wrong, and its summary holds a correct candidate.

    python benchmarks/models/faults.py --each 10 --out benchmarks/results/cpu/faults.json

Not covered: servers that deceive (an answer that is well formed and wrong is the judge's business),
and several models at once.
"""

import argparse
import asyncio
import itertools
import json
import platform
import tempfile
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from misbehaving_server import MODEL, Fault, MisbehavingServer

from kernelwright.graphs.run_view.events import Event, ModelCalled, Noted
from kernelwright.graphs.search.run import start_search
from kernelwright.profiles.load import ModelProfile, Models, search_profile
from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.types import TracePolicy
from kernelwright.tools.types.run import Summary

TASK = Path(__file__).resolve().parents[2] / "examples" / "softmax.py"
INPUTS = ("512x2048:float32",)
# More runs than this for one kind would mean that its fault is hardly ever met.
MOST_RUNS = 8
KERNEL = """A row at a time, the exponentials kept where the row was.

```cpp
// memory=rows in cache
// compute=lanes
// parallel=rows
#include "kernelwright.hpp"
// tune: LANES in 16, 32
// variant {number}
extern "C" void rows(const float* x, float* y, int64_t rows, int64_t columns) {{
#pragma omp parallel for
    for (int64_t row = 0; row < rows; ++row) {{
        const float* const from = x + row * columns;
        float* const to = y + row * columns;
        kw::Max<float, LANES> highest;
        kw::lanes<LANES>(columns, [&](int64_t j, int l) {{ highest.add(l, from[j]); }});
        highest.fold();
        const float top = highest.total.value();
        kw::Sum<float, LANES> sum;
        kw::lanes<LANES>(columns, [&](int64_t j, int l) {{
            to[j] = kw::exp_below(from[j] - top);
            sum.add(l, to[j]);
        }});
        sum.fold();
        const float scale = float(1.0 / sum.total.value());
        kw::lanes<LANES>(columns, [&](int64_t j, int) {{ to[j] *= scale; }});
    }}
}}
```
```python
def forward(x):
    rows, columns = x.shape
    y = empty_like(x)
    launch("rows", args=(x, y, rows, columns))
    return y
```
"""


def good_answers() -> Callable[[list[dict[str, str]]], str]:
    """What the model would say if its server let it: one playbook's idea, one of its own."""
    turns = itertools.count(1)

    def answer(messages: list[dict[str, str]]) -> str:
        number, asked = next(turns), messages[0]["content"]
        if asked.startswith("You plan"):
            return json.dumps({"reasoning": "rows are read twice", "ideas": ideas(number)})
        if asked.startswith(("You write", "You repair")):
            return KERNEL.format(number=number)
        return json.dumps({"explains": [], "implies": "", "next": [], "words": "", "text": ""})

    return answer


def ideas(number: int) -> list[dict]:
    """Two ideas that were not there before."""
    own = f"pass number {number} over rows that stay in the cache of core {number}"
    shared = {"reason": "half the traffic", "category": "memory", "predicted_ms": 1.0}
    return [
        {"title": "the playbook's first", "mechanism": "as it says", "playbook": "P1", **shared},
        {"title": own, "mechanism": f"{own}: exponentials are kept, not computed again", **shared},
    ]


async def one(executor: LocalExecutor, faults: object, home: Path) -> dict:
    """One search behind such a server."""
    events: list[Event] = []
    update = {"rounds": 2, "ideas_per_round": 2, "seconds": 60.0, "tuning_trials": 2}
    profile = search_profile("careful").model_copy(update=update)
    with MisbehavingServer(good_answers(), faults, stall_s=4.0) as server:
        known = {"name": "loopback", "model": MODEL, "base_url": server.base_url}
        known |= {"timeout_s": 2.0, "retry_wait_s": 0.05, "retries": 2}
        models = Models.same(ModelProfile.model_validate(known))
        began = time.monotonic()
        summary = await start_search(
            TASK, TracePolicy(inputs=INPUTS), "cpu", profile,
            home=home, executor=executor, models=models, listener=events.append,
        )  # fmt: skip
        seconds = time.monotonic() - began
    assert isinstance(summary, Summary), summary
    calls = [event for event in events if isinstance(event, ModelCalled)]
    return {
        "run": summary.run,
        "seconds": seconds,
        "requests": len(server.served),
        "injected": sum(fault is not Fault.NONE for fault in server.served),
        "calls": len(calls),
        "calls_without_answer": sum(bool(event.failure) for event in calls),
        "notes": sum(isinstance(event, Noted) for event in events),
        "status": summary.status,
        "rounds": summary.rounds,
        "correct": summary.candidates.correct,
        "best_ms": summary.best.median_ms if summary.best else None,
        "sound": summary.status not in ("failed", "stopped") and summary.best is not None,
    }


async def of_kind(executor: LocalExecutor, kind: Fault, each: int, home: Path) -> dict:
    """Runs until the fault was injected often enough."""
    runs: list[dict] = []
    while sum(run["injected"] for run in runs) < each and len(runs) < MOST_RUNS:
        pattern = (kind,) if len(runs) % 2 == 0 else (kind, Fault.NONE)
        try:
            runs.append(await one(executor, itertools.cycle(pattern), home))
        except Exception as error:  # a run that ends so is what this script looks for
            words = f"{type(error).__name__}: {error}"
            runs.append({"sound": False, "status": words, "injected": 0})
    done = {"fault": kind.value, "injected": sum(run["injected"] for run in runs), "runs": runs}
    sound = sum(run["sound"] for run in runs)
    print(f"{kind.value:45} {done['injected']:4} injected, {sound} of {len(runs)} runs sound")
    return done


async def every_kind(each: int, scratch: Path) -> list[dict]:
    """All kinds, one after the other, on one judge."""
    executor = LocalExecutor.create("cpu", scratch / "work")
    try:
        kinds = [kind for kind in Fault if kind is not Fault.NONE]
        return [await of_kind(executor, kind, each, scratch / "home") for kind in kinds]
    finally:
        await executor.aclose()


def main() -> None:
    """See the module; exit status 1 when a run was not sound."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--each", type=int, default=10)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kernelwright-faults-") as scratch:
        kinds = asyncio.run(every_kind(arguments.each, Path(scratch)))
    runs = [run for kind in kinds for run in kind["runs"]]
    record = {
        "when": datetime.now().astimezone().isoformat(timespec="seconds"),
        "machine": platform.processor() or platform.machine(),
        "kinds": len(kinds),
        "injected": sum(kind["injected"] for kind in kinds),
        "runs": len(runs),
        "sound": sum(run["sound"] for run in runs),
        "by_kind": kinds,
    }
    print({name: record[name] for name in ("kinds", "injected", "runs", "sound")})
    if arguments.out:
        arguments.out.write_text(json.dumps(record, indent=1) + "\n")
    raise SystemExit(record["sound"] != record["runs"])


if __name__ == "__main__":
    main()
