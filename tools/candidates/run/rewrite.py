"""Rewrites a validated plan so that guards stand where static reading could not decide.

Reads that are plainly harmless (a name bound to a shape's element, arithmetic on such names)
stay as they are: a plan runs on every timed call, and a guard costs a function call. Which
expressions can only be numbers, and so need no guard, is told conservatively: what cannot be told
is not a number. Nothing is evaluated for that.

When a plan is loaded, what every call would work out to the same value is worked out once.
Settings are numbers by then, so geometries, sizes of work memory and element types of most plans
are constants. What would be refused is left as it is: it is refused when it is called, with its
line. Nothing that holds a tensor is touched.
"""

import ast
from collections.abc import Mapping

import torch

from kernelwright.tools.candidates.arithmetic import LaunchRefused
from kernelwright.tools.candidates.plan.expressions import operator_path
from kernelwright.tools.candidates.plan.vocabulary import NUMERIC_HELPERS, NUMERIC_METHODS
from kernelwright.tools.candidates.run.guards import GUARDS, dtype_named, shape_of


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


# What may be called here: it depends on its arguments alone, and bounds what it makes of them.
_PURE = GUARDS.keys() - {"__range", "__item", "__dtype", "__to"}
_ALLOCATES = frozenset({"empty", "zeros", "full"})
# What a runner calls its allocator's `empty`; it takes a shape and an element type as torch's.
ALLOCATE = "__allocate"
_FOLDED = (ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.IfExp, ast.Tuple)
_PLAIN = (int, float, str, tuple, type(None))
_UNDECIDED = (LaunchRefused, ArithmeticError, LookupError, TypeError, ValueError)


class Folder(ast.NodeTransformer):
    """Folds the functions of a rewritten plan.

    Args:
        values: What the plan's constant names stand for: settings, inf and nan.

    Attributes:
        held: Shapes and element types that the folded plan names; for its namespace.
    """

    def __init__(self, values: Mapping[str, object]) -> None:
        self._values = values
        self.held: dict[str, object] = {}

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """A setting is its value."""
        if isinstance(node.ctx, ast.Load) and node.id in self._values:
            return _constant(self._values[node.id], node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Call what is pure; a constant shape is checked once."""
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        node.args = [self.visit(part) for part in node.args]
        node.keywords = [self.visit(part) for part in node.keywords]
        if isinstance(node.func, ast.Attribute):
            node.func = self.visit(node.func)
        if name in _ALLOCATES and node.args:
            node.args[0] = self._shape(node.args[0])
            return self._at_once(node, name)
        return self._worked_out(node) if name in _PURE else node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Parts first, then what they make."""
        visited = super().generic_visit(node)
        return self._worked_out(visited) if isinstance(visited, _FOLDED) else visited

    def _worked_out(self, node: ast.expr) -> ast.expr:
        parts = [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.expr)]
        if isinstance(node, ast.Call):
            parts = [*node.args, *(item.value for item in node.keywords)]
        if not all(isinstance(part, ast.Constant) for part in parts) or not _is_read(node):
            return node
        try:
            code = compile(ast.fix_missing_locations(ast.Expression(node)), "<plan>", "eval")
            value = eval(code, {"__builtins__": {}, **GUARDS})
        except _UNDECIDED:
            return node
        if isinstance(value, _PLAIN):
            return _constant(value, node)
        return self._hold(value, node)

    def _shape(self, node: ast.expr) -> ast.expr:
        if not isinstance(node, ast.Constant):
            return node
        try:
            return self._hold(torch.Size(shape_of(node.value)), node)
        except _UNDECIDED:
            return node

    def _at_once(self, node: ast.Call, name: str) -> ast.expr:
        """Ask the allocator itself where shape and element type have been checked already."""
        given = [*node.args[1:], *(item.value for item in node.keywords)]
        dtype = self._dtype(given[0] if given else ast.copy_location(ast.Constant("float32"), node))
        shape = node.args[0]
        if name == "full" or dtype is None or not self._holds(shape):
            return node
        memory: ast.expr = ast.Name(ALLOCATE, ast.Load())
        made = ast.copy_location(ast.Call(memory, [shape, dtype], []), node)
        if name == "empty":
            return made
        zero = ast.copy_location(ast.Attribute(made, "zero_", ast.Load()), node)
        return ast.copy_location(ast.Call(zero, [], []), node)

    def _dtype(self, node: ast.expr) -> ast.expr | None:
        """The name of a known element type; None where it is known only when it is called."""
        if isinstance(node, ast.Constant):
            try:
                return self._hold(dtype_named(node.value), node)
            except LaunchRefused:
                return None
        return node if self._holds(node) else None

    def _holds(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self.held

    def _hold(self, value: object, at: ast.expr) -> ast.expr:
        # The validator refuses names with two underscores, so that this one is nobody's.
        name = f"__held_{len(self.held)}"
        self.held[name] = value
        return ast.copy_location(ast.Name(name, ast.Load()), at)


def _constant(value: object, at: ast.expr) -> ast.expr:
    # The stubs know of no tuples, which Python takes.
    return ast.copy_location(ast.Constant(value), at)  # type: ignore[arg-type]


def _is_read(node: ast.expr) -> bool:
    return isinstance(getattr(node, "ctx", None), ast.Load | None)


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
