import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.agents.shared.facts import citations, complaint, reading, unfounded_ratios
from kernelwright.tools.types import Evidence, Rank


def fact(name: str, value: float) -> Evidence:
    return Evidence(name=name, rank=Rank.MEASURED, value=value, unit="", source="test")


FACTS = {
    "K1": (fact("screen_ms", 0.4123), fact("run.registers", 40), fact("bandwidth_fraction", 0.73)),
    "K2": (fact("screen_ms", 0.8246), fact("run.registers", 96), fact("tail.registers", 32)),
}


@pytest.mark.parametrize(
    "text",
    [
        "K1.screen_ms=0.412",
        "`K1.screen_ms = 0.41 ms`",
        "K2.run.registers=96",
        "K2.registers: 96",
        "K1 bandwidth_fraction 73 %",
        "K1.bandwidth_fraction is 0.73",
    ],
)
def test_a_number_that_was_measured_is_believed_however_it_is_cited(text: str) -> None:
    (cited,) = citations(text)
    assert complaint(cited, FACTS) == ""


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("K1.screen_ms=0.5", "K1.screen_ms is 0.4123, not 0.5"),
        ("K1.screen_ms=0", "K1.screen_ms is 0.4123, not 0"),
        ("K1.l2_hit_rate=0.9", "K1 has no reading l2_hit_rate"),
        ("K7.screen_ms=0.41", "there is no exhibit K7"),
    ],
)
def test_a_number_that_was_not_measured_is_told(text: str, problem: str) -> None:
    (cited,) = citations(text)
    assert complaint(cited, FACTS) == problem


def test_words_are_no_citation() -> None:
    assert citations("the fast one has fewer registers") == ()


def test_one_text_may_cite_several_numbers() -> None:
    found = citations("K1.screen_ms=0.412 against K2.screen_ms=0.825, K2.registers 96")
    assert [(item.exhibit, item.name) for item in found] == [
        ("K1", "screen_ms"), ("K2", "screen_ms"), ("K2", "registers"),
    ]  # fmt: skip
    assert [complaint(item, FACTS) for item in found] == ["", "", ""]


@pytest.mark.parametrize(
    ("words", "unfounded"),
    [
        ("K1 is 2x faster", ()),
        ("K1 is 100 % faster and needs 50 % less time", ()),
        ("K1 is 3 times as fast", ("3 times as fast",)),
        ("unrolled 4x, it holds 16 loads in flight", ()),
    ],
)
def test_a_ratio_in_words_must_follow_from_two_readings(
    words: str, unfounded: tuple[str, ...]
) -> None:
    assert unfounded_ratios(words, FACTS) == unfounded


@given(st.floats(min_value=1e-4, max_value=1e5), st.integers(min_value=3, max_value=8))
def test_any_rounding_to_three_digits_is_believed_and_a_tenth_more_never(
    value: float, digits: int
) -> None:
    facts = {"K1": (fact("screen_ms", value),)}
    texts = (f"K1.screen_ms={shown:.{digits}g}" for shown in (value, value * 1.12))
    rounded, more = (citations(text)[0] for text in texts)
    assert complaint(rounded, facts) == ""
    assert complaint(more, facts)


def test_without_the_kernel_the_largest_reading_is_meant() -> None:
    assert reading(FACTS["K2"], "registers") == 96
    assert reading(FACTS["K2"], "tail.registers") == 32
    assert reading(FACTS["K2"], "spills") is None
