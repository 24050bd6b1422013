"""Where a candidate's call spends its time, and hardware counters where they can be read."""

import asyncio
import time

from kernelwright.tools.evaluate.executors.local.workshop import Workshop
from kernelwright.tools.evaluate.messages import ProfileRequest
from kernelwright.tools.evaluate.profiling.local import not_profiled, profile_here
from kernelwright.tools.evaluate.profiling.standby import Standby
from kernelwright.tools.evaluate.sandbox.keeper import Keeper
from kernelwright.tools.evaluate.seeds import fresh_seed
from kernelwright.tools.languages import CompileFailure, compile_candidate, language_of
from kernelwright.tools.types import Candidate, Phase, Profile, Task


class Profiles:
    """Profiles candidates, in a worker beside the judge's where a profiler would slow that down."""

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        aside = shop.scratch / "aside"
        self._aside = Keeper(aside, shop.rules, shop.device, shop.lease)
        self._counter = Standby(shop.scratch / "profiles")

    def prepare(self, task: Task) -> None:
        """Start in the background what will profile a candidate of this task, if anybody asks.

        That is what counts hardware events, and at first the worker that records times. Not on a
        CPU, whose times a start would disturb, nor where many share a device.
        """
        shop = self._shop
        if shop.device == "cuda" and shop.alone and shop.rules.evidence != "timing":
            self._counter.prepare(task, self._shop.rules)
            if not self._aside.questions:
                self._aside.prepare(compiler=False)

    async def of(self, task: Task, candidate: Candidate) -> Profile:
        """Everything that can be measured of a candidate here."""
        shop = self._shop
        hardware = await shop.hardware()
        built = await compile_candidate(
            candidate, architecture=hardware.architecture, timeout_s=shop.rules.compile_s
        )
        if isinstance(built, CompileFailure):
            return not_profiled(candidate, built)
        request = ProfileRequest(
            task=task,
            hardware=hardware,
            rules=shop.rules,
            candidate=candidate,
            built=built,
            seed=fresh_seed(shop.seed, task.source_sha256, candidate.id, "profile"),
        )
        start = time.perf_counter()
        code = await language_of(candidate).inspect(candidate, hardware.architecture)
        reading_s = time.perf_counter() - start
        async with shop.lease:
            found = await profile_here(request, shop.keeper, self._aside, self._counter)
        shop.keeper.stands_beside(self._aside)  # whose worker stays, and is nobody's company
        self.prepare(task)
        seconds = found.seconds + reading_s
        shop.note(task.path, Phase(name="profile: all", seconds=seconds))
        return found.model_copy(update={"code": code, "seconds": seconds})

    async def aclose(self) -> None:
        """End the worker beside the judge's, and what stands ready."""
        await asyncio.gather(self._aside.aclose(), self._counter.aclose())
