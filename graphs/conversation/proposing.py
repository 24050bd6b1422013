"""What might make a file a task: inputs for a module that brings none, a name where several fit.

Shapes come from the sizes that stand in the source; nothing of it is run for that.
"""

import re
from pathlib import Path

from kernelwright.agents.assistant.types.chat import Offer
from kernelwright.agents.assistant.types.commands import ChangeTask, Command, LoadTask
from kernelwright.graphs.conversation.outline import Layer, Outline, functions_of, guessed, outlines
from kernelwright.graphs.run_view.wording import one_line
from kernelwright.tools.types import Refusal, TracePolicy

HELPERS = ("get_inputs", "get_init_inputs")
MOST = 6
# How many rows, tokens or pictures: something quick and something that fills a device.
COUNTS = {"small": 256, "medium": 2048, "large": 8192}
PICTURES = {"small": 4, "medium": 16, "large": 64}
TOKENS = 512

_ROWS = {"Linear": 0, "Bilinear": 0, "LazyLinear": 0}
_SEQUENCES = {"LayerNorm": 0, "RMSNorm": 0, "MultiheadAttention": 0, "TransformerEncoderLayer": 0}
_RECURRENT = {"LSTM": 0, "GRU": 0, "RNN": 0}
_CHANNELS = {
    "Conv1d": (0, 1), "Conv2d": (0, 2), "Conv3d": (0, 3), "ConvTranspose1d": (0, 1),
    "ConvTranspose2d": (0, 2), "ConvTranspose3d": (0, 3), "BatchNorm1d": (0, 1),
    "BatchNorm2d": (0, 2), "BatchNorm3d": (0, 3), "InstanceNorm2d": (0, 2), "GroupNorm": (1, 2),
}  # fmt: skip
_SIDES = {1: "4096", 2: "56x56", 3: "16x28x28"}


def proposals(file: Path, policy: TracePolicy, refusal: Refusal) -> tuple[Offer, ...]:
    """Offers that answer a refusal; none where it is about something else."""
    try:
        source = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ()
    known = [item for item in outlines(source) if item.name not in HELPERS]
    if re.search(r"name one|name it:", refusal.sentence):
        return tuple(_entry(item) for item in known[:MOST])
    entry = _chosen(known, policy)
    if entry is None or policy.inputs:
        return ()
    if entry.needed and "get_init_inputs" not in functions_of(source):
        return _built(file.name, source, entry)
    return _shaped(entry) if "get_inputs" not in functions_of(source) else ()


def shapes(entry: Outline, size: str) -> tuple[str, ...]:
    """One text for each argument of the forward, such as `2048x1024:float32`."""
    first = next((text for layer in entry.layers if (text := _fitting(layer, size))), None)
    text = first or f"{COUNTS[size]}x1024:float32"
    return (text,) * max(1, len(entry.arguments))


def _fitting(layer: Layer, size: str) -> str | None:
    """An input that a layer takes; None where nothing can be told of it."""

    def at(position: int) -> int | None:
        return layer.sizes[position] if position < len(layer.sizes) else None

    if layer.kind in _ROWS and (width := at(0)):
        return f"{COUNTS[size]}x{width}:float32"
    if layer.kind in _SEQUENCES and (width := at(0)):
        return f"{PICTURES[size]}x{TOKENS}x{width}:float32"
    if layer.kind in _RECURRENT and (width := at(0)):
        return f"{TOKENS // 4}x{PICTURES[size]}x{width}:float32"
    if layer.kind == "Embedding" and (entries := at(0)):
        return f"{PICTURES[size]}x{TOKENS}:int64<{entries}"
    if layer.kind in _CHANNELS:
        position, sides = _CHANNELS[layer.kind]
        if channels := at(position):
            return f"{PICTURES[size]}x{channels}x{_SIDES[sides]}:float32"
    return None


def _chosen(known: list[Outline], policy: TracePolicy) -> Outline | None:
    """The entry that was meant: by name, `Model`, or the only module."""
    if policy.entry:
        return next((item for item in known if item.name == policy.entry), None)
    modules = [item for item in known if item.is_module]
    named = [item for item in modules if item.name == "Model"]
    if named:
        return named[0]
    return modules[0] if len(modules) == 1 else None


def _entry(item: Outline) -> Offer:
    return Offer(label=one_line(item.name, 40), wish=ChangeTask(entry=item.name))


def _shaped(entry: Outline) -> tuple[Offer, ...]:
    offers: dict[tuple[str, ...], Offer] = {}
    for size in COUNTS:
        inputs = shapes(entry, size)
        names = ", ".join(entry.arguments) or "the input"
        offers[inputs] = Offer(
            label=" and ".join(dict.fromkeys(inputs)),
            wish=ChangeTask(inputs=inputs),
            hint=f"{size}: {one_line(names, 60)}",
        )
    return tuple(offers.values())


def _built(name: str, source: str, entry: Outline) -> tuple[Offer, ...]:
    """The file with constructor arguments, and inputs where it has none, written below it."""
    values = [guessed(argument) for argument in entry.needed]
    given = ", ".join(f"{a}={v}" for a, v in zip(entry.needed, values, strict=True))
    addition = f"\n\ndef get_init_inputs():\n    return {values!r}\n"
    wish: Command = LoadTask(source=source.rstrip() + addition, name=name)
    return (Offer(label=f"Build it with {one_line(given, 60)}", wish=wish),)
