"""What earns a reward, and what a training run's folder holds; nothing here needs a model."""

from pathlib import Path

import pytest

from kernelwright.tools.learning.judging import CHEATS, Worth
from kernelwright.tools.learning.training.course import Course, OtherRunError, rate_at
from kernelwright.tools.learning.training.rewards import advantages, reward, smoothed
from kernelwright.tools.learning.training.rl import RlSettings
from kernelwright.tools.learning.training.sft import SftSettings, rows_of_step, updates
from kernelwright.tools.types import Verdict


def worth(speedup: float | None, verdict: Verdict = Verdict.CORRECT) -> Worth:
    ms = None if speedup is None else 1.0
    return Worth(verdict=verdict, median_ms=ms, baseline_ms=speedup)


def test_only_what_is_correct_earns_and_cheats_never_do() -> None:
    for verdict in set(Verdict) - {Verdict.CORRECT}:
        assert reward(worth(1000.0, verdict)) == 0.0
    assert len(CHEATS) == 3
    assert reward(worth(None)) == pytest.approx(0.4)
    assert reward(worth(0.01)) == pytest.approx(0.4)


def test_speed_earns_more_up_to_four_times_and_noise_next_to_nothing() -> None:
    earned = [reward(worth(speed)) for speed in (0.6, 0.9, 1.0, 1.1, 1.5, 3.0)]
    assert earned == sorted(earned)
    assert reward(worth(1947.0)) == reward(worth(5.0)) == pytest.approx(1.0)
    assert smoothed(1.03) < 0.02
    assert smoothed(2.0) > 0.9


def test_an_advantage_leaves_its_own_reward_out() -> None:
    assert advantages([1.0, 0.0, 0.0, 0.5, 0.5, 0.5], 3) == pytest.approx(
        [1.0, -0.5, -0.5, 0.0, 0.0, 0.0]
    )
    assert sum(advantages([0.1, 0.7, 0.4], 3)) == pytest.approx(0.0)


def test_every_row_is_seen_once_an_epoch_in_another_order() -> None:
    settings = SftSettings(data="", model="", batch=4, epochs=2.0)
    assert updates(10, settings) == 5
    places = [at for step in range(5) for at in rows_of_step(10, step, settings)]
    assert sorted(places[:10]) == sorted(places[10:]) == list(range(10))
    assert places[:10] != places[10:]


def test_the_rate_warms_up_and_falls_to_a_tenth() -> None:
    rates = [rate_at(step, 100, 1.0) for step in range(100)]
    assert rates[0] == pytest.approx(0.2)
    assert max(rates) == 1.0
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert rates[-1] == pytest.approx(0.1, abs=0.01)


def test_a_folder_keeps_to_its_settings_but_may_go_on_for_longer(tmp_path: Path) -> None:
    settings = RlSettings(data="d", model="m")
    Course(tmp_path, settings)
    Course(tmp_path, settings.model_copy(update={"steps": 99}))
    with pytest.raises(OtherRunError, match=r"a training with group 16, rate 3e-05"):
        Course(tmp_path, settings.model_copy(update={"group": 4, "rate": 1.0}))
    with pytest.raises(OtherRunError, match="another kind"):
        Course(tmp_path, SftSettings(data="d", model="m"))
