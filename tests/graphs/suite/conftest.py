from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from kernelwright.graphs.suite import Against, Outcome, Terms
from kernelwright.tools.types import Badge, Conditions
from kernelwright.tools.types.run import (
    BaselineSummary,
    BestSummary,
    CandidateCounts,
    HardwareSummary,
    Summary,
    TaskSummary,
)

TERMS = Terms(
    search="quick", seconds=None, seed=0, target="cpu", kernelwright="0", torch="2"
)  # fmt: skip


@pytest.fixture
def terms() -> Terms:
    return TERMS


@pytest.fixture
def outcome() -> Callable[..., Outcome]:
    """An outcome with ratios over eager and compile, or without any."""

    def make(
        file: str,
        ratios: Sequence[float] = (),
        *,
        half_width: float = 0.01,
        warnings: tuple[str, ...] = (),
        badges: tuple[Badge, ...] = (),
        terms: Terms = TERMS,
        sha256: str = "0",
    ) -> Outcome:
        against = tuple(
            Against(
                baseline=name, ratio=value, ci95=(value - half_width, value + half_width), pairs=8,
                candidate_ms=1.0, baseline_ms=value,
                conditions=Conditions(device="toy", l2_flushed=False, input_sets=1),
            )
            for name, value in zip(("eager", "compile"), ratios, strict=False)
        )  # fmt: skip
        return Outcome(
            file=file, sha256=sha256, ended="searched" if ratios else "refused", terms=terms,
            words="" if ratios else "it has no module", warnings=warnings, badges=badges,
            against=against,
            summary=_summary(file, min(ratios), half_width) if ratios else None, seconds=1.0,
        )  # fmt: skip

    return make


def _summary(name: str, ratio: float, half_width: float) -> Summary:
    best = BestSummary(
        candidate="c1", median_ms=1.0, speedup_vs_eager=ratio, speedup_vs_best_baseline=ratio,
        ci95=(ratio, ratio), floor_fraction=0.5, error_ratio=1.0, coverage=1.0,
        method="own kernels with library operators (mm)", precision="fp32", verdict="correct",
    )  # fmt: skip
    return Summary(
        run="r", task=TaskSummary(name=name, inputs=(), bytes=1, flops=1, floor_ms=0.5),
        hardware=HardwareSummary(name="Toy", kind="cpu"),
        status="improved" if ratio - half_width > 1.0 else "no_improvement",
        baselines={"eager": BaselineSummary(median_ms=2.0)}, best=best, rounds=1, seconds=1.0,
        candidates=CandidateCounts(written=1, compiled=1, correct=1, timed=1),
    )  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, ...]:
    """Three files whose content nobody reads but the toy."""
    folder = tmp_path / "suite"
    folder.mkdir()
    paths = tuple(folder / f"{number}_toy.py" for number in (1, 2, 3))
    for path in paths:
        path.write_text(f"# {path.name}\n")
    return paths
