"""The same on a GPU; without one, that every CUDA evil and twin at least reaches its compiler."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from kernelwright.tools.candidates.arithmetic import ContractError
from kernelwright.tools.candidates.plan import validate_plan
from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.languages import Built, CompileFailure, compile_candidate, parse_kernel
from kernelwright.tools.selftest.catalogue import Case, Row, cases, evil_of, twin_of
from kernelwright.tools.selftest.suite import RULES, Suite
from kernelwright.tools.types import Candidate, Verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")

ON_CUDA = list(cases("cuda"))
NAMES = [f"{row.row}-{case.kind}-{case.name.replace(' ', '-')}" for row, case in ON_CUDA]
# Tried with every other test; the others are a sweep.
ALWAYS = {
    "6-plan-returns-what-the-memory-held",
    "9-plan-opens-a-file",
    "9-plan-includes-a-file-of-the-host",
    "19-plan-writes-past-the-end",
}
PLANS = [
    pytest.param(row, case, id=name, marks=() if name in ALWAYS else pytest.mark.exhaustive)
    for name, (row, case) in zip(NAMES, ON_CUDA, strict=True)
    if case.kind == "plan"
]


def _plan_fault(candidate: Candidate) -> str:
    try:
        validate_plan(candidate.plan, parse_kernel(candidate.kernel, candidate.language))
    except ContractError as error:
        return str(error)
    return ""


async def test_those_that_are_always_tried_are_of_the_suite() -> None:
    assert set(NAMES) >= ALWAYS


@pytest.mark.parametrize(("row", "case"), PLANS)
async def test_what_the_contract_refuses_is_refused_here_and_the_rest_compiles(
    row: Row, case: Case
) -> None:
    twin, evil = twin_of(case, "cuda"), evil_of(case, "cuda")
    assert isinstance(twin, Candidate)
    assert isinstance(evil, Candidate)
    assert not _plan_fault(twin)
    made = await compile_candidate(twin, architecture="sm_90a", timeout_s=90)
    assert isinstance(made, Built), made
    if Verdict.INVALID_PLAN in case.verdicts:
        assert all(word in _plan_fault(evil) for word in case.words), _plan_fault(evil)
        return
    assert not _plan_fault(evil)
    built = await compile_candidate(evil, architecture="sm_90a", timeout_s=90)
    if Verdict.COMPILE_ERROR in case.verdicts:
        assert isinstance(built, CompileFailure)
        assert all(word in built.message for word in case.words), built.message
    else:
        assert isinstance(built, Built), built


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def on_gpu(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Suite]:
    executor = LocalExecutor.create("cuda", tmp_path_factory.mktemp("scratch"), 5, RULES)
    yield Suite(executor, "cuda")
    await executor.aclose()


@pytest.mark.gpu
@pytest.mark.parametrize(("row", "case"), ON_CUDA, ids=NAMES)
async def test_the_evil_is_rejected_on_a_gpu_and_its_twin_passes(
    on_gpu: Suite, row: Row, case: Case
) -> None:
    outcome = await on_gpu.case(row, case)
    assert outcome.caught, (outcome.evil.verdict, outcome.evil.said)
    assert outcome.twin_accepted, (outcome.twin.verdict, outcome.twin.said)
