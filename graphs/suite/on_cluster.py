"""Runs a suite on a cluster: many searches at once, whose candidates share its devices.

All searches think here, in one process; each asks for its own candidates, and the scheduler gives
them to whichever device is free. A file is searched once for every kind of device that is asked
for, so that there is a result for each. A device that is lost costs the jobs that it had begun.

Not covered: many more devices than one process can think for. Files can be shared among several
such processes by hand (`--match`); each then has devices of its own.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path

from kernelwright.graphs.search.session import import_beforehand
from kernelwright.graphs.suite.outcome import Outcome, Terms
from kernelwright.graphs.suite.runner import Begun, Ground, OneFile
from kernelwright.profiles.load import SearchProfile
from kernelwright.tools.evaluate.executors.base.kind import ExecutorChoice
from kernelwright.tools.evaluate.executors.cluster.executor import Cluster, RayExecutor
from kernelwright.tools.types import TracePolicy

# Of searches for each device: while one thinks or compiles, another one's candidate is judged.
SEARCHES = 1.5
# Candidates wait for devices, and a file's time limit is no limit on that.
_LONGER = 4.0


async def run_on_cluster(
    files: Sequence[tuple[Path, str]],
    profile: SearchProfile | None,
    terms: Terms,
    ground: Ground,
    cluster: Cluster,
    *,
    begun: Begun = lambda path: None,
) -> AsyncIterator[Outcome]:
    """Search every file on the kind of device that stands beside it.

    Args:
        files: The tasks, each with a kind of device.
        profile: How much each search may spend; None measures only baselines.
        terms: Stand in every outcome.
        ground: Where runs are kept, and by whom they are thought; its executor is not used.
        cluster: Has the devices; it stays its owner's.
        begun: Told when a file's turn comes; gives who listens to its search.

    Raises:
        EnvironmentLacksError: When there is no cluster, or it has no device of such a kind.
    """
    for kind in dict.fromkeys(kind for _, kind in files):
        await cluster.some(kind)
    if profile is not None and ground.make_agents is None:
        await asyncio.to_thread(import_beforehand, ground.target, ground.models)
    left, told = deque(files), asyncio.Queue[Outcome | None]()

    async def work() -> None:
        try:
            while left:
                path, kind = left.popleft()
                await told.put(await _one(path, kind, profile, terms, ground, cluster, begun))
        finally:
            await told.put(None)

    searches = max(1, min(len(files), ceil(SEARCHES * cluster.devices)))
    working = [asyncio.create_task(work()) for _ in range(searches)]
    try:
        while searches:
            item = await told.get()
            searches -= item is None
            if item is not None:
                yield item
        await asyncio.gather(*working)
    finally:
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)


async def _one(
    path: Path,
    kind: str,
    profile: SearchProfile | None,
    terms: Terms,
    ground: Ground,
    cluster: Cluster,
    begun: Begun,
) -> Outcome:
    """One file on one kind of device."""
    executor = RayExecutor(cluster, kind, seed=terms.seed, rules=ground.rules, owned=False)
    choice = ExecutorChoice(name="ray", kind=kind, cluster=cluster.ground.address)
    here = replace(ground, choice=choice, besides_s=_LONGER * ground.besides_s)
    reading = executor.trace(path, TracePolicy(load_seconds=ground.load_seconds))
    try:
        found = await OneFile(executor, path, terms, here).run(reading, profile, begun(path))
    finally:
        await executor.aclose()
    return found.model_copy(update={"device": kind})
