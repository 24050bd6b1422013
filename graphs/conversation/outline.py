"""Reads a person's file without running a line of it, and proposes what would make it a task.

The outline has modules, sizes and arguments. It is a sketch for proposals, not a judgement: what
cannot be told from the text is left open. Proposals are inputs for a module that brings none, and
names where several fit; their shapes come from the sizes that stand in the source.
"""

import ast
import re
from collections.abc import Mapping
from pathlib import Path

from kernelwright.agents.assistant.types import ChangeTask, Command, LoadTask, Offer
from kernelwright.graphs.conversation.sizes import ONE_SIZE
from kernelwright.graphs.run_view.events import one_line
from kernelwright.tools.tasks.sources import find
from kernelwright.tools.types import Refusal, TracePolicy, Value

Sizes = Mapping[str, int]


class Layer(Value):
    """A layer that a constructor makes: `Linear` with the sizes that could be read of it."""

    kind: str
    sizes: tuple[int | None, ...]


class Outline(Value):
    """One entry of a file.

    `needed` are constructor arguments without a default, `arguments` the forward's. `layers` come
    in the order in which the constructor makes them.
    """

    name: str
    needed: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ("x",)
    layers: tuple[Layer, ...] = ()
    is_module: bool = True


def outlines(source: str) -> tuple[Outline, ...]:
    """Modules and functions of a file; none where it is not Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    modules = [_module(node) for node in tree.body if _is_module(node)]
    functions = [_function(node) for node in tree.body if isinstance(node, ast.FunctionDef)]
    return (*(item for item in modules if item), *functions)


def functions_of(source: str) -> frozenset[str]:
    """The names of a file's own functions."""
    return frozenset(item.name for item in outlines(source) if not item.is_module)


def guessed(name: str) -> int | float | bool:
    """A usual value of a constructor's argument, by its name."""
    low = name.lower()
    for parts, value in _USUAL:
        if any(part in low for part in parts):
            return value
    return 1024


_USUAL: tuple[tuple[tuple[str, ...], int | float | bool], ...] = (
    (("bias", "affine", "causal", "inplace"), True),
    (("eps",), 1e-5),
    (("drop", "prob"), 0.0),
    (("kernel",), 3),
    (("stride", "dilation", "dim_index", "axis"), 1),
    (("pad",), 1),
    (("head", "group"), 8),
    (("layer", "depth", "block"), 2),
    (("channel", "filters", "planes"), 64),
    (("class", "vocab", "num_embed"), 1000),
    (("seq", "length", "tokens"), 512),
)


def _is_module(node: ast.stmt) -> bool:
    if not isinstance(node, ast.ClassDef):
        return False
    return any(isinstance(part, ast.FunctionDef) and part.name == "forward" for part in node.body)


def _module(node: ast.stmt) -> Outline | None:
    if not isinstance(node, ast.ClassDef):
        return None
    methods = {part.name: part for part in node.body if isinstance(part, ast.FunctionDef)}
    made, known = methods.get("__init__"), dict[str, int]()
    if made is not None:
        known = _sizes(made)
    return Outline(
        name=node.name,
        needed=_needed(made)[1:] if made is not None else (),
        arguments=_needed(methods["forward"])[1:],
        layers=tuple(_layers(made, known)) if made is not None else (),
    )


def _function(node: ast.FunctionDef) -> Outline:
    return Outline(name=node.name, arguments=_needed(node), is_module=False)


def _needed(function: ast.FunctionDef) -> tuple[str, ...]:
    """Arguments that a caller has to give."""
    names = [item.arg for item in (*function.args.posonlyargs, *function.args.args)]
    return tuple(names[: len(names) - len(function.args.defaults)])


def _sizes(function: ast.FunctionDef) -> dict[str, int]:
    """What constructor arguments are, by their defaults or by their names."""
    names = [item.arg for item in (*function.args.posonlyargs, *function.args.args)]
    given = function.args.defaults
    defaults: list[ast.expr | None] = [*[None] * (len(names) - len(given)), *given]
    found = {}
    for name, default in zip(names[1:], defaults[1:], strict=True):
        value = guessed(name) if default is None else _value(default, {})
        if isinstance(value, int) and not isinstance(value, bool):
            found[name] = value
    return found


def _layers(function: ast.FunctionDef, known: Sizes) -> list[Layer]:
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    calls.sort(key=lambda node: (node.lineno, node.col_offset))
    found = []
    for call in calls:
        kind = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if kind[:1].isupper():
            # Keywords in their order stand for the positions in nearly every layer's signature.
            given = [*call.args, *(keyword.value for keyword in call.keywords)]
            found.append(Layer(kind=kind, sizes=tuple(_value(item, known) for item in given[:3])))
    return found


def _value(node: ast.expr, known: Sizes) -> int | None:
    """An integer, a name whose value is known, or simple arithmetic over such."""
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return value
        case ast.Name(id=name):
            return known.get(name)
        case ast.Attribute(attr=name):
            return known.get(name)
        case ast.Tuple(elts=[first, *_]) | ast.List(elts=[first, *_]):
            return _value(first, known)
        case ast.BinOp(left=left, op=op, right=right):
            return _arithmetic(_value(left, known), op, _value(right, known))
    return None


def _arithmetic(left: int | None, op: ast.operator, right: int | None) -> int | None:
    if left is None or right is None or max(abs(left), abs(right)) > 1 << 24:
        return None
    match op:
        case ast.Mult():
            return left * right
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.FloorDiv() if right:
            return left // right
    return None


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
    if refusal.choices:
        return tuple(_choice(name) for name in refusal.choices[:MOST])
    if refusal.draws_in_training:
        return (Offer(label="Optimise it in evaluation mode", wish=ChangeTask(evaluation=True)),)
    if policy.shapes:
        return (Offer(label="The example's sizes only", wish=ChangeTask(shapes=ONE_SIZE)),)
    found = find(file, policy)
    if isinstance(found, Refusal):
        return ()
    source, policy = found.source, found.policy
    known = [item for item in outlines(source) if item.name not in HELPERS]
    if re.search(r"name one|name it\b", refusal.sentence):
        return tuple(_entry(item) for item in known[:MOST])
    entry = _chosen(known, policy)
    if entry is None or policy.inputs:
        return ()
    if entry.needed and "get_init_inputs" not in functions_of(source):
        return _built(file, source, entry)
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
    return _choice(item.name)


def _choice(name: str) -> Offer:
    return Offer(label=one_line(name, 60), wish=ChangeTask(entry=name))


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


def _built(file: Path, source: str, entry: Outline) -> tuple[Offer, ...]:
    """The file with constructor arguments, and inputs where it has none, written below it."""
    if file.suffix != ".py":
        return ()  # what would be written below it would stand alone
    values = [guessed(argument) for argument in entry.needed]
    given = ", ".join(f"{a}={v}" for a, v in zip(entry.needed, values, strict=True))
    addition = f"\n\ndef get_init_inputs():\n    return {values!r}\n"
    command: Command = LoadTask(source=source.rstrip() + addition, name=file.name)
    return (Offer(label=f"Build it with {one_line(given, 60)}", wish=command),)
