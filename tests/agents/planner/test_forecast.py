from hypothesis import given
from hypothesis import strategies as st

from kernelwright.agents.planner.playbook import Forecast
from kernelwright.tools.codegen.library.kernel_library import Recipe
from kernelwright.tools.types import Idea, LedgerEntry


def idea(number: int, roofline_ms: float, category: str = "memory") -> Idea:
    recipe = Recipe.of({"rows": f"s{number}"}, roofline_ms, changed="rows")
    return Idea(
        id=f"i{number}", title="t", mechanism="m", reason="r", category=category, metric="ms",
        recipe=recipe.model_dump_json(),
    )  # fmt: skip


def entry(of: Idea, measured_ms: float | None) -> LedgerEntry:
    return LedgerEntry(
        idea=of.id, category=of.category, predicted_ms=1.0, measured_ms=measured_ms,
        best_before_ms=None, candidates=1, correct=1, round=1,
    )  # fmt: skip


def test_without_a_ledger_the_roofline_stands() -> None:
    assert Forecast([], []).factor("memory", "rows=s1") == 1.0
    failed = idea(1, 1.0)
    assert Forecast([entry(failed, None)], [failed]).factor("memory", "rows=s1") == 1.0


def test_a_strategy_is_believed_before_its_category_and_that_before_the_rest() -> None:
    slow, quick = idea(1, 1.0), idea(2, 1.0, "latency")
    forecast = Forecast([entry(slow, 8.0), entry(quick, 1.0)], [slow, quick])
    own = forecast.factor("memory", "rows=s1")
    kind = forecast.factor("memory", "rows=s9")
    rest = forecast.factor("fusion", "rows=s9")
    assert own > kind > rest > 1.0
    assert forecast.observations("memory") == 1


@given(st.lists(st.floats(min_value=0.01, max_value=100.0), min_size=1, max_size=8))
def test_a_factor_lies_between_one_and_what_was_seen(ratios: list[float]) -> None:
    ideas = [idea(number, 1.0) for number in range(len(ratios))]
    ledger = [entry(of, ratio) for of, ratio in zip(ideas, ratios, strict=True)]
    factor = Forecast(ledger, ideas).factor("memory", "rows=s0")
    assert min(1.0, *ratios) * 0.999 <= factor <= max(1.0, *ratios) * 1.001
