"""Works out, when a plan is loaded, what every call would work out to the same value.

Settings are numbers by then, so geometries, sizes of work memory and element types of most plans
are constants. What would be refused is left as it is: it is refused when it is called, with its
line. Nothing that holds a tensor is touched.
"""

import ast
from collections.abc import Mapping

import torch

from kernelwright.tools.candidates.errors import LaunchRefused
from kernelwright.tools.candidates.run.guards import GUARDS, dtype_named, shape_of

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
