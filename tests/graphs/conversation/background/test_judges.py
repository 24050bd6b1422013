"""One device between several people: who waits is told how many are before them."""

import asyncio
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.graphs.conversation.background.judges import Judges
from kernelwright.tools.archive import Target
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.evaluate.sandbox.device_queue import Lease

pytestmark = pytest.mark.asyncio


async def test_a_search_that_waits_for_anothers_measuring_says_so(
    toy: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases: list[Lease] = []

    def make(target: Target, scratch: Path, lease: Lease) -> Executor:
        leases.append(lease)
        made: Executor = toy.ToyExecutor()
        return made

    judges = Judges("cpu", tmp_path, make)
    async with judges.of("ann"), judges.of("bob"):
        ann, bob = leases
        async with ann:
            measuring = asyncio.create_task(_once(bob))
            await asyncio.sleep(0)
            monkeypatch.setattr(
                "kernelwright.graphs.conversation.background.judges.WORTH_SAYING_S", 3600.0
            )
            assert judges.ahead("bob") == 0, "a short wait is over before anybody has read of it"
            monkeypatch.setattr(
                "kernelwright.graphs.conversation.background.judges.WORTH_SAYING_S", 1e-6
            )
            await asyncio.sleep(0.01)
            assert (judges.ahead("bob"), judges.ahead("ann")) == (1, 0)
        await measuring
        assert judges.ahead("bob") == judges.ahead("a stranger") == 0
    await judges.aclose()


@pytest.mark.parametrize("ready", [0, 1])
async def test_no_more_workers_stand_ready_than_are_asked_for(tmp_path: Path, ready: int) -> None:
    judges = Judges("cpu", tmp_path, ready=ready)
    async with judges.of("ann"):
        for _ in range(50):  # whatever can begin has begun
            await asyncio.sleep(0)
    started = await asyncio.to_thread(lambda: len(list(tmp_path.glob(".spares/*"))))
    await judges.aclose()
    assert started == ready


async def _once(lease: Lease) -> None:
    async with lease:
        pass
