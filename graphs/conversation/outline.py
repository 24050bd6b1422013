"""What stands in a person's file, read without running a line of it: modules, sizes, arguments.

A sketch for proposals, not a judgement: what cannot be told from the text is left open.
"""

import ast
from collections.abc import Mapping

from kernelwright.tools.types import Value

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
