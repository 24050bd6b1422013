"""What a stage of the proof came to, in one line, from the files that its command left."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean


def figures(home: Path, stage: str) -> str:
    """The line; it says so where there is nothing yet, or lines are half-written or older ones.

    Args:
        home: The proof's folder.
        stage: As `proof.py` names it.
    """
    tell: Callable[[Path], str] = {
        "data": _data, "sft": _sft, "rl": _rl, "unpack": lambda folder: "",
    }.get(stage, _evaluation)  # fmt: skip
    try:
        return tell(home / stage)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return "no figures yet"


def _data(folder: Path) -> str:
    summary = json.loads((folder / "summary.json").read_text())
    names = ("problems", "instructions", "contrastive", "preferences", "held_out")
    return ", ".join(f"{summary[name]} {name.replace('_', ' ')}" for name in names)


def _evaluation(folder: Path) -> str:
    scores = json.loads((folder / "report.json").read_text())["scores"]
    parts = [f"{name} {_share(scores[name])}" for name in scores if name != "tasks"]
    if (folder / "gain.json").exists():
        gain = json.loads((folder / "gain.json").read_text())
        parts += [f"gain of {name} {_share(gain[name])}" for name in gain if name != "tasks"]
    ended = Counter(
        verdict for one in _lines(folder / "results.jsonl") for verdict in one["verdicts"]
    )
    parts.append("; ".join(f"{many} {name}" for name, many in ended.most_common()))
    return ", ".join(parts)


def _share(found: Mapping[str, float]) -> str:
    value, low, high = (100 * found[name] for name in ("value", "low", "high"))
    return f"{value:.1f} % ({low:.1f} to {high:.1f})"


def _sft(folder: Path) -> str:
    steps = _lines(folder / "steps.jsonl")
    seconds = sum(step["seconds"] for step in steps)
    first, last = steps[0]["loss"], steps[-1]["loss"]
    words = f"{len(steps)} of {steps[-1]['of']} steps in {seconds:.0f} s"
    return f"{words}, loss {first:.3f} to {last:.3f}"


def _rl(folder: Path) -> str:
    steps = _lines(folder / "steps.jsonl")
    few = max(1, len(steps) // 3)

    def mean(name: str, part: slice) -> float:
        return fmean(step[name] for step in steps[part])

    moved = ", ".join(
        f"{name} {mean(name, slice(few)):.3f} to {mean(name, slice(-few, None)):.3f}"
        for name in ("reward", "correct", "flat")
    )
    took = ", ".join(
        f"{name} {mean(name, slice(None)):.0f} s a step"
        for name in ("sampled_s", "judged_s", "updated_s")
    )
    return f"{len(steps)} of {steps[-1]['of']} steps, {moved}; {took}"


def _lines(path: Path) -> list[dict]:  # type: ignore[type-arg]
    return [json.loads(line) for line in path.read_text().splitlines()]
