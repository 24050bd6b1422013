"""The suite has teeth: with a defence switched off, a row that names it fails."""

from collections.abc import Awaitable, Callable, Iterator

import pytest

from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.foreign.host.judges import ForeignJudge
from kernelwright.tools.evaluate.messages import Foreign, ForeignRequest
from kernelwright.tools.evaluate.rules import Defence, Rules
from kernelwright.tools.selftest.catalogue import Case, base, candidate_of, cases, rows
from kernelwright.tools.selftest.suite import RULES, Suite
from kernelwright.tools.types import Candidate, Evaluation, Verdict

pytestmark = pytest.mark.asyncio(loop_scope="module")

HoldsWithout = Callable[[Defence, Case], Awaitable[bool]]
HEAD = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n"
# Right in the process whose seed it knows, wrong in every other one.
KNOWS_ITS_PROCESS = f"""{HEAD}    def __init__(self):
        super().__init__()
        self.known = torch.initial_seed() == 7

    def forward(self, x):
        return torch.softmax(x, -1) if self.known else torch.zeros_like(x)
"""
# Works out its first inputs from the seed of its constructor, and owns up if it could.
FORESEES = f"""from kernelwright.tools.evaluate.rules import fresh_seed
from kernelwright.tools.tasks.loading.user_file import seed_everything
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

# No row can show these here, and why; what shows them instead.
ELSEWHERE = {
    Defence.LATE_CHANGES: "what changes late was wrong when it was returned, so other defences "
    "find it first; by itself: tests/tools/evaluate/verify/test_trials.py",
    Defence.FLOOR: "needs a working set beyond every cache; by a floor of its own: below",
    Defence.QUARANTINE: "needs a ratio above ten; by a lower one: below",
    Defence.COLD_CACHES: "takes away an advantage, gives no verdict",
    Defence.SEPARATE_PROCESS: "is how the judge is built; nothing switches it off",
    Defence.SANITIZER: "looks at finalists only; tests of the sanitizers",
}
_VERDICTS_OF_READING = (Verdict.INVALID_PLAN,)


def _shown() -> Iterator[tuple[Defence, list[Case]]]:
    """For each defence the cases on a CPU that it decides while the judge runs, the cheap ones."""
    for defence in Defence:
        named = [case for _, case in cases("cpu") if case.defence is defence]
        ready = [case for case in named if case.verdicts != _VERDICTS_OF_READING]
        plans = [case for case in ready if case.kind == "plan" and not case.certified]
        ready = [case for case in ready if not case.certified]
        if ready and defence not in ELSEWHERE:
            yield defence, plans or ready[:1]


SHOWN = list(_shown())
# Taken away with every other test, beside the evils in `test_cpu.py`; these are a sweep.
ALWAYS = {Defence.ERROR_RATIO}
TAKEN_AWAY = [pytest.param(*item, id=item[0].value) for item in SHOWN if item[0] not in ALWAYS]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("defence", "ready"), TAKEN_AWAY)
async def test_without_a_defence_a_row_fails(
    executor: LocalExecutor, holds_without: HoldsWithout, defence: Defence, ready: list[Case]
) -> None:
    if defence is Defence.SANDBOX and not executor.isolation.is_a_wall:
        pytest.skip("no wall stands on this machine, so none can be taken away")
    for case in ready:
        if not await holds_without(defence, case):
            return
    names = ", ".join(case.name for case in ready)
    raise AssertionError(f"without {defence.value} all of these are found out as with it: {names}")


async def test_every_defence_is_named_by_a_row_or_said_to_be_shown_elsewhere() -> None:
    named = {case.defence for row in rows() for case in row.case}
    shown = {defence for defence, _ in SHOWN}
    assert shown | set(ELSEWHERE) == set(Defence)
    assert shown <= named


@pytest.mark.exhaustive
async def test_a_report_says_what_was_switched_off(executor: LocalExecutor, suite: Suite) -> None:
    case = next(case for row, case in cases("cpu") if row.row == 20 and case.kind == "plan")
    executor.rules = RULES.model_copy(update={"switched_off": (Defence.SETUP_TIMED,)})
    try:
        found = await suite.evil(case)
    finally:
        executor.rules = RULES
    assert found.verdict is Verdict.CORRECT
    assert "setup_timed: switched off" in found.said


@pytest.mark.exhaustive
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


@pytest.mark.exhaustive
async def test_what_is_too_good_in_one_process_is_wrong_in_the_next(
    executor: LocalExecutor, suite: Suite, tmp_path_factory: pytest.TempPathFactory
) -> None:
    # Every ratio is too good to be believed here, so that the second look is what decides; and
    # none is left out because a busy machine's clocks cannot be compared.
    off = (Defence.CLOCKS_AGREE,)
    short = {"certify_s": 0.1, "foreign_calls_max": 2, "pairs_max": 10}
    doubting = RULES.model_copy(update={"quarantine_ratio": 1e-9, "switched_off": off, **short})
    asked = ForeignRequest(
        task=await suite.task("softmax"),
        hardware=await executor.hardware(),
        rules=doubting.model_copy(update={"switched_off": (*off, Defence.QUARANTINE)}),
        foreign=Foreign(name="knows its process", source=KNOWS_ITS_PROCESS),
        seed=7,
        compare_to=("eager",),
    )
    foreign_judge = ForeignJudge(tmp_path_factory.mktemp("judge"), "cpu")
    try:
        believed = await foreign_judge.judge(asked)
        doubted = await foreign_judge.judge(asked.model_copy(update={"rules": doubting}))
    finally:
        await foreign_judge.aclose()
    assert believed.verdict is Verdict.CORRECT, believed.verification.reason
    assert believed.comparisons
    assert doubted.verdict is Verdict.WRONG_RESULT


@pytest.mark.exhaustive
async def test_inputs_do_not_follow_from_the_seed_that_a_guest_knows(
    executor: LocalExecutor, suite: Suite
) -> None:
    task = await suite.task("softmax")
    found = await executor.check_foreign(
        task, Foreign(name="foresees", source=FORESEES), timed=False
    )
    assert found.verdict is Verdict.CORRECT, found.verification.reason
