"""Claims cite, and predictions name, what profilers measured: readings recorded on an H200."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelwright.agents.critic.critic import CriticInput, PlaybookCritic
from kernelwright.agents.critic.model import ModelCritic
from kernelwright.agents.shared.facts import known, reading, shift_behind
from kernelwright.tools.archive import Standing
from kernelwright.tools.profile import measured_evidence
from kernelwright.tools.profile.ncu_report import read_counters
from kernelwright.tools.types import Evidence, HostCounters, Profile, Prompt, Rank, Reply

MakeStanding = Callable[..., Standing]
RECORDED = Path(__file__).parents[2] / "tools" / "profile" / "recorded" / "ncu_raw.csv"
COUNTERS = read_counters(RECORDED.read_text(), ("transposed_copy", "row_sums"))


def counted(kernel: str) -> tuple[Evidence, ...]:
    """What Nsight Compute counted of one launch, as of a candidate that makes no other."""
    (launch,) = (item for item in COUNTERS if item.kernel == kernel)
    alone = launch.model_copy(update={"launch": 0, "dominant": True})
    return measured_evidence(Profile(candidate="c", counters=(alone,), launches=1))


def host(faults: float, misses: float) -> tuple[Evidence, ...]:
    """What Linux counted of a call."""
    told = HostCounters(
        calls=9, time_ms=1.0, cpu_ns=1e6, cycles=3e6, instructions=1.5e6, llc_load_misses=misses,
        faults=faults, fault_us=0.25,
    )  # fmt: skip
    return measured_evidence(Profile(candidate="c", host=told))


class Said:
    def __init__(self, answer: dict[str, object]) -> None:
        self.answer = answer
        self.asked: list[Prompt] = []

    async def say(self, prompt: Prompt) -> Reply:
        self.asked.append(prompt)
        return Reply(text=json.dumps(self.answer))


@pytest.fixture
def critic_input(standing: MakeStanding) -> CriticInput:
    fast = standing(("rows=coalesced",), 1.0)
    slow = standing(("rows=scattered",), 4.0, threads=128)
    profiled = (
        (fast.candidate.id, counted("cunn_SoftMaxForwardReg")),
        (slow.candidate.id, counted("row_sums")),
    )
    return CriticInput(round=1, standings=(fast, slow), profiled=profiled)


def test_a_counter_is_a_fact_with_its_rank_and_unit(standing: MakeStanding) -> None:
    item = standing(("rows=once",), 1.0)
    facts = known(item.candidate, item.evaluation, measured=counted("row_sums"))
    assert reading(facts, "row_sums.local_read") == reading(facts, "local_read") > 5e8
    (found,) = (fact for fact in facts if fact.is_called("dram_read"))
    assert (found.rank, found.unit) == (Rank.MEASURED, "bytes")
    assert all(fact.value is not None for fact in facts)


def test_of_readings_that_the_judge_has_too_the_judges_are_kept(standing: MakeStanding) -> None:
    item = standing(("rows=once",), 1.0)
    stale = Evidence(name="screen_ms", rank=Rank.MEASURED, value=9.0, unit="ms", source="old")
    facts = known(item.candidate, item.evaluation, measured=(stale,))
    assert reading(facts, "screen_ms") == 1.0


async def test_the_rules_cite_the_reading_behind_a_difference(critic_input: CriticInput) -> None:
    analysis = await PlaybookCritic().critique(critic_input)
    claim = next(item for item in analysis.claims if item.words.startswith("rows=coalesced"))
    assert "load_sectors_per_request is 4 sectors with it and 32 sectors with the other" in (
        claim.words
    )
    fast, slow = (item.candidate.id for item in critic_input.standings)
    assert f"{fast}: load_sectors_per_request 4 sectors (measured)" in claim.numbers
    assert f"{slow}: load_sectors_per_request 32 sectors (measured)" in claim.numbers


def test_what_linux_counted_explains_a_difference_on_a_processor() -> None:
    shift = shift_behind(("a", host(1000, 1e4)), ("b", host(1000, 4e4)), 1.0)
    assert shift is not None
    assert shift.words.startswith("missed_bytes is 6.4e+05 bytes with it and 2.56e+06 bytes")
    shift = shift_behind(("a", host(100, 1e4)), ("b", host(2000, 1e4)), 1.0)
    assert shift is not None
    assert shift.words.startswith("fault_share is 0.025 with it and 0.5")
    assert shift_behind(("a", host(100, 1e4)), ("b", host(100, 1.05e4)), 1.0) is None


async def test_a_models_claim_may_cite_a_counter_and_its_prediction_name_one(
    critic_input: CriticInput, standing: MakeStanding
) -> None:
    claim = {
        "words": "K2 asks for 32 sectors where K1 asks for 4.", "faster": "K1", "slower": "K2",
        "numbers": ["K1.load_sectors_per_request=4", "K2.row_sums.load_sectors_per_request=32"],
    }  # fmt: skip
    tried = {
        "words": "Let no thread store alone.", "attribute": "THREADS", "value": "256",
        "below_ms": 0.9, "metric": "dram_traffic", "metric_to": 7e7,
    }  # fmt: skip
    client = Said({"explains": [claim], "implies": "Sectors decide.", "next": [tried]})
    critic = ModelCritic(client, PlaybookCritic())
    first = await critic.critique(critic_input)
    assert first.notes == ()
    assert "load_sectors_per_request 4 sectors (measured)" in first.claims[0].numbers[0]
    (prediction,) = first.predictions
    assert prediction.metric == "dram_traffic"
    assert prediction.metric_from == pytest.approx(1.141e8, rel=0.01)
    row = "| K2.row_sums.load_sectors_per_request | 32 | sectors | measured: Nsight Compute "
    assert row in client.asked[0].messages[-1].text

    after = standing(("rows=coalesced",), 0.5, round=2, threads=256)
    moved = (after.candidate.id, counted("row_sums"))
    second = await PlaybookCritic().critique(
        CriticInput(
            round=2,
            standings=(*critic_input.standings, after),
            profiled=(*critic_input.profiled, moved),
            analyses=(first,),
        )
    )
    scored = next(item for item in second.predictions if item.made_in_round == 1)
    assert scored.held is True
    assert scored.metric_measured == pytest.approx(7.06e7, rel=0.01)


async def test_a_counter_cited_with_another_value_is_struck_out(critic_input: CriticInput) -> None:
    claim = {
        "words": "It is so.", "faster": "K1", "slower": "K2",
        "numbers": ["K1.load_sectors_per_request=8", "K2.load_sectors_per_request=32"],
    }  # fmt: skip
    client = Said({"explains": [claim], "implies": "So.", "next": []})
    analysis = await ModelCritic(client, PlaybookCritic()).critique(critic_input)
    assert "load_sectors_per_request is 4, not 8" in analysis.notes[0]
    assert all(item.words != "It is so." for item in analysis.claims)
