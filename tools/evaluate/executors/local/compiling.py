"""Compiles candidates outside the device's lease, some before they are asked about."""

import asyncio
from collections.abc import Sequence

from kernelwright.tools.evaluate.defences import Defence
from kernelwright.tools.evaluate.executors.local.workshop import Workshop
from kernelwright.tools.languages import Built, CompileFailure, compile_candidate
from kernelwright.tools.types import Candidate

_Compiled = Built | CompileFailure


class Compiling:
    """Objects of candidates; what was begun beforehand is waited for and not compiled twice."""

    def __init__(self, shop: Workshop) -> None:
        self._shop = shop
        self._begun: dict[str, asyncio.Task[_Compiled]] = {}

    def begin(self, candidates: Sequence[Candidate]) -> None:
        """Compile these in the background; on a CPU that would disturb others' times."""
        if self._shop.device != "cuda":
            return
        for candidate in candidates:
            if candidate.id not in self._begun:
                self._begun[candidate.id] = asyncio.create_task(self._compile(candidate))

    async def of(self, candidate: Candidate) -> _Compiled:
        """The object of a candidate, or why there is none."""
        begun = self._begun.pop(candidate.id, None)
        return await (begun or self._compile(candidate))

    async def aclose(self) -> None:
        """End what nobody waits for."""
        for begun in self._begun.values():
            begun.cancel()
        await asyncio.gather(*self._begun.values(), return_exceptions=True)
        self._begun = {}

    async def _compile(self, candidate: Candidate) -> _Compiled:
        rules = self._shop.rules
        return await compile_candidate(
            candidate,
            architecture=(await self._shop.hardware()).architecture,
            timeout_s=rules.compile_s,
            contract=rules.has(Defence.ALLOW_LIST),
        )
