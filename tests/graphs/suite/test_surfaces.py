"""Policies on a recorded space: the real search, judged by what was measured before.

The recording is made up: its loop is lowered as ever, its times follow from strategy and settings.
"""

import asyncio
from math import inf, prod

import pytest

from kernelwright.graphs.suite.surface_figures import standings, worth
from kernelwright.graphs.suite.surface_memory import memories_for
from kernelwright.graphs.suite.surface_search import Trail, changed, endless, follow, policies
from kernelwright.profiles.load import hardware_profile, search_profile
from kernelwright.tools.candidates import valid_settings
from kernelwright.tools.codegen.library.kernel_library import (
    FORM,
    Option,
    Pick,
    fastest,
    repertoire_for,
)
from kernelwright.tools.evaluate.surfaces import Point, RecordedRepertoire, Space, Surface, Way
from kernelwright.tools.languages import parse_kernel
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Refusal, TracePolicy, Verdict

MODULE = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return x.sum(dim=1)

def get_inputs():
    return [torch.randn(4096, 8192)]
"""


@pytest.fixture(scope="module")
def surface() -> Surface:
    task = trace(MODULE, "rows.py", TracePolicy(device="cpu"))
    assert not isinstance(task, Refusal)
    repertoire = repertoire_for(task, hardware_profile("h200"))
    options, ways, points = repertoire.options(), [], []
    for number, option in enumerate(options):
        draft = repertoire.draft(fastest(options) | {option.loop: option.strategy.name})
        source = parse_kernel(draft.kernel, "cuda")
        settings = valid_settings(source)[:40]
        pick = Pick(loop=option.loop, strategy=option.strategy.name)
        names = tuple(tunable.name for tunable in source.tunables)
        ways.append(Way(picks=(pick,), draft=draft, tunables=names, valid=40, drawn=40))
        points += [_point(number, tuple(one.value for one in of)) for of in settings]
    space = Space(
        name="rows",
        module=MODULE,
        hardware="h200",
        language="cuda",
        fixed_ms=0.0,
        floor_ms=0.02,
        options=options,
        ways=tuple(ways),
    )
    return Surface(space=space, points=tuple(points), eager_ms=1.0)


def _point(way: int, values: tuple[int, ...]) -> Point:
    if prod(value + 1 for value in values) % 5 == 0:
        return Point(loop="rows", way=way, values=values, verdict=Verdict.LAUNCH_ERROR)
    ms = 0.1 * (1 + way) + sum(values) / 1e4
    measured = {"median_ms": ms, "p10_ms": 0.99 * ms, "p90_ms": 1.01 * ms}
    return Point(loop="rows", way=way, values=values, **measured)


def _follow(surface: Surface, policy: str, seed: int, evaluations: int) -> Trail:
    profile = endless(search_profile("quick"))
    return asyncio.run(follow(surface, policy, profile, seed, evaluations))


def test_a_search_pays_for_a_candidate_once_and_is_told_what_was_measured(surface: Surface) -> None:
    first, again = (_follow(surface, "whole", 3, 12) for _ in range(2))
    assert first == again
    assert len(first.times_ms) == 12
    measured = [point.median_ms or inf for point in surface.points]
    left = list(measured)
    for ms in first.times_ms:
        left.remove(ms)
    assert first.best_ms(12) >= surface.best_ms
    assert first.told_ms != first.times_ms


@pytest.mark.parametrize("policy", ["random", "optuna"])
def test_what_a_search_is_held_against_sees_every_point_once(surface: Surface, policy: str) -> None:
    trail = _follow(surface, policy, 0, 10_000)
    assert len(trail.times_ms) == len(surface.points)
    assert min(trail.times_ms) == surface.best_ms


def test_a_part_is_worth_what_searches_lose_without_it() -> None:
    whole = {"a": [0.0, 0.02], "b": [0.1, 0.1]}
    found = worth("without tuning", 16, whole, {"a": [0.3, 0.31], "b": [0.1, 0.1]})
    assert found.gain.mean > 10 > found.gain.low
    assert (found.helped, found.harmed) == (("a",), ())


def test_memory_begins_with_the_best_of_other_loops_and_leaves_its_own_out(
    surface: Surface,
) -> None:
    hardware = hardware_profile(surface.space.hardware)
    repertoire = _recorded(surface)
    other_space = surface.space.model_copy(
        update={"name": "longer", "module": MODULE.replace("8192", "16384")}
    )
    other = Surface(space=other_space, points=surface.points, eager_ms=1.0)
    assert memories_for(surface, (surface,), hardware, lambda: repertoire).items == ()
    (item,) = memories_for(surface, (surface, other), hardware, lambda: repertoire).items
    point = surface.point_of(item.candidate)
    assert point is not None
    assert point.median_ms == surface.best_ms
    profile = endless(search_profile("quick"))
    trail = asyncio.run(follow(surface, "with memory", profile, 0, 4, (surface, other)))
    assert trail.times_ms[0] == surface.best_ms


def _recorded(surface: Surface) -> RecordedRepertoire:
    task = trace(MODULE, "rows.py", TracePolicy(device="cpu"))
    assert not isinstance(task, Refusal)
    return RecordedRepertoire(surface.space, repertoire_for(task, hardware_profile("h200")))


def test_a_loop_is_solved_within_three_per_cent_and_nothing_found_is_far() -> None:
    trails = [
        Trail(loop="a", policy="whole", seed=0, times_ms=(5.0, 1.02), told_ms=(5.0, 1.0)),
        Trail(loop="b", policy="whole", seed=0, times_ms=(inf, inf), told_ms=(inf, inf)),
    ]
    (one, two), _ = standings(trails, {"a": 1.0, "b": 1.0}, (1, 2))
    assert (one.solved, two.solved) == (0.0, 0.5)
    assert one.gap.mean > two.gap.mean > 100


def test_policies_are_named_for_what_they_leave_out_or_add() -> None:
    profile = search_profile("quick")
    named = policies(("tuning", "contrast", "memory"), profile)
    assert named[:3] == ("random", "optuna", "whole")
    assert named[3:] == ("without tuning", "with contrast", "with memory")
    assert changed(profile, "with memory") == changed(profile, "whole")
    assert changed(profile, "with contrast").rules_steer_by == ("contrast",)
    assert changed(profile, "without tuning").tuning_trials == 0
    assert policies(("sizes",), profile)[3:] == ("with sizes",)
    assert changed(profile, "with sizes").round_size == "by what is known"
    assert changed(profile, "whole").round_size == "fixed"


def test_a_loop_that_has_more_forms_today_is_replayed_as_it_was_recorded(surface: Surface) -> None:
    recorded = _recorded(surface)
    in_forms = [one.model_copy(update={"form": "as_written"}) for one in recorded.options()]

    class Today:
        fixed_ms = 0.0

        def options(self) -> tuple[Option, ...]:
            return (*in_forms, in_forms[0].model_copy(update={"loop": FORM, "form": ""}))

    found = RecordedRepertoire(surface.space, Today()).options()  # type: ignore[arg-type]
    assert found == recorded.options()
    assert fastest(found)
