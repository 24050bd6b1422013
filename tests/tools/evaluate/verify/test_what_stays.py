"""What a candidate was judged in is free when its judge answers, whenever Python collects."""

import gc
import warnings
from collections.abc import Callable, Iterator

import pytest
import torch

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.messages import Judged, JudgeRequest
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.worker.request_handler import RequestHandler
from kernelwright.tools.languages import Built, compile_candidate
from kernelwright.tools.types import Candidate, Task, Verdict


@pytest.fixture
def no_sweeps() -> Iterator[None]:
    """Only what is asked for by name is collected."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


def tensor_bytes() -> int:
    """Of all tensors that Python's collector can see."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some objects warn when they are looked at
        found = [one for one in gc.get_objects() if isinstance(one, torch.Tensor)]
    return sum(
        {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in found}.values()
    )


@pytest.mark.usefixtures("no_sweeps")
async def test_a_plan_leaves_none_of_the_memory_it_was_judged_in(
    rows: Task, kernel: Callable[..., Candidate], cpu: Hardware, short_rules: Rules
) -> None:
    candidate = kernel()
    built = await compile_candidate(candidate, architecture=None, timeout_s=60)
    assert isinstance(built, Built)
    handler, left = RequestHandler(lambda _: None), []
    for seed in range(3):
        request = JudgeRequest(
            task=rows, hardware=cpu, rules=short_rules, candidate=candidate, built=built,
            effort="screen", seed=seed,
        )  # fmt: skip
        answer = handler.answer(request)
        assert isinstance(answer, Judged)
        assert answer.evaluation.verdict is Verdict.CORRECT
        left.append(tensor_bytes())
    # The first one makes the task runtime, which stays.
    assert left[1] == left[2] == left[0]
