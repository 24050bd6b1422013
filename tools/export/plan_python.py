"""Prints a candidate's plan as plain Python: one function that needs only torch and the kernels.

`launch("rows", ...)` becomes a call of the loaded kernel, `empty(shape, dtype="float32")` a call of
torch's, a tunable its value. The plan was validated when it became a candidate; here it is only
rewritten. Comments of the plan are not kept.
"""

import ast
from collections.abc import Mapping

from kernelwright.tools.candidates.plan.expressions import operator_path
from kernelwright.tools.candidates.plan.lifetimes import letting_go
from kernelwright.tools.candidates.plan.validate import weights_read
from kernelwright.tools.candidates.plan.vocabulary import CREATORS, PART, TENSOR_MAP
from kernelwright.tools.types import DType

WIDTH = 96
DTYPES = {dtype.value for dtype in DType}
# Helpers that allocate, and what their arguments are called in order.
ALLOCATIONS: Mapping[str, tuple[str, ...]] = {
    "empty": ("shape", "dtype"),
    "empty_like": ("tensor", "dtype"),
    "zeros": ("shape", "dtype"),
    "zeros_like": ("tensor", "dtype"),
    "full": ("shape", "value", "dtype"),
    "full_like": ("tensor", "value", "dtype"),
}
CONSTANTS = ("inf", "nan")
# What the printed functions take before the module's own inputs.
CONTEXT = ("kernels", "weights", "prepared", "updates")
# Names of the export's that a plan's variable may happen to have.
TAKEN = frozenset({*CONTEXT, "math", "torch"})


def print_plan(
    plan: str,
    pointers: Mapping[str, tuple[bool, ...]],
    tunables: Mapping[str, int],
    *,
    has_grid: bool,
    by_address: bool = True,
) -> str:
    """The plan's functions as Python source.

    Args:
        plan: Validated plan source.
        pointers: For every kernel function, which of its parameters are pointers.
        tunables: Values that stand for the tunables' names.
        has_grid: Whether a launch has a geometry.
        by_address: Whether launches are given addresses in the place of tensors.

    Returns:
        Source that defines `run_plan(kernels, weights, prepared, updates, *inputs)` and, where the
        plan has one, `prepare_weights(kernels, weights)`; of a plan in parts `part_0(kernels,
        weights, *inputs)` and so on instead.
    """
    tree = ast.parse(plan)
    found = [letting_go(node) for node in tree.body if isinstance(node, ast.FunctionDef)]
    parts = [node for node in found if node.name.startswith(PART)]
    printer = _Printer(pointers, tunables, has_grid=has_grid, by_address=by_address)
    functions = [printer.function(node) for node in parts or found]
    return "\n\n\n".join(_text(node) for node in functions)


def _text(function: ast.FunctionDef) -> str:
    """The function's text, calls that are too long for a line broken between arguments."""
    lines = ast.unparse(ast.fix_missing_locations(function)).splitlines()
    return "\n".join(_wrapped(line) if len(line) > WIDTH else line for line in lines)


def _wrapped(line: str) -> str:
    indent = " " * (len(line) - len(line.lstrip()))
    try:
        statement = ast.parse(line.strip()).body[0]
    except SyntaxError:
        return line  # the head of an `if`
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return line
    call = statement.value
    inner = indent + "    "
    parts = [ast.unparse(part) for part in (*call.args, *call.keywords)]
    body, row = [], inner
    for part in parts:
        if len(row) + len(part) > WIDTH and row.strip():
            body.append(row.rstrip())
            row = inner
        row += f"{part}, "
    return "\n".join([f"{indent}{ast.unparse(call.func)}(", *body, row.rstrip(), f"{indent})"])


def prepare_reads(plan: str) -> tuple[str, ...]:
    """State-dict names that the plan's `prepare` reads, sorted."""
    return weights_read(plan).get("prepare", ())


