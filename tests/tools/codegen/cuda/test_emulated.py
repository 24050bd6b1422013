"""Every strategy of every loop computes what the loop says, on the emulated device."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from kernelwright.profiles.load import Hardware

Kept = Callable[..., list[Any]]


@pytest.fixture(scope="module")
def variants(toolbox: SimpleNamespace, builds: dict, small_device: Hardware, kept: Kept) -> list:
    made = toolbox.make_variants(builds, small_device, settings=1, most_threads=64)
    made = kept(made, lambda variant: variant.strategy.name)
    toolbox.compile_emulated(made)
    return made


def test_every_strategy_computes_what_the_loop_says(toolbox: SimpleNamespace, variants: list):
    wrong = []
    for variant in variants:
        try:
            toolbox.check(*variant.run(), variant.loop)
        except AssertionError as error:
            wrong.append(f"{variant.label}: {error}")
    assert not wrong, "\n".join(wrong)
