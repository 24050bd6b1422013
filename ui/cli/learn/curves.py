"""The curves of a training run as one picture: a panel for each figure, over the steps."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from markupsafe import escape

from kernelwright.tools.learning.training.rl import RlStep
from kernelwright.tools.learning.training.sft import SftStep

NAME = "curves.svg"
_WIDTH, _HEIGHT, _LEFT, _TOP = 420, 150, 60, 26
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#666}.title{font-weight:600}"
    "polyline{fill:none;stroke:#2a78d6;stroke-width:1.6}rect{fill:none;stroke:#999}"
)


def sft_curves(folder: Path, steps: Sequence[SftStep]) -> Path:
    """Loss and rate of a fine-tuning; answers where the picture is."""
    return _write(
        folder,
        {
            "loss a token": [step.loss for step in steps],
            "norm of the gradient": [step.norm for step in steps],
            "learning rate": [step.rate for step in steps],
        },
    )


def rl_curves(folder: Path, steps: Sequence[RlStep]) -> Path:
    """Rewards and times of a reinforcement; answers where the picture is."""
    return _write(
        folder,
        {
            "reward": [step.reward for step in steps],
            "share of correct answers": [step.correct for step in steps],
            "share of correct and fast answers": [step.fast for step in steps],
            "share of groups that teach nothing": [step.flat for step in steps],
            "tokens of an answer": [step.length for step in steps],
            "seconds of sampling": [step.sampled_s for step in steps],
            "seconds of judging": [step.judged_s for step in steps],
        },
    )


def _write(folder: Path, curves: Mapping[str, Sequence[float]]) -> Path:
    panel = _HEIGHT + 2 * _TOP
    parts = [
        f'<g transform="translate(0 {number * panel})">{_panel(name, values)}</g>'
        for number, (name, values) in enumerate(curves.items())
    ]
    size = f'viewBox="0 0 {_WIDTH + 2 * _LEFT} {panel * len(parts)}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{_STYLE}</style>'
    path = folder / NAME
    path.write_text(head + "".join(parts) + "</svg>\n", encoding="utf-8")
    return path


def _panel(name: str, values: Sequence[float]) -> str:
    low, high = min(values, default=0.0), max(values, default=0.0)
    span, last = (high - low) or 1.0, max(1, len(values) - 1)
    points = " ".join(
        f"{_LEFT + _WIDTH * at / last:.1f},{_TOP + _HEIGHT * (high - value) / span:.1f}"
        for at, value in enumerate(values)
    )
    labels = (
        f'<text class="title" x="{_LEFT}" y="{_TOP - 8}">{escape(name)}</text>'
        f'<text x="4" y="{_TOP + 10}">{high:.3g}</text>'
        f'<text x="4" y="{_TOP + _HEIGHT}">{low:.3g}</text>'
        f'<text x="{_LEFT + _WIDTH}" y="{_TOP + _HEIGHT + 16}">{len(values)}</text>'
    )
    frame = f'<rect x="{_LEFT}" y="{_TOP}" width="{_WIDTH}" height="{_HEIGHT}"/>'
    return f'{frame}<polyline points="{points}"/>{labels}'
