"""Readings recorded on an H200 change what is tried: rules, stalls and the times of kernels."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelwright.agents.coder.tuner import Tuning
from kernelwright.agents.planner.planner import PlannerInput
from kernelwright.agents.planner.playbook import Forecast
from kernelwright.agents.planner.thoughts import HALF, Thought, weigh
from kernelwright.agents.shared.facts import loop_of, loop_times
from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.archive import Standing
from kernelwright.tools.codegen.ir import Strategy
from kernelwright.tools.codegen.library.kernel_library import Option, Recipe
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.profile import measured_evidence, symptoms
from kernelwright.tools.profile.ncu_report import read_counters, read_rules
from kernelwright.tools.types import Profile, Setting, Symptom

RECORDED = Path(__file__).parents[2] / "tools/profile/recorded"
# The recorded kernels under the names that the playbook would give them.
LOOPS = {"row_sums": "L0_rows", "transposed_copy": "L1_tiles"}
KERNEL = """// tune: L0_THREADS in 128, 256, 512
// tune: L0_SPLITS in 1, 2, 4
// tune: L1_THREADS in 128, 256, 512
extern "C" void L0_rows(const float* x, float* y) {}
"""
PLAN = "def forward(x):\n    y = empty_like(x)\n    launch('L0_rows', args=(x, y))\n    return y\n"


def recorded(name: str) -> str:
    text = (RECORDED / name).read_text()
    for before, after in LOOPS.items():
        text = text.replace(before, after)
    return text


@pytest.fixture(scope="module")
def found() -> tuple[Symptom, ...]:
    profile = Profile(
        candidate="c",
        counters=read_counters(recorded("ncu_raw.csv"), tuple(LOOPS.values())),
        rules=read_rules(recorded("ncu_details.csv")),
    )
    return symptoms(measured_evidence(profile), hardware_profile("h200"))


def option(loop: str, name: str, category: str, predicted_ms: float = 1.0) -> Option:
    strategy = Strategy(
        name=name, title=name, mechanism="m", reason="r", category=category, metric="ms",
        memory="streams", compute="plain", parallel="rows",
    )  # fmt: skip
    return Option(loop=loop, family="toy", strategy=strategy, predicted_ms=predicted_ms)


def weight(of: Option, known: tuple[Symptom, ...]) -> float:
    recipe = Recipe.of({of.loop: of.strategy.name}, 1.0, changed=of.loop)
    thought = Thought(option=of, recipe=recipe, expected_ms=1.0, hopeful_ms=1.0, weight=1.0)
    moved = weigh(thought, PlannerInput(round=2, wanted=1, floor_ms=1.0, symptoms=known))
    assert moved is not None
    return moved.weight


def test_recorded_rules_and_stalls_say_what_a_symptom_is_worth(
    found: tuple[Symptom, ...],
) -> None:
    known = {item.name: item for item in found}
    # 94 % of the row sums' time are waits for memory; the rule about them expects 81 %.
    assert known["latency-bound"].kernel == "L0_rows"
    assert known["latency-bound"].worth == pytest.approx(0.8134)
    assert known["imbalance"].worth == pytest.approx(0.8134)


def test_ideas_that_cure_what_counters_found_come_first_and_by_its_worth(
    found: tuple[Symptom, ...],
) -> None:
    counted = tuple(item for item in found if item.worth is not None)
    cures = weight(option("L0", "split", "parallelism"), counted)
    elsewhere = weight(option("L1", "split", "parallelism"), counted)
    other = weight(option("L0", "fold", "algebra"), counted)
    assert cures == pytest.approx(1.0 - HALF * 0.6)
    assert cures < elsewhere <= 1.0
    assert other == 1.0


def test_without_counters_a_symptom_is_a_nudge() -> None:
    quiet = Symptom(name="far from both roofs", words="", evidence=(), points_to=("memory",))
    assert weight(option("L0", "wide", "memory"), (quiet,)) == pytest.approx(0.95)


def test_settings_turn_the_way_that_counters_point(found: tuple[Symptom, ...]) -> None:
    settings = (("L0_THREADS", 256), ("L0_SPLITS", 1), ("L1_THREADS", 256))
    chosen = tuple(Setting(name=name, value=value) for name, value in settings)
    candidate = new_candidate("cpp", KERNEL, PLAN, settings=chosen)
    tuning = Tuning(candidate, (), symptoms=found)
    asked = [tuning.ask() for _ in range(2)]
    turned = [
        [(a.name, a.value) for a, b in zip(one.settings, chosen, strict=True) if a != b]
        for one in asked
        if one is not None
    ]
    assert turned == [[("L0_SPLITS", 2)], [("L0_THREADS", 128)]]


def test_the_times_of_kernels_correct_what_their_loops_are_expected_to_take(
    standing: Callable[..., Standing],
) -> None:
    candidate = standing(("L0=rows", "L1=tiles"), 2.0).candidate
    profile = Profile(
        candidate=candidate.id,
        counters=read_counters(recorded("ncu_raw.csv"), tuple(LOOPS.values())),
    )
    read = [
        item.model_copy(update={"name": item.name.replace(".counted_time", ".time")})
        for item in measured_evidence(profile)
    ]
    times = loop_times(read, candidate)
    assert dict(times) == {
        "L0=rows": pytest.approx(1.40944),
        "L1=tiles": pytest.approx(0.293888),
    }
    forecast = Forecast((), (), times)
    assert forecast.option_ms(option("L0", "rows", "memory", 0.2)) == pytest.approx(1.40944)
    assert forecast.option_ms(option("L0", "other", "memory", 0.2)) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("kernel", "loop"), [("L0_rows", "L0"), ("AL12_map", "AL12"), ("softmax", ""), ("LN_rows", "")]
)
def test_a_kernel_names_its_loop(kernel: str, loop: str) -> None:
    assert loop_of(kernel) == loop
