"""Rewrites a validated plan so that guards stand where static reading could not decide.

Reads that are plainly harmless (a name bound to a shape's element, arithmetic on such names)
stay as they are: a plan runs on every timed call, and a guard costs a function call.
"""

import ast
from collections.abc import Mapping

from kernelwright.tools.candidates.plan.calls import operator_path
from kernelwright.tools.candidates.run.inference import is_extent, is_number, numeric_names

_LAUNCH_ORDER = ("args", "grid", "block", "shared", "cluster")
_LAUNCH_DEFAULTS = {"grid": 1, "block": 1, "shared": 0, "cluster": 1}


def launcher_name(function: str) -> str:
    """The name under which a rewritten plan finds a kernel's launcher."""
    return f"__launch_{function}"


def operator_name(path: str) -> str:
    """The name under which a rewritten plan finds a library operator."""
    return f"__aten_{path.replace('.', '__')}"


class Rewriter(ast.NodeTransformer):
    """Rewrites one function of a plan."""

    def __init__(self, function: ast.FunctionDef, tunables: frozenset[str]):
        self._numbers = numeric_names(function, tunables)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """Guard operands that may be tensors, and operations that may explode."""
        add = isinstance(node.op, ast.Add)
        left, right = (self._guarded(part, add) for part in (node.left, node.right))
        bounded = {ast.Pow: "__power", ast.LShift: "__shift", ast.Mult: "__times"}
        if (guard := bounded.get(type(node.op))) is not None:
            return _call(guard, node, left, right)
        return ast.copy_location(ast.BinOp(left, node.op, right), node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.stmt:
        """`a += b` becomes `a = a + b`: in place it would write to a tensor or list."""
        assert isinstance(node.target, ast.Name)
        read = ast.copy_location(ast.Name(node.target.id, ast.Load()), node)
        value = self.visit(ast.copy_location(ast.BinOp(read, node.op, node.value), node))
        return ast.copy_location(ast.Assign([node.target], value), node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        """Guard the operand."""
        plain = isinstance(node.op, ast.Not)
        operand = self._compared(node.operand) if plain else self._guarded(node.operand, False)
        return ast.copy_location(ast.UnaryOp(node.op, operand), node)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        """Guard both sides."""
        left, *rest = (self._compared(part) for part in (node.left, *node.comparators))
        return ast.copy_location(ast.Compare(left, node.ops, rest), node)

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        """Guard every part."""
        parts = [self._compared(part) for part in node.values]
        return ast.copy_location(ast.BoolOp(node.op, parts), node)

    def visit_If(self, node: ast.If) -> ast.stmt:
        """Guard the test."""
        then = [self.visit(part) for part in node.body]
        other = [self.visit(part) for part in node.orelse]
        return ast.copy_location(ast.If(self._compared(node.test), then, other), node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        """Guard the test."""
        then, other = self.visit(node.body), self.visit(node.orelse)
        return ast.copy_location(ast.IfExp(self._compared(node.test), then, other), node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """An element type is a word in a plan."""
        value = self.visit(node.value)
        if node.attr == "dtype":
            return _call("__dtype", node, value)
        return ast.copy_location(ast.Attribute(value, node.attr, ast.Load()), node)

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """Guard an index into what may be a tensor."""
        match node.value:
            case ast.Name(id="weights" | "prepared"):
                return node
            case _ if is_extent(node.value):
                parts = self.visit(node.value), self.visit(node.slice)
                return ast.copy_location(ast.Subscript(*parts, ast.Load()), node)
        return _call("__item", node, self.visit(node.value), _as_value(self.visit(node.slice)))

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Resolve launches and operators to names; guard ranges and conversions."""
        args = [self.visit(arg) for arg in node.args]
        keywords = [self._keyword(keyword) for keyword in node.keywords]
        match node.func:
            case ast.Name(id="launch"):
                return self._launch(node)
            case ast.Name(id="range"):
                return _call("__range", node, *args)
            case ast.Name() as function:
                return ast.copy_location(ast.Call(function, args, keywords), node)
            case ast.Attribute(value=value, attr="to"):
                values = [item.value for item in keywords]
                return _call("__to", node, self.visit(value), *args, *values)
            case ast.Attribute() as function if path := operator_path(function):
                operator: ast.expr = _name(operator_name(".".join(path)), node)
                return ast.copy_location(ast.Call(operator, args, keywords), node)
            case ast.Attribute(value=value, attr=method):
                bound = ast.copy_location(
                    ast.Attribute(self.visit(value), method, ast.Load()), node.func
                )
                return ast.copy_location(ast.Call(bound, args, keywords), node)
        raise AssertionError(f"line {node.lineno}: a call passed the validator unread")

    def _keyword(self, keyword: ast.keyword) -> ast.keyword:
        value = self.visit(keyword.value)
        if keyword.arg == "dtype":
            value = _call("__dtype_or_value", keyword.value, value)
        return ast.copy_location(ast.keyword(keyword.arg, value), keyword)

    def _launch(self, node: ast.Call) -> ast.expr:
        """`launch("f", grid=g, ...)` becomes `__launch_f(args, g, block, shared, cluster)`."""
        name = node.args[0]
        assert isinstance(name, ast.Constant)
        given: Mapping[str | None, ast.expr] = {
            item.arg: self.visit(item.value) for item in node.keywords
        }
        ordered = [
            given.get(word) or ast.copy_location(ast.Constant(_LAUNCH_DEFAULTS.get(word)), node)
            for word in _LAUNCH_ORDER
        ]
        return _call(launcher_name(str(name.value)), node, *ordered)

    def _guarded(self, part: ast.expr, joins: bool) -> ast.expr:
        if self._is_number(part):
            visited: ast.expr = self.visit(part)
            return visited
        return _call("__summand" if joins else "__number", part, self.visit(part))

    def _compared(self, part: ast.expr) -> ast.expr:
        visited: ast.expr = self.visit(part)
        harmless = isinstance(part, ast.Constant | ast.Compare | ast.BoolOp)
        return (
            visited if harmless or self._is_number(part) else _call("__comparable", part, visited)
        )

    def _is_number(self, node: ast.expr) -> bool:
        return is_number(node, self._numbers)


def _as_value(index: ast.expr) -> ast.expr:
    """`1:2` as the argument it stands for; slices are syntax only between brackets."""
    match index:
        case ast.Slice(lower=lower, upper=upper, step=step):
            parts = [part or ast.Constant(None) for part in (lower, upper, step)]
            return _call("__slice", index, *parts)
        case ast.Tuple(elts=parts):
            values = [_as_value(part) for part in parts]
            return ast.copy_location(ast.Tuple(values, ast.Load()), index)
    return index


def _name(word: str, at: ast.expr) -> ast.Name:
    return ast.copy_location(ast.Name(word, ast.Load()), at)


def _call(word: str, at: ast.expr, *args: ast.expr) -> ast.Call:
    return ast.copy_location(ast.Call(_name(word, at), list(args), []), at)
