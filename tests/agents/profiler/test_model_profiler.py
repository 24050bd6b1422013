import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelwright.agents.llm.client import LLMError
from kernelwright.agents.profiler.profiler import ModelProfiler, PlaybookProfiler
from kernelwright.profiles.load import Hardware
from kernelwright.tools.archive import Standing
from kernelwright.tools.profile import measured_evidence
from kernelwright.tools.profile.ncu_report import read_counters
from kernelwright.tools.types import (
    DType,
    Graph,
    HostCounters,
    InputSpec,
    Profile,
    Prompt,
    Reply,
    Task,
    TensorSpec,
)

SPEC = TensorSpec(shape=(1024, 1024), dtype=DType.FLOAT32)
TASK = Task(
    name="toy", path="toy.py", source="class Model: ...", source_sha256="0", entry="Model",
    entry_kind="kernelbench", inputs=(InputSpec(name="x", tensor=SPEC),), outputs=(SPEC,),
    graph=Graph(nodes=(), inputs=(), outputs=()), bytes_moved=8_000_000, flops=1_000_000,
)  # fmt: skip
HARDWARE = Hardware(
    name="Toy", kind="cpu", source="test", cores=2, cache_mib=8, memory_gib=8,
    bandwidth_gb_s=20, fp32_tflops=0.1,
)  # fmt: skip


class Said:
    def __init__(self, **answer: object) -> None:
        self.answer = answer
        self.asked: list[Prompt] = []

    async def say(self, prompt: Prompt) -> Reply:
        self.asked.append(prompt)
        if not self.answer:
            raise LLMError("the server is gone")
        return Reply(text=json.dumps(self.answer))


@pytest.fixture
def judged(standing: Callable[..., Standing]) -> Standing:
    return standing(("memory=streams",), 0.8)


async def test_an_explanation_carries_the_readings_that_it_cited(judged: Standing) -> None:
    client = Said(words="K1 waits for memory.", numbers=["K1.bandwidth_fraction=0.5", "K1.ipc=2"])
    reading = await ModelProfiler(client, PlaybookProfiler()).profile(
        judged.candidate, judged.evaluation, TASK, HARDWARE, closely=True, round=2
    )
    assert reading.explanation == (
        f"{judged.candidate.id} waits for memory. (bandwidth_fraction 0.5)"
    )
    assert "K1 has no reading ipc" in reading.notes[0]
    (prompt,) = client.asked
    assert (prompt.key, prompt.role, prompt.round) == (
        f"profiler:{judged.candidate.id}", "profiler", 2,
    )  # fmt: skip
    assert "K1.bandwidth_fraction | 0.5 |" in prompt.messages[-1].text
    assert "Not measured: " in prompt.messages[-1].text


async def test_an_explanation_without_a_number_that_holds_is_left_out(judged: Standing) -> None:
    client = Said(words="It is slow.", numbers=["K1.bandwidth_fraction=0.9"])
    reading = await ModelProfiler(client, PlaybookProfiler()).profile(
        judged.candidate, judged.evaluation, TASK, HARDWARE, closely=True
    )
    assert reading.explanation == ""
    assert "bandwidth_fraction is 0.5, not 0.9" in reading.notes[0]


@pytest.mark.parametrize("closely", [True, False])
async def test_readings_are_the_playbooks_whoever_answers(judged: Standing, closely: bool) -> None:
    client = Said()
    subject = (judged.candidate, judged.evaluation, TASK, HARDWARE)
    plain = await PlaybookProfiler().profile(*subject)
    reading = await ModelProfiler(client, PlaybookProfiler()).profile(*subject, closely=closely)
    assert reading.model_copy(update={"notes": ()}) == plain
    assert len(client.asked) == len(reading.notes) == closely


RECORDED = Path(__file__).parents[2] / "tools" / "profile" / "recorded" / "ncu_raw.csv"


async def test_a_counter_that_was_measured_may_be_cited(judged: Standing) -> None:
    counters = read_counters(RECORDED.read_text(), ("row_sums",))
    measured = measured_evidence(Profile(candidate="c", counters=counters, launches=len(counters)))
    numbers = ["K1.row_sums.stall_long_scoreboard=0.944", "K1.dram_traffic=3.017e+08"]
    client = Said(words="K1 waits for local memory.", numbers=numbers)
    reading = await ModelProfiler(client, PlaybookProfiler()).profile(
        judged.candidate, judged.evaluation, TASK, HARDWARE, measured=measured, closely=True
    )
    assert reading.notes == ()
    assert "row_sums.stall_long_scoreboard 0.94" in reading.explanation
    assert "dram_traffic 3.01" in reading.explanation
    text = client.asked[0].messages[-1].text
    assert "| K1.row_sums.local_read | 5.36" in text
    assert "| bytes | measured: Nsight Compute" in text


async def test_a_busy_machine_is_the_headline_whatever_bounds_the_kernel(judged: Standing) -> None:
    host = HostCounters(calls=9, time_ms=1.0, cpu_ns=1e6, faults=3000, fault_us=0.25, preemptions=4)
    measured = measured_evidence(Profile(candidate="c", host=host))
    reading = await PlaybookProfiler().profile(
        judged.candidate, judged.evaluation, TASK, HARDWARE, measured=measured
    )
    assert len(reading.symptoms) > 1
    assert reading.headline == (
        "4 times a call a thread lost its core to another process: the machine is busy, and "
        "times say little."
    )
