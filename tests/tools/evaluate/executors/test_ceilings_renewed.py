"""A ceiling that was stored too low is found out by what beats it, and measured again."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.hardware import (
    Ceilings,
    detect,
    floor_ms,
    floor_words,
    keep_ceilings,
    stored_ceilings,
)
from kernelwright.tools.types import Candidate, Task, Verdict

TOO_LOW_GB_S = 0.002


@pytest.mark.exhaustive
async def test_a_baseline_and_a_candidate_below_a_stored_floor_raise_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: Task,
    short_rules: Rules,
    kernel: Callable[..., Candidate],
) -> None:
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "home"))
    device = detect("cpu")
    low = Ceilings(
        copy_gb_s=TOO_LOW_GB_S,
        read_gb_s=TOO_LOW_GB_S,
        fp32_tflops=1e6,
        torch_version="2",
        confirmed=True,
        times=2,
        spread=0.01,
    )
    assert keep_ceilings(device, low).confirmed
    # Small inputs may lie in a cache, where there is no floor; here they count as if they did not.
    rules = short_rules.model_copy(update={"floor_cache_multiple": 0.0})
    executor = LocalExecutor(device, tmp_path / "scratch", seed=7, rules=rules)
    try:
        before = await executor.hardware()
        assert before.bandwidth_gb_s == TOO_LOW_GB_S
        judged = await executor.evaluate(rows, kernel(), "screen")
        after = await executor.hardware()
    finally:
        await executor.aclose()
    assert judged.verdict is Verdict.CORRECT, judged.verification.reason
    assert after.bandwidth_gb_s > 10 * TOO_LOW_GB_S
    assert floor_ms(rows.bytes_moved, 0, after) < judged.median_ms
    stored = stored_ceilings(device)
    assert stored is not None
    assert stored.bandwidth_gb_s == after.bandwidth_gb_s
    assert "measured" in floor_words(after)
