"""What is noted beside a time, and how many sets of inputs a time is taken over."""

import pytest
import torch

from kernelwright.tools.evaluate.timing.conditions import conditions, reasons
from kernelwright.tools.evaluate.timing.stopwatch import input_sets


@pytest.mark.parametrize(
    ("call", "cache", "most", "sets"),
    [(10, 100, 8, 7), (100, 100, 8, 3), (10**4, 100, 8, 2), (100, 100, 1, 1), (100, 100, 0, 1)],
)
def test_input_sets_pass_through_the_cache_if_they_fit(
    call: int, cache: int, most: int, sets: int
) -> None:
    assert input_sets(call, cache, most) == sets


def test_throttling_is_told_in_words_and_idling_is_not_throttling() -> None:
    pynvml = pytest.importorskip("pynvml")
    mask = pynvml.nvmlClocksEventReasonSwPowerCap | pynvml.nvmlClocksEventReasonGpuIdle
    assert reasons(pynvml, mask) == ("sw_power_cap",)
    assert reasons(pynvml, 0) == ()


def test_conditions_of_a_cpu_name_threads_and_load() -> None:
    found = conditions("cpu", flushed=True, sets=3)
    assert found.threads == torch.get_num_threads()
    assert found.load_average is not None
    assert found.sm_clock_mhz is None
