"""Where a suite's seconds went."""

from collections.abc import Callable

import pytest

from kernelwright.graphs.suite import Outcome, pace
from kernelwright.graphs.suite.figures import REST
from kernelwright.tools.types import Phase


def test_a_step_counts_in_every_task_and_the_rest_is_what_no_account_has(
    outcome: Callable[..., Outcome],
) -> None:
    long = outcome("1_a.py", [2.0, 1.5]).model_copy(
        update={
            "seconds": 10.0,
            "phases": (
                Phase(name="read: all", seconds=1.0),
                Phase(name="certify: verify task", seconds=4.0, cpu_s=2.0),
                Phase(name="certify: against eager", seconds=3.0),
            ),
        }
    )
    short = outcome("2_b.py").model_copy(
        update={"seconds": 3.0, "phases": (Phase(name="read: all", seconds=2.0),)}
    )
    unmetered = outcome("3_c.py", [1.0, 1.0])
    found = pace([long, short, unmetered])
    assert found is not None
    assert (found.tasks, found.seconds) == (2, 13.0)
    parts = {part.name: part for part, _ in found.parts}
    assert list(parts) == ["read", "certify", REST]
    assert (parts["read"].median_s, parts["read"].seconds) == (1.5, 3.0)
    assert (parts["certify"].median_s, parts["certify"].largest_s) == (3.5, 7.0)
    assert parts[REST].seconds == pytest.approx(3.0)
    steps = {part.name: [step.name for step in steps] for part, steps in found.parts}
    assert steps["certify"] == ["certify: verify task", "certify: against eager"]


def test_results_from_before_there_was_an_account_have_no_pace(
    outcome: Callable[..., Outcome],
) -> None:
    assert pace([outcome("1_a.py", [2.0, 1.5])]) is None


def test_what_nobody_waited_for_is_not_of_the_seconds(outcome: Callable[..., Outcome]) -> None:
    phases = (Phase(name="beside: read", seconds=9.0), Phase(name="certify: all", seconds=3.0))
    item = outcome("1_a.py", [2.0]).model_copy(update={"seconds": 5.0, "phases": phases})
    found = pace([item])
    assert found is not None
    parts = {part.name: part.seconds for part, _ in found.parts}
    assert parts == {"beside": 9.0, "certify": 3.0, REST: pytest.approx(2.0)}
