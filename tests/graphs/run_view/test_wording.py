"""Numbers in words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.graphs.run_view.events import (
    amount,
    count,
    milliseconds,
    one_line,
    plain,
    seconds,
    shape,
)
from kernelwright.graphs.run_view.figures import device_words, in_words, settings_words
from kernelwright.tools.types import Setting


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, "-"), (0.99999, "1.000 ms"),
     (0.0042, "4.2 µs"), (0.5, "500 µs"), (5.0584, "5.058 ms"), (71.358, "71.36 ms"),
     (2500.0, "2.5 s")],
)  # fmt: skip
def test_times_come_in_the_unit_a_person_would_choose(value, said):
    assert milliseconds(value) == said


def test_durations_amounts_counts_and_shapes():
    assert [seconds(v) for v in (3.21, 42, 163, 7300)] == [
        "3.2 s",
        "42 s",
        "2 min 43 s",
        "2 h 1 min",
    ]
    assert amount(33_554_432, "B") == "33.6 MB"
    assert amount(12, "B") == "12 B"
    assert [count(1, "round"), count(0, "round")] == ["1 round", "0 rounds"]
    assert [shape((2, 3)), shape(())] == ["2 x 3", "scalar"]


@given(st.text())
def test_plain_text_cannot_steer_a_terminal(text):
    clean = plain(text)
    assert not any(c in clean for c in "\x1b\x07\x08\r\x9b\u202e\u2066")


@given(st.text(), st.integers(1, 40))
def test_one_line_is_one_line_of_at_most_its_limit(text, limit):
    line = one_line(text, limit)
    assert "\n" not in line
    assert len(line) <= limit


def test_settings_of_generated_kernels_are_plain_words_with_their_loop():
    chosen = [("L0_LANES", 4), ("L0_THREADS", 256), ("L1_ROWS", 2), ("TILE", 8)]
    settings = tuple(Setting(name=name, value=value) for name, value in chosen)
    assert settings_words(settings) == "lanes 4, threads 256 (loop 1); rows 2 (loop 2); TILE 8"
    assert in_words("L0_LANES is 4, in the L2 cache") == "lanes (loop 1) is 4, in the L2 cache"


@pytest.mark.parametrize(
    ("device", "said"),
    [("NVIDIA H200", "H200"), ("AMD EPYC", "EPYC"), ("Test CPU", "Test"), ("CPU", "CPU"),
     ("Intel(R) Xeon(R) Platinum 8480C CPU @ 2.00GHz", "Xeon Platinum 8480C")],
)  # fmt: skip
def test_a_device_has_the_name_that_people_use(device, said):
    assert device_words(device) == said
