from collections.abc import Callable

import pytest

from kernelwright.agents.critic.contrast import Sample
from kernelwright.agents.critic.scoring import answers, score
from kernelwright.tools.archive import Standing
from kernelwright.tools.types import Analysis, CompileReport, Prediction

MakeStanding = Callable[..., Standing]


def analysis(**prediction: object) -> Analysis:
    made = {"words": "w", "attribute": "memory", "value": "on chip", "below_ms": 1.0}
    predicted = Prediction.model_validate(made | {"made_in_round": 1} | prediction)
    return Analysis(round=1, claims=(), implies="", predictions=(predicted,))


def sample(**attributes: str) -> Sample:
    return Sample(
        candidate="c", median_ms=1.0, implementation="k", tunables=(),
        attributes=tuple(attributes.items()),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("attribute", "value", "fits"),
    [
        ("memory", "shared tile", True),
        ("memory", "Shared-Tile", True),
        ("memory", "shared tile, swizzled", False),
        ("memory", "", False),
        ("TILE", "32", True),
        ("TILE", "3", False),
        ("registers", "<= 64", True),
        ("STAGES", "2", False),
    ],
)
def test_a_candidate_answers_a_prediction_by_label_setting_or_outcome(
    attribute: str, value: str, fits: bool
) -> None:
    held = sample(memory="shared tile, double buffered", TILE="32", registers="<= 64")
    assert answers(held, attribute, value) is fits


def test_the_median_of_all_that_answer_decides(standing: MakeStanding) -> None:
    new = (
        standing(("memory=on chip",), 0.7, round=2, threads=64),
        standing(("memory=on chip, vectorised",), 0.9, round=2, threads=128),
        standing(("memory=on chip",), 3.0, round=2, threads=256),
        standing(("memory=streams",), 9.0, round=2),
        standing(("memory=on chip",), 0.1, round=1),
    )
    (scored,) = score(new, (analysis(),))
    assert (scored.held, scored.measured_ms) == (True, 0.9)


def test_what_nobody_tried_stays_open(standing: MakeStanding) -> None:
    (scored,) = score((standing(("memory=streams",), 0.1, round=2),), (analysis(),))
    assert scored.held is None


def test_a_wrong_candidate_answers_nothing(standing: MakeStanding) -> None:
    (scored,) = score((standing(("memory=on chip",), None, round=2),), (analysis(),))
    assert scored.held is None


@pytest.mark.parametrize(("registers", "held"), [(60, True), (80, True), (90, False), (None, True)])
def test_a_metric_has_to_come_half_of_the_way(
    standing: MakeStanding, registers: int | None, held: bool
) -> None:
    made = standing(("memory=on chip",), 0.5, round=2)
    report = CompileReport(kernel="run", registers=registers)
    evaluation = made.evaluation.model_copy(update={"reports": (report,)})
    new = made.model_copy(update={"evaluation": evaluation})

    def read(item: Standing, name: str) -> float | None:
        return item.evaluation.reports[0].registers

    said = analysis(metric="registers", metric_from=96.0, metric_to=64.0)
    (scored,) = score((new,), (said,), read)
    assert (scored.held, scored.metric_measured) == (held, registers)


def test_a_kernel_counts_once_by_its_fastest_settings(standing: MakeStanding) -> None:
    new = (
        standing(("memory=on chip",), 0.8, round=2, threads=64),
        standing(("memory=on chip",), 5.0, round=2, threads=128),
        standing(("memory=on chip",), 6.0, round=2, threads=256),
        standing(("memory=on chip, wide",), 0.9, round=2),
    )
    (kernels,) = score(new, (analysis(of="kernels"),))
    (candidates,) = score(new, (analysis(),))
    assert (kernels.held, kernels.measured_ms) == (True, pytest.approx(0.85))
    assert candidates.held is False
