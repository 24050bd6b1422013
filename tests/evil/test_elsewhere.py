"""Defences that no row on a CPU decides, each shown by figures or code under which it does."""

import pytest

from tools.evaluate.defences import Defence
from tools.evaluate.foreign.check import Courthouse
from tools.evaluate.foreign.request import Foreign, ForeignRequest
from tools.evaluate.local import LocalExecutor
from tools.evaluate.rules import Rules
from tools.nouns import Candidate, Evaluation, Verdict
from tools.selftest.catalogue import base, candidate_of
from tools.selftest.suite import RULES, Suite

pytestmark = pytest.mark.asyncio(loop_scope="module")

HEAD = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n"
# Right in the process whose seed it knows, wrong in every other one.
KNOWS_ITS_PROCESS = f"""{HEAD}    def __init__(self):
        super().__init__()
        self.known = torch.initial_seed() == 7

    def forward(self, x):
        return torch.softmax(x, -1) if self.known else torch.zeros_like(x)
"""
# Works out its first inputs from the seed of its constructor, and owns up if it could.
FORESEES = f"""from tools.evaluate.seeds import fresh_seed
from tools.tasks.seeds import seed_everything
{HEAD}    def __init__(self):
        super().__init__()
        seed = torch.initial_seed()
        self.foreseen = []
        for guess in (seed, *(fresh_seed(seed, what) for what in (0, "again", "audit"))):
            seed_everything(guess)
            self.foreseen.append(torch.randn(96, 513))

    def forward(self, x):
        if any(torch.equal(x, one) for one in self.foreseen):
            raise RuntimeError("these inputs were foreseen")
        return torch.softmax(x, -1)
"""


async def test_a_time_below_the_floor_is_a_verdict_only_while_the_floor_stands(
    executor: LocalExecutor, suite: Suite
) -> None:
    # A floor so high that whatever runs is below it: nothing else can be wrong with this kernel.
    high = RULES.model_copy(update={"floor_margin_cpu": 1e9, "floor_cache_multiple": 0.0})
    honest = candidate_of(base("softmax"), "cpu", (), "honest")
    found = await _screened(executor, suite, honest, high)
    assert found.verdict is Verdict.BELOW_FLOOR
    assert "takes at least on this device" in found.verification.reason
    off = high.model_copy(update={"switched_off": (Defence.FLOOR,)})
    assert (await _screened(executor, suite, honest, off)).verdict is Verdict.CORRECT


async def _screened(
    executor: LocalExecutor, suite: Suite, candidate: Candidate, rules: Rules
) -> Evaluation:
    executor.rules = rules
    try:
        return await executor.evaluate(await suite.task("softmax"), candidate, "screen")
    finally:
        executor.rules = RULES


async def test_what_is_too_good_in_one_process_is_wrong_in_the_next(
    executor: LocalExecutor, suite: Suite, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # Every ratio is too good to be believed here, so that the second look is what decides.
    doubting = RULES.model_copy(update={"quarantine_ratio": 1e-9, "certify_s": 0.1})
    asked = ForeignRequest(
        task=await suite.task("softmax"),
        hardware=await executor.hardware(),
        rules=doubting.model_copy(update={"switched_off": (Defence.QUARANTINE,)}),
        foreign=Foreign(name="knows its process", source=KNOWS_ITS_PROCESS),
        seed=7,
        compare_to=("eager",),
    )
    house = Courthouse(tmp_path_factory.mktemp("house"), "cpu")
    try:
        believed = await house.judge(asked)
        doubted = await house.judge(asked.model_copy(update={"rules": doubting}))
    finally:
        await house.aclose()
    assert believed.verdict is Verdict.CORRECT, believed.verification.reason
    assert believed.comparisons
    assert doubted.verdict is Verdict.WRONG_RESULT


async def test_inputs_do_not_follow_from_the_seed_that_a_guest_knows(
    executor: LocalExecutor, suite: Suite
) -> None:
    task = await suite.task("softmax")
    found = await executor.check_foreign(
        task, Foreign(name="foresees", source=FORESEES), timed=False
    )
    assert found.verdict is Verdict.CORRECT, found.verification.reason
