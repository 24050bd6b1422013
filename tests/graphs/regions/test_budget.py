"""One budget for a large model: planned before anything long, in the order of what it can bring."""

from types import SimpleNamespace
from typing import Any

import pytest

from kernelwright.graphs.regions import search
from kernelwright.graphs.regions.budget import Costs, Given, planned, turn_s, wanted_words
from kernelwright.graphs.regions.search import may_pay
from kernelwright.tools.types.outline import ModelRegions, Region, RegionClass

COSTS = Costs(
    listing_s=20.0, turn_s=10.0, reading_s=3.0, compile_s=24.0, judged_s=6.0, certifying_s=30.0
)


def parted(*kinds: tuple[int, float]) -> ModelRegions:
    """Classes with so many places and so much of the time each, all of it to be gained."""
    place = Region(nodes=("n",), inputs=("x",), weights=(), outputs=("n",))
    classes = tuple(
        RegionClass(
            name=f"R{number}", key=str(number), words="", regions=(place,) * places,
            time_ms=share, share=share, floor_ms=0.0,
        )
        for number, (places, share) in enumerate(kinds, start=1)
    )  # fmt: skip
    return ModelRegions(classes=classes, left=(), whole_ms=1.0)


def given(seconds: float, *, asked: bool = True, spent_s: float = 0.0) -> Given:
    """A search whose seconds hold everything, as `--seconds` means it."""
    return Given(
        seconds=seconds, left_s=seconds - spent_s, holds_baselines=True, asked=asked
    )  # fmt: skip


def test_the_shares_are_all_that_is_left():
    for regions, left_s in ((None, 180.0), (parted((12, 0.5), (1, 0.1)), 160.0)):
        budget = planned(COSTS, given(180, spent_s=180 - left_s), regions)
        shares = budget.listing_s + budget.regions_s + budget.whole_s + budget.certification_s
        assert shares == pytest.approx(left_s)


def test_a_search_too_short_for_one_turn_says_how_many_seconds_would_do():
    budget = planned(COSTS, given(45))
    assert budget.turns == 0
    assert "45 s are too few" in budget.why_not
    # Listing, one turn, the whole judged twice with two builds of torch.compile, certification.
    assert budget.wanted_s == pytest.approx(20 + 10 + 2 * 6 + 2 * 24 + 30)
    enough = planned(COSTS, given(budget.wanted_s))
    assert enough.turns == 1
    assert not enough.why_not


@pytest.mark.parametrize("regions", [None, parted((12, 0.5), (1, 0.1))])
@pytest.mark.parametrize("left_s", [2.0, 32.0])
def test_a_model_in_parts_is_searched_by_regions_however_short_the_search(
    regions: ModelRegions | None, left_s: float
):
    short = Given(seconds=32, left_s=left_s, holds_baselines=True, compiles=False, alone=True)
    budget = planned(COSTS, short, regions)
    assert not budget.why_not
    assert budget.turns == 1
    assert "32 s are too few" in budget.warning
    assert budget.warning.endswith("the one that can bring most has what time there is")
    shares = (budget.regions_s, budget.whole_s, budget.certification_s)
    assert min(shares) >= 0.0
    assert sum(shares) == pytest.approx(max(0.0, left_s - budget.listing_s))
    assert budget.regions_s == pytest.approx(min(10.0, 0.7 * sum(shares)))
    enough = planned(COSTS, short.model_copy(update={"seconds": 300, "left_s": 300}), regions)
    assert not enough.warning
    assert enough.turns > 1
    assert not planned(COSTS, short, parted()).warning  # nothing takes enough of the time


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_of_a_model_in_parts_nothing_is_set_aside_for_torch_compile(kind: str):
    graph: Any = SimpleNamespace(nodes=())
    whole: Any = SimpleNamespace(graph=SimpleNamespace(nodes=(1,) * 300), parts=())
    parts: Any = SimpleNamespace(graph=graph, parts=("a", "b", "c"))
    costs, other = Costs.of(parts, kind, 20.0), Costs.of(whole, kind, 20.0)
    assert costs.listing_s == other.listing_s
    assert (costs.compile_s, costs.certifying_s) == (0.0, 20.0)
    assert costs.as_listed(3 * costs.listing_s).certifying_s == 20.0
    assert other.compile_s > 0.0


def test_what_listing_took_less_is_the_regions():
    regions = parted(*[(4, 0.1)] * 9)
    slow = planned(COSTS, given(180, spent_s=40), regions)
    quick = planned(COSTS, given(180, spent_s=10), regions)
    assert quick.turns == slow.turns + 3
    assert quick.whole_s == pytest.approx(slow.whole_s)


def test_all_classes_have_a_turn_in_the_seconds_that_are_said_for_all():
    regions = parted(*[(4, 0.1)] * 9)
    short = planned(COSTS, given(150, spent_s=20), regions)
    assert 0 < short.turns < 9
    more = planned(COSTS, given(short.wanted_all_s, spent_s=20), regions)
    assert more.turns == 9
    assert more.gain_share == pytest.approx(1.0)


def test_a_person_reads_the_plan_in_one_line():
    budget = planned(COSTS, given(180, spent_s=23), parted(*[(4, 0.1)] * 9))
    assert budget.words == (
        "plan of 3 min 0 s: about 1 min 7 s for 6 of 9 that differ (67% of what there is to gain), "
        "1 min 0 s for the whole beside torch.compile, 30 s to certify"
    )
    assert len(budget.words) <= 200  # what the terminal shows of a note
    assert "20 s to list its regions" in planned(COSTS, given(180)).words