class _Printer(ast.NodeTransformer):
    """Rewrites the plan's own vocabulary into torch's."""

    def __init__(
        self,
        pointers: Mapping[str, tuple[bool, ...]],
        tunables: Mapping[str, int],
        *,
        has_grid: bool,
        by_address: bool,
    ) -> None:
        self._pointers = pointers
        self._tunables = tunables
        self._has_grid = has_grid
        self._by_address = by_address
        self._held = 0

    def function(self, node: ast.FunctionDef) -> ast.FunctionDef:
        """`forward` and `prepare` under the names and with the parameters of an export."""
        inputs = [] if node.name == "prepare" else node.args.args
        context = CONTEXT if node.name == "forward" else CONTEXT[:2]
        names = {"forward": "run_plan", "prepare": "prepare_weights"}
        node.name = names.get(node.name, node.name)
        own = [_renamed(argument.arg) for argument in inputs]
        node.args.args = [ast.arg(name) for name in (*context, *own)]
        node.returns = None
        node.body = [made for statement in node.body for made in self._statement(statement)]
        return node

    def _statement(self, statement: ast.stmt) -> list[ast.stmt]:
        """A statement of a function's own, and behind it the end of what only it needed names for.

        Inside of a branch or a loop these names may not be bound, and live on.
        """
        before = self._held
        made: ast.stmt = self.visit(statement)
        held = [f"held_{number}" for number in range(before + 1, self._held + 1)]
        if not held or not isinstance(statement, ast.Expr | ast.Assign):
            return [made]
        return [made, ast.Delete([ast.Name(name, ast.Del()) for name in held])]

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and node.id in self._tunables:
            return ast.Constant(self._tunables[node.id])
        if node.id in CONSTANTS and isinstance(node.ctx, ast.Load):
            return _expression(f"math.{node.id}")
        if node.id == "aten":
            return _expression("torch.ops.aten")
        return ast.Name(_renamed(node.id), node.ctx)

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if isinstance(node.value, str) and node.value in DTYPES:
            return _expression(f"torch.{node.value}")
        return node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id in ("weights", "prepared"):
            return node  # a weight may be called "float32"
        return self._visited(node)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name == "launch":
            return self._launch(node)
        created = isinstance(node.func, ast.Attribute) and _creates(node.func)
        call = self._visited(node)
        assert isinstance(call, ast.Call)
        if name in ALLOCATIONS:
            return self._allocation(name, call)
        if created:
            call.keywords.append(ast.keyword("device", _expression("kernels.device")))
        if name == TENSOR_MAP:
            call.func = _expression("kernels.tensor_map")
        if name == "prod":
            call.func = _expression("math.prod")
        return call

    def _allocation(self, name: str, call: ast.Call) -> ast.expr:
        """Torch's function of the same name, always dense, its element type said by keyword."""
        wanted = ALLOCATIONS[name]
        given = dict(zip(wanted, call.args, strict=False))
        given |= {word.arg or "": word.value for word in call.keywords}
        keywords = [ast.keyword("dtype", given["dtype"])] if "dtype" in given else []
        if name.endswith("_like"):
            dense = _expression("torch.contiguous_format")
            keywords.append(ast.keyword("memory_format", dense))
        else:
            keywords = keywords or [ast.keyword("dtype", _expression("torch.float32"))]
            keywords.append(ast.keyword("device", _expression("kernels.device")))
        positional = [given[word] for word in wanted if word in given and word != "dtype"]
        return ast.Call(_expression(f"torch.{name}"), positional, keywords)

    def visit_Expr(self, node: ast.Expr) -> ast.stmt:
        call = node.value
        match call:
            case ast.Call(func=ast.Name(id="update"), args=[ast.Constant(value=name), value]):
                return self._update(str(name), self.visit(value))
        self.generic_visit(node)
        return node

    def _update(self, name: str, value: ast.expr) -> ast.stmt:
        """A buffer's new value: written when the plan has run, and read from here on."""
        places = [ast.parse(f"{word}[{name!r}]").body[0] for word in ("updates", "weights")]
        targets = [place.value for place in places if isinstance(place, ast.Expr)]
        for target in targets:
            assert isinstance(target, ast.Subscript)
            target.ctx = ast.Store()
        converted = ast.Call(
            ast.Attribute(value, "to", ast.Load()), [_expression(f"weights[{name!r}].dtype")], []
        )
        return ast.Assign([*targets], converted, lineno=0)

    def _launch(self, node: ast.Call) -> ast.expr:
        first = node.args[0]
        assert isinstance(first, ast.Constant)
        name = str(first.value)
        given = {keyword.arg or "": keyword.value for keyword in node.keywords}
        arguments = given["args"]
        assert isinstance(arguments, ast.Tuple | ast.List)
        values = self._values(name, arguments.elts)
        kernel = _expression(f"kernels.{name}")
        if not self._has_grid:
            return ast.Call(kernel, values, [])
        shape = [
            self.visit(given.get(key, ast.Constant(default)))
            for key, default in (("grid", 1), ("block", 1), ("shared", 0), ("cluster", 1))
        ]
        return ast.Call(kernel, [*shape, *values], [])

    def _values(self, name: str, elements: list[ast.expr]) -> list[ast.expr]:
        return [
            self._pointer(self.visit(value)) if pointer and self._by_address else self.visit(value)
            for value, pointer in zip(elements, self._pointers[name], strict=True)
        ]

    def _pointer(self, value: ast.expr) -> ast.expr:
        named = value.value if isinstance(value, ast.Subscript) else value
        if not isinstance(named, ast.Name):
            value = self._kept(value)
        return ast.Call(ast.Attribute(value, "data_ptr", ast.Load()), [], [])

    def _kept(self, value: ast.expr) -> ast.expr:
        """Give a temporary a name: without one it would be freed before the kernel reads it."""
        self._held += 1
        return ast.NamedExpr(ast.Name(f"held_{self._held}", ast.Store()), value)

    def _visited(self, node: ast.expr) -> ast.expr:
        visited = self.generic_visit(node)
        assert isinstance(visited, ast.expr)
        return visited


def _creates(function: ast.Attribute) -> bool:
    """Whether a library operator makes a tensor from nothing, and so must be told where."""
    path = operator_path(function)
    return bool(path) and path[0] in CREATORS


def _renamed(name: str) -> str:
    return f"{name}_" if name in TAKEN - {"weights", "prepared"} else name


def _expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body
