"""Kernels of known make, compiled for Hopper without a GPU, and what is read of their code."""

import asyncio

import pytest

from tools.candidates import new_candidate
from tools.compile import Built, compile_candidate
from tools.nouns import Language
from tools.profile.code import cubin_evidence

PLAN = "def forward(x):\n    return x\n"


@pytest.fixture(scope="session")
def readings_of():
    """Readings of a CUDA source's kernels, by name."""

    def read(source: str) -> dict[str, float]:
        candidate = new_candidate(Language.CUDA, source, PLAN)
        built = asyncio.run(compile_candidate(candidate, architecture="sm_90a", timeout_s=120.0))
        assert isinstance(built, Built), built
        found = asyncio.run(cubin_evidence(built.artifact))
        return {item.name: item.value for item in found}

    return read
