"""What each depth takes to the end, on the card; and how long a person says it may."""

from dataclasses import replace

from kernelwright.agents.assistant.types import SetBudget, StartSearch
from kernelwright.graphs.conversation.background.task_card import TaskCard, cost_words, offers
from kernelwright.graphs.conversation.budgets import Outlook, _said_of, beyond, budgeted
from kernelwright.graphs.search.pace import DEPTHS, Pace, Spent, Took
from kernelwright.profiles.load import search_profile


def card(pace: Pace) -> TaskCard:
    depths = tuple((name, pace.promise(search_profile(name)).words) for name in DEPTHS)
    return TaskCard(
        name="softmax", file="softmax.py", entry="Model", inputs=(), weights="", bytes_moved=8,
        flops=8, device="a CPU", eager_ms=2.0, floor_ms=1.0, operators=(), warnings=(),
        search="standard", rounds=6, seconds=240.0, depths=depths,
    )  # fmt: skip


def test_a_button_for_each_depth_says_its_time() -> None:
    took = Took(depth="quick", comparing_s=6.0, searching_s=13.0, profiling_s=2.0, certifying_s=9.0)
    found = card(Pace(device="a CPU", kind="cpu", searches=(took,)))
    told = {offer.label: offer.wish for offer in offers(found)}
    assert told["Go"] == StartSearch()
    assert told["Quick: about 30 s"] == StartSearch(search="quick")
    deep = next(label for label in told if label.startswith("Deep: about 1 h"))
    assert "first guess" in deep
    assert told[deep] == StartSearch(search="deep")
    assert cost_words(found).startswith("quick about 30 s, standard about ")
    assert "certification included" in cost_words(found)


def test_seconds_that_are_named_in_the_chat_hold_everything_until_they_are_taken_back() -> None:
    quick = search_profile("quick")
    outlook = Outlook("running", quick, spent=Spent(searched_s=10.0, whole_s=20.0))
    assert not any(name == "seconds" for name, _ in beyond(quick))
    for command, named_s in (
        (SetBudget(seconds=quick.seconds), quick.seconds),
        (SetBudget(seconds=60.0, from_now=True), 80.0),
    ):
        named = budgeted(outlook, command, 0, 0.0)
        assert (named.seconds, named.seconds_hold) == (named_s, "everything")
        assert ("seconds", named_s) in beyond(named)
        back = budgeted(replace(outlook, profile=named), SetBudget(lift=("seconds",)), 0, 0.0)
        assert back == quick
    assert budgeted(outlook, SetBudget(rounds=9), 0, 0.0).seconds_hold == "certification"


def test_a_cap_that_is_over_already_says_that_nothing_is_certified() -> None:
    running = Outlook("running", search_profile("quick"), spent=Spent(12.0, 20.0))
    said = _said_of("seconds", 15.0, running, 0, None)
    assert said.endswith(
        "20 s spent so far. That is over: nothing more begins, and nothing is certified."
    )
    assert _said_of("seconds", 40.0, running, 0, None).endswith("20 s spent so far.")