def test_unasked_a_module_of_one_or_two_regions_is_searched_as_one():
    for kinds in (((2, 0.9),), ((2, 0.9), (40, 0.001))):
        unasked = planned(COSTS, given(600, asked=False), parted(*kinds))
        assert "only 2 of its regions" in unasked.why_not
        assert not planned(COSTS, given(600), parted(*kinds)).why_not
    assert not planned(COSTS, given(600, asked=False), parted((2, 0.6), (1, 0.3))).why_not


def test_unasked_those_with_a_turn_have_to_hold_half_of_what_there_is_to_gain():
    different, equal = parted(*[(1, 0.05)] * 12), parted((12, 0.5), (1, 0.1), (1, 0.1))
    short = given(130, asked=False)
    refused = planned(COSTS, short, different).why_not
    assert "the time is for 4 of 12 regions that differ" in refused
    assert "33% of what there is to gain" in refused
    assert not planned(COSTS, short, equal).why_not  # twelve equal layers


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_a_longer_search_gives_more_regions_a_turn_on_every_device(kind: str):
    costs = Costs.expected(kind, 300, 20.0)
    turns = [planned(costs, given(seconds)).turns for seconds in (45, 180, 600)]
    assert turns[0] == 0
    assert 0 < turns[1] < turns[2]


def test_a_certification_that_is_none_of_the_search_has_no_share():
    alone = given(180).model_copy(update={"holds_certification": False})
    assert planned(COSTS, alone).certification_s == 0.0
    beside = given(180).model_copy(update={"holds_baselines": False})
    assert planned(COSTS, beside).listing_s == 0.0
    assert planned(COSTS, beside).regions_s > planned(COSTS, given(180)).regions_s


def test_turns_share_what_is_left_by_what_they_can_bring_and_none_is_too_short():
    waiting = parted((1, 0.6), (1, 0.2), (1, 0.1)).classes
    assert turn_s(9.0, waiting, 10.0) == 0.0
    assert turn_s(15.0, waiting, 10.0) == pytest.approx(15.0)
    first = turn_s(60.0, waiting, 10.0)
    assert first == pytest.approx(10 + 30 * 0.6 / 0.9)
    assert turn_s(60.0 - first, waiting[1:], 10.0) == pytest.approx(10 + 10 * 0.2 / 0.3)


def test_a_session_that_goes_on_keeps_the_end_of_regions_that_was_planned_first():
    kept: dict[str, str] = {}
    context: Any = SimpleNamespace(
        searched_s=10.0, profile=SimpleNamespace(seconds=180.0),
        archive=SimpleNamespace(term=kept.get, record_term=kept.__setitem__),
    )  # fmt: skip
    regions = parted(*[(4, 0.1)] * 9)
    first = planned(COSTS, given(180, spent_s=20), regions)
    ends_s = search._ends_s(context, first)
    assert ends_s == pytest.approx(10.0 + first.regions_s)
    context.searched_s = 60.0
    assert search._ends_s(context, planned(COSTS, given(180, spent_s=70), regions)) == ends_s
    context.profile.seconds = 400.0  # more time is a new plan
    more = planned(COSTS, given(400, spent_s=70), regions)
    assert search._ends_s(context, more) == pytest.approx(60.0 + more.regions_s)


@pytest.mark.parametrize(("remote", "wanted"), [(False, True), (True, False)])
def test_regions_are_planned_for_unasked_where_a_model_is_large_and_the_device_here(
    monkeypatch: pytest.MonkeyPatch, remote: bool, wanted: bool
):
    large, small = SimpleNamespace(parts=()), SimpleNamespace(parts=())
    monkeypatch.setattr(search, "is_large", lambda task: task is large)
    context: Any = SimpleNamespace(
        task=large, executor=SimpleNamespace(capabilities=SimpleNamespace(remote=remote))
    )
    assert may_pay(context) is wanted
    context.task = small
    assert not may_pay(context)
    context.task = SimpleNamespace(parts=("first",))
    assert may_pay(context)  # there is no other way


def test_an_audit_says_which_seconds_regions_would_want():
    regions = parted(*[(4, 0.1)] * 9)
    assert wanted_words(COSTS, regions) == (
        "about 2 min 0 s search the one that can bring most, 3 min 20 s all 9 that differ"
    )
    assert not planned(COSTS, given(120)).why_not
    assert planned(COSTS, given(200, spent_s=20), regions).turns == 9
    assert wanted_words(COSTS, parted()) == ""


def test_a_slow_machine_is_told_by_what_listing_took():
    slow = COSTS.as_listed(50.0)
    assert slow.turn_s == pytest.approx(25.0)
    assert slow.compile_s == pytest.approx(60.0)
    assert slow.certifying_s == pytest.approx(30.0 + 18.0)
    assert COSTS.as_listed(5000.0).turn_s == pytest.approx(40.0)
    quick = COSTS.as_listed(16.0)
    assert quick.turn_s == COSTS.turn_s
    assert quick.compile_s == pytest.approx(0.8 * COSTS.compile_s)


def test_a_build_that_was_made_is_not_set_aside_again():
    regions = parted(*[(4, 0.1)] * 3)
    before, after = (
        planned(COSTS, given(200, spent_s=20).model_copy(update={"compiled": made}), regions)
        for made in (False, True)
    )
    assert after.whole_s + after.regions_s == pytest.approx(before.whole_s + before.regions_s)
    assert after.wanted_s == pytest.approx(before.wanted_s - COSTS.compile_s)
