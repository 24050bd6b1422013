"""The shortest way to a compile."""

from collections.abc import Callable, Coroutine

import pytest

from tools.candidates import new_candidate
from tools.compile import Built, CompileFailure, compile_candidate
from tools.nouns import Language, Setting

Compile = Callable[..., Coroutine[None, None, Built | CompileFailure]]


@pytest.fixture
def compiled() -> Compile:
    async def compile_(
        kernel: str,
        language: Language = Language.CPP,
        architecture: str | None = "sm_90a",
        timeout_s: float = 120,
        **settings: int,
    ) -> Built | CompileFailure:
        chosen = [Setting(name=name, value=value) for name, value in settings.items()]
        candidate = new_candidate(
            language, kernel, "def forward(x):\n    return x\n", settings=chosen
        )
        return await compile_candidate(candidate, architecture=architecture, timeout_s=timeout_s)

    return compile_
