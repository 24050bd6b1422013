"""A toy repertoire of two loops, and measured candidates without a device."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

from kernelwright.tools.archive import Standing
from kernelwright.tools.codegen.ir import Strategy
from kernelwright.tools.codegen.library.kernel_library import LibraryDraft, Option, Repertoire
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.types import (
    Conditions,
    Evaluation,
    LanguageName,
    Measurement,
    Setting,
    Verdict,
    Verification,
)

KERNEL = """// tune: THREADS in 64, 128, 256
// tune: VECTOR in 1, 2, 4
// require: THREADS * VECTOR <= 512
extern "C" void run(const float* x, float* y) {{ /* {what} */ }}
"""
PLAN = "def forward(x):\n    y = empty_like(x)\n    launch('run', args=(x, y))\n    return y\n"


def strategy(name: str, memory: str, category: str = "memory") -> Strategy:
    return Strategy.model_validate({
        "name": name, "title": f"The {name} way", "mechanism": f"does {name}", "reason": "a reason",
        "category": category, "metric": "ms", "memory": memory, "compute": "plain",
        "parallel": "rows",
    })  # fmt: skip


@dataclass
class ToyRepertoire:
    """`times` gives each loop its strategies: name -> (memory label, predicted ms)."""

    times: Mapping[str, Mapping[str, tuple[str, float]]]
    language: LanguageName = "cpp"
    fixed_ms: float = 0.0

    def options(self) -> tuple[Option, ...]:
        return tuple(
            Option(loop=loop, family="toy", strategy=strategy(name, memory), predicted_ms=ms)
            for loop, of in self.times.items()
            for name, (memory, ms) in of.items()
        )

    def draft(self, choices: Mapping[str, str]) -> LibraryDraft:
        first = next(iter(self.times))
        memory = self.times[first][choices[first]][0]
        named = tuple(f"{loop}={choices[loop]}" for loop in sorted(self.times))
        kernel = KERNEL.format(what=", ".join(named))
        return LibraryDraft(kernel=kernel, plan=PLAN, strategies=(*named, f"memory={memory}"))


@pytest.fixture
def repertoire() -> Repertoire:
    return ToyRepertoire({
        "rows": {"twice": ("streams", 2.0), "once": ("on chip", 1.0), "tiled": ("cache", 1.5)},
        "tail": {"flat": ("streams", 0.2), "wide": ("streams", 0.3)},
    })  # fmt: skip


@pytest.fixture
def one_loop() -> Repertoire:
    return ToyRepertoire({
        "rows": {"twice": ("streams", 2.0), "once": ("on chip", 1.0), "tiled": ("cache", 1.5)}
    })  # fmt: skip


@pytest.fixture
def standing() -> Callable[..., Standing]:
    """A judged candidate: its strategies, its time (None: wrong), its settings."""
    count = 0

    def make(
        strategies: tuple[str, ...],
        ms: float | None,
        *,
        threads: int = 64,
        vector: int = 1,
        round: int = 1,
        idea: str = "r1i1",
        verdict: Verdict = Verdict.CORRECT,
    ) -> Standing:
        nonlocal count
        count += 1
        candidate = new_candidate(
            "cpp",
            KERNEL.format(what=", ".join(strategies)),
            PLAN,
            settings=(Setting(name="THREADS", value=threads), Setting(name="VECTOR", value=vector)),
            idea=idea,
            strategies=strategies,
        )
        conditions = Conditions(device="toy", l2_flushed=False, input_sets=1)
        screen = (
            Measurement(median_ms=ms, p10_ms=ms, p90_ms=ms, samples_ms=(ms,), conditions=conditions)
            if ms
            else None
        )
        found = Verification(verdict=verdict if ms else Verdict.WRONG_RESULT, reason="it is off")
        return Standing(
            number=count,
            candidate=candidate,
            round=round,
            author="coder",
            effort="screen",
            evaluation=Evaluation(candidate=candidate.id, verification=found, screen=screen),
        )

    return make
