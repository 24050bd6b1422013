import pytest

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.types import (
    Candidate,
    CompileReport,
    Conditions,
    DType,
    Evaluation,
    Graph,
    Measurement,
    Setting,
    Task,
    TensorSpec,
    Verdict,
    Verification,
)


@pytest.fixture
def h200():
    return hardware_profile("h200")


@pytest.fixture
def task():
    """A GiB in, a GiB out, without the graph that the profiler never reads."""
    spec = TensorSpec(shape=(16384, 16384), dtype=DType.FLOAT32)
    return Task(
        name="copy",
        path="copy.py",
        source="",
        source_sha256="",
        entry="Model",
        entry_kind="kernelbench",
        inputs=(),
        outputs=(spec,),
        graph=Graph(nodes=(), inputs=(), outputs=()),
        bytes_moved=2 * spec.size_bytes,
        flops=spec.numel,
    )


@pytest.fixture
def candidate():
    return Candidate(
        id="c1",
        language="cuda",
        kernel="",
        plan='def forward(x):\n    launch("k", grid=8, block=(L0_THREADS, 2), args=(x,))\n',
        settings=(Setting(name="L0_THREADS", value=256),),
    )


@pytest.fixture
def evaluation():
    def build(median_ms, **report):
        measured = Measurement(
            median_ms=median_ms,
            p10_ms=median_ms * 0.99,
            p90_ms=median_ms * 1.01,
            samples_ms=(median_ms,),
            conditions=Conditions(
                device="GPU", l2_flushed=True, input_sets=2, sm_clock_mhz=1980, power_w=500.0
            ),
        )
        return Evaluation(
            candidate="c1",
            verification=Verification(verdict=Verdict.CORRECT, reason=""),
            reports=(CompileReport(kernel="k", **report),),
            screen=measured,
        )

    return build
