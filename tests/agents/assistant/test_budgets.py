"""What a search may spend, as people say it in two languages."""

import pytest

from kernelwright.agents.assistant.parsing.budgets import Limits, limits_in, without_limits
from kernelwright.agents.assistant.parsing.text import bare, plain, translated
from kernelwright.agents.assistant.rules import read
from kernelwright.agents.assistant.types import (
    ChangeTask,
    Command,
    ContinueSearch,
    PauseSearch,
    SetBudget,
    StartSearch,
    Steer,
    Turn,
)

AMOUNTS: tuple[tuple[str, Limits], ...] = (
    ("use at most 10000 tokens", Limits(tokens=10_000)),
    ("use at most 10,000 tokens", Limits(tokens=10_000)),
    ("höchstens 10.000 Tokens", Limits(tokens=10_000)),
    ("max 10k tokens", Limits(tokens=10_000)),
    ("a token budget of 5 thousand", Limits(tokens=5_000)),
    ("no more than 2 million tokens", Limits(tokens=2_000_000)),
    ("use 4096 tokens", Limits()),
    ("spend at most 2 dollars", Limits(usd=2.0)),
    ("spend at most 50 cents", Limits(usd=0.5)),
    ("spend no more than $0.50", Limits(usd=0.5)),
    ("gib höchstens 2 Dollar aus", Limits(usd=2.0)),
    ("take up to 6 minutes", Limits(seconds=360.0)),
    ("nimm dir 1,5 Minuten", Limits(seconds=90.0)),
    ("a minute and a half", Limits(seconds=90.0)),
    ("anderthalb Stunden", Limits(seconds=5400.0)),
    ("eine Viertelstunde", Limits(seconds=900.0)),
    ("5m30s", Limits(seconds=330.0)),
    ("1 min 30 s", Limits(seconds=90.0)),
    ("stop after 3 rounds", Limits(rounds=3)),
    ("stop after round 3", Limits(rounds=3)),
    ("stop after this round", Limits(rounds=0, from_now=True)),
    ("höre nach dieser Runde auf", Limits(rounds=0, from_now=True)),
    ("stop in 30 seconds", Limits(seconds=30.0, from_now=True)),
    ("ten more seconds", Limits(seconds=10.0, more=True)),
    ("noch zehn Sekunden", Limits(seconds=10.0, more=True)),
    ("no more than 5 minutes", Limits(seconds=300.0)),
    ("nicht mehr als 5 Minuten", Limits(seconds=300.0)),
    ("a deep search", Limits(search="deep")),
    ("eine gründliche Suche", Limits(search="deep")),
    ("eine schnelle Suche", Limits(search="quick")),
    ("take your time", Limits(search="deep")),
    ("make my module run fast", Limits()),
    ("make it run as fast as possible", Limits()),
    ("try 4 warps per row", Limits()),
    ("on an H100", Limits()),
)


@pytest.mark.parametrize(("text", "limits"), AMOUNTS, ids=lambda value: str(value)[:40])
def test_an_amount_is_read(text: str, limits: Limits) -> None:
    assert limits_in(bare(translated(plain(text)))) == limits


def test_what_is_left_without_amounts_is_what_else_was_said() -> None:
    assert without_limits("search for 10 minutes") == "search"
    assert without_limits("use fewer registers") == "use fewer registers"


ORDERS: tuple[tuple[str, str, tuple[Command, ...]], ...] = (
    ("running", "use at most 10000 tokens", (SetBudget(tokens=10_000),)),
    ("task", "use at most 10000 tokens", (SetBudget(tokens=10_000),)),
    ("running", "don't use more than 10k tokens", (SetBudget(tokens=10_000),)),
    ("running", "please don't spend more than $2", (SetBudget(usd=2.0),)),
    ("running", "spend at most 50 cents on models", (SetBudget(usd=0.5),)),
    ("running", "take up to 6 minutes", (SetBudget(seconds=360.0),)),
    ("task", "take up to 6 minutes", (StartSearch(seconds=360.0),)),
    ("running", "run for 10 minutes", (SetBudget(seconds=600.0),)),
    ("running", "stop after 3 rounds", (SetBudget(rounds=3),)),
    ("running", "hör nach drei Runden auf", (SetBudget(rounds=3),)),
    ("running", "stop after this round", (SetBudget(rounds=0, from_now=True),)),
    ("running", "stop in 30 seconds", (SetBudget(seconds=30.0, from_now=True),)),
    ("running", "ten more seconds", (ContinueSearch(more_seconds=10.0),)),
    ("ended", "ten more seconds", (ContinueSearch(more_seconds=10.0),)),
    ("running", "noch 2 Runden bitte", (ContinueSearch(more_rounds=2),)),
    ("running", "another dollar", (SetBudget(usd=1.0, more=True),)),
    ("running", "remove the token limit", (SetBudget(lift=("tokens",)),)),
    ("running", "no limit on tokens", (SetBudget(lift=("tokens",)),)),
    ("running", "stop trying shared memory and take up to 6 minutes",
     (Steer(bans=("shared memory",)), SetBudget(seconds=360.0))),
    ("task", "eine gründliche Suche, höchstens 10 Minuten",
     (StartSearch(search="deep", seconds=600.0),)),
    ("task", "go, at most 2 dollars", (StartSearch(usd=2.0),)),
    # no budgets
    ("running", "use fewer registers", (Steer(hints=("fewer registers",)),)),
    ("running", "use at most 64 registers", (Steer(hints=("at most 64 registers",)),)),
    ("running", "use 2 warps per row", (Steer(hints=("2 warps per row",)),)),
    ("running", "wait a minute", (PauseSearch(),)),
    ("task", "use 4096 tokens", (ChangeTask(sizes=("rows=4096",)),)),
)  # fmt: skip


@pytest.mark.parametrize(
    ("situation", "text", "commands"), ORDERS, ids=lambda value: str(value)[:40]
)
def test_a_budget_is_a_budget_and_nothing_else_is(
    situations: dict[str, Turn], situation: str, text: str, commands: tuple[Command, ...]
) -> None:
    turn = situations[situation].model_copy(update={"text": text})
    assert read(turn).understanding.commands == commands
