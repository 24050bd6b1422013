"""Which expressions of a plan can only be numbers, and so need no guard.

Conservative: what cannot be told is not a number. Nothing is evaluated.
"""

import ast

from kernelwright.tools.candidates.plan.calls import operator_path
from kernelwright.tools.candidates.plan.vocabulary import NUMERIC_HELPERS, NUMERIC_METHODS


def is_number(node: ast.expr, names: frozenset[str]) -> bool:
    """Whether an expression can only be a number, given the names that can only be numbers."""
    match node:
        case ast.Constant(value=value):
            return isinstance(value, int | float)
        case ast.Name(id=name):
            return name in names or name in ("inf", "nan")
        case ast.BinOp(left=left, op=op, right=right):
            # Only + has a meaning for tuples, and so may give something else.
            return not isinstance(op, ast.Add) or (
                is_number(left, names) and is_number(right, names)
            )
        case ast.UnaryOp() | ast.Compare():
            return True
        case ast.IfExp(body=then, orelse=other):
            return is_number(then, names) and is_number(other, names)
        case ast.Call(func=ast.Name(id=name)):
            return name in NUMERIC_HELPERS
        case ast.Call(func=ast.Attribute(attr="size" | "stride"), args=[_]):
            return True
        case ast.Call(func=ast.Attribute(attr=method) as function):
            return method in NUMERIC_METHODS and not operator_path(function)
        case ast.Attribute(attr="ndim"):
            return True
        case ast.Subscript(value=value, slice=index):
            return is_extent(value) and not isinstance(index, ast.Slice)
    return False


def numeric_names(function: ast.FunctionDef, tunables: frozenset[str]) -> frozenset[str]:
    """Names of a function that are only ever bound to numbers: the largest consistent set."""
    arguments = {argument.arg for argument in function.args.args}
    bindings: dict[str, list[ast.expr | None]] = {}
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    _bind(target, value, bindings)
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                read = ast.Name(name, ast.Load())
                bindings.setdefault(name, []).append(ast.BinOp(read, op, value))
            case ast.For(target=ast.Name(id=name)):
                bindings.setdefault(name, []).append(ast.Constant(0))
    numbers = (frozenset(bindings) - arguments) | tunables
    while True:
        kept = frozenset(
            name
            for name in numbers
            if all(
                value is not None and is_number(value, numbers) for value in bindings.get(name, [])
            )
        )
        if kept == numbers:
            return numbers
        numbers = kept


def _bind(
    target: ast.expr, value: ast.expr | None, bindings: dict[str, list[ast.expr | None]]
) -> None:
    """Record what a name is bound to; None when that cannot be told."""
    match target:
        case ast.Name(id=name):
            bindings.setdefault(name, []).append(value)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            values: list[ast.expr | None] = [None] * len(parts)
            if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(parts):
                values = list(value.elts)
            elif value is not None and is_extent(value):
                values = [ast.Constant(0)] * len(parts)
            for part, bound in zip(parts, values, strict=True):
                _bind(part, bound, bindings)


def is_extent(node: ast.expr) -> bool:
    """Whether an expression can only be a shape or the strides of a tensor."""
    match node:
        case ast.Attribute(attr="shape"):
            return True
        case ast.Call(func=ast.Attribute(attr="size" | "stride"), args=[], keywords=[]):
            return True
    return False
