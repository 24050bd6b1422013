"""The suite on this machine's CPU, one executor for all of it."""

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.rules import Defence
from kernelwright.tools.evaluate.sandbox.worker import WorkerBrokenError
from kernelwright.tools.hardware import detect
from kernelwright.tools.selftest.catalogue import Case
from kernelwright.tools.selftest.suite import RULES, Suite


@pytest.fixture(autouse=True, scope="module")
def threads_as_users_have_them(spinning_threads: None) -> None:
    """What is accused here of working at the wrong time must not be waiting in a friendlier way."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def executor(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalExecutor]:
    """Judges on the CPU, with ceilings that nothing is held against."""
    cpu = detect("cpu").model_copy(update={"measured": True, "bandwidth_gb_s": 1e6})
    made = LocalExecutor(cpu, tmp_path_factory.mktemp("scratch"), seed=11, rules=RULES)
    yield made
    await made.aclose()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def suite(executor: LocalExecutor) -> Suite:
    return Suite(executor, "cpu")


@pytest.fixture
def holds_without(
    executor: LocalExecutor, suite: Suite
) -> Callable[[Defence, Case], Awaitable[bool]]:
    """Whether an evil is found out for its reason with a defence switched off."""

    async def holds(defence: Defence, case: Case) -> bool:
        executor.rules = RULES.model_copy(update={"switched_off": (defence,)})
        try:
            found = await suite.evil(case.model_copy(update={"tries": 1}))
        except WorkerBrokenError:
            return False  # the judge itself fell over what the defence keeps away
        finally:
            executor.rules = RULES
        return found.verdict in case.verdicts and all(word in found.said for word in case.words)

    return holds
