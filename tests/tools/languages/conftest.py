"""The shortest way to a compile, and to readings of kernels of known make, without a GPU."""

import asyncio
from collections.abc import Callable, Coroutine

import pytest

from kernelwright.tools.languages import Built, CompileFailure, compile_candidate, new_candidate
from kernelwright.tools.languages.cuda.inspection import cubin_evidence
from kernelwright.tools.types import LanguageName, Setting

PLAN = "def forward(x):\n    return x\n"
Compile = Callable[..., Coroutine[None, None, Built | CompileFailure]]


@pytest.fixture
def compiled() -> Compile:
    async def compile_(
        kernel: str,
        language: LanguageName = "cpp",
        architecture: str | None = "sm_90a",
        timeout_s: float = 120,
        **settings: int,
    ) -> Built | CompileFailure:
        chosen = [Setting(name=name, value=value) for name, value in settings.items()]
        candidate = new_candidate(language, kernel, PLAN, settings=chosen)
        return await compile_candidate(candidate, architecture=architecture, timeout_s=timeout_s)

    return compile_


@pytest.fixture(scope="session")
def readings_of():
    """Readings of a CUDA source's kernels, by name."""

    def read(source: str) -> dict[str, float]:
        candidate = new_candidate("cuda", source, PLAN)
        built = asyncio.run(compile_candidate(candidate, architecture="sm_90a", timeout_s=120.0))
        assert isinstance(built, Built), built
        found = asyncio.run(cubin_evidence(built.artifact))
        return {item.name: item.value for item in found}

    return read
