from collections.abc import Callable
from pathlib import Path

import pytest

from kernelwright.profiles.load import Hardware, SearchProfile
from kernelwright.tools.archive import Archive
from kernelwright.tools.types import (
    Candidate,
    Conditions,
    DType,
    Evaluation,
    Graph,
    InputSpec,
    Measurement,
    Task,
    TensorSpec,
    TracePolicy,
    Verdict,
    Verification,
)

HARDWARE = Hardware(
    name="Toy", kind="cpu", source="test", cores=2, cache_mib=8, memory_gib=8,
    bandwidth_gb_s=10, fp32_tflops=0.1,
)  # fmt: skip
PROFILE = SearchProfile(
    name="tiny", rounds=2, ideas_per_round=2, candidates_per_idea=1, repairs=1, patience=1,
    seconds=60, tuning_trials=1, finalists=1, stop_at_floor_fraction=0.95, minimum_gain=1.01,
)  # fmt: skip
SPEC = TensorSpec(shape=(4, 8), dtype=DType.FLOAT32)


@pytest.fixture
def task() -> Task:
    return Task(
        name="Soft Max!", path="softmax.py", source="", source_sha256="0", entry="Model",
        entry_kind="kernelbench", inputs=(InputSpec(name="x", tensor=SPEC),), outputs=(SPEC,),
        graph=Graph(nodes=(), inputs=(), outputs=()), bytes_moved=256, flops=32,
    )  # fmt: skip


@pytest.fixture
def new_archive(tmp_path: Path, task: Task) -> Callable[[], Archive]:
    def make() -> Archive:
        return Archive.create(
            tmp_path, task, policy=TracePolicy(), profile=PROFILE, hardware=HARDWARE
        )

    return make


@pytest.fixture
def candidate() -> Callable[[str], Candidate]:
    def make(id: str, idea: str = "i1") -> Candidate:
        return Candidate(id=id, language="cpp", kernel="k", plan="p", idea=idea)

    return make


@pytest.fixture
def evaluation() -> Callable[..., Evaluation]:
    def make(id: str, ms: float | None, verdict: Verdict = Verdict.CORRECT) -> Evaluation:
        conditions = Conditions(device="toy", l2_flushed=False, input_sets=1)
        screen = ms and Measurement(
            median_ms=ms, p10_ms=ms, p90_ms=ms, samples_ms=(ms,), conditions=conditions
        )
        return Evaluation(
            candidate=id,
            verification=Verification(verdict=verdict, reason="", error_ratio=float("inf")),
            screen=screen or None,
        )

    return make
