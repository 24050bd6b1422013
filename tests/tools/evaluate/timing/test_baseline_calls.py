"""A baseline that cannot be made is a fact about the module, not about what lay ready for it."""

import os
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

from kernelwright.tools.evaluate.timing import baselines
from kernelwright.tools.evaluate.timing.baselines import BaselineCalls, BaselineFailedError

CACHE = "TORCHINDUCTOR_CACHE_DIR"


@pytest.fixture
def calls() -> BaselineCalls:
    harness = SimpleNamespace(sets=[()])
    return BaselineCalls(cast(Any, None), cast(Any, harness), nullcontext)


def made_in(folders: list[str], broken: set[str]) -> Any:
    """A compiled forward that fails where what it finds was made elsewhere."""

    def compiled(runtime: object, name: str) -> Any:
        def call(arguments: object) -> str:
            folders.append(os.environ[CACHE])
            if not broken or folders[-1] in broken:
                raise OSError(30, "Read-only file system")
            return name

        return call

    return compiled


def test_what_lay_ready_and_does_not_run_is_compiled_again_elsewhere(
    calls: BaselineCalls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    taken, folders = str(tmp_path / "inductor"), list[str]()
    monkeypatch.setenv(CACHE, taken)
    monkeypatch.setattr(baselines, "compiled", made_in(folders, {taken}))
    assert calls.get("compile")(()) == "compile"
    assert folders[0] == taken
    assert folders[1] != taken
    assert Path(folders[1]).is_dir()


def test_eager_is_timed_without_autograds_records(calls: BaselineCalls) -> None:
    module = torch.nn.Linear(3, 2)
    calls._runtime = cast(Any, SimpleNamespace(reference=SimpleNamespace(module=module)))
    calls._harness = cast(Any, SimpleNamespace(sets=[(torch.ones(4, 3),)]))
    y = calls.get("eager")((torch.ones(4, 3),))
    assert isinstance(y, torch.Tensor)
    assert not y.requires_grad
    assert torch.is_grad_enabled()


def test_what_cannot_be_compiled_at_all_says_why_once(
    calls: BaselineCalls, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folders = list[str]()
    monkeypatch.setenv(CACHE, str(tmp_path / "inductor"))
    monkeypatch.setattr(baselines, "compiled", made_in(folders, set()))
    for _ in range(2):
        with pytest.raises(BaselineFailedError, match="Read-only file system"):
            calls.get("compile")
    assert len(folders) == 2
