"""Reads a plan and refuses whatever is not on the allow-list; nothing is executed.

The lists are in `vocabulary` and `operators`. What static reading cannot decide (shapes, types
of values, grid sizes) is checked when the plan runs.
"""

import ast
import warnings
from collections.abc import Iterator

from kernelwright.tools.candidates.arithmetic import ContractError
from kernelwright.tools.candidates.kernel_source import KernelSource
from kernelwright.tools.candidates.plan.expressions import (
    Calls,
    Expressions,
    Names,
    check_word,
    kind,
    operator_path,
    refuse,
)
from kernelwright.tools.candidates.plan.vocabulary import (
    ADMITTED,
    PART,
    REFERENCE,
    RESERVED,
    STATEMENTS,
)
from kernelwright.tools.types import Value
from kernelwright.tools.types.graph import DRAWS

# The backward of twelve layers in float32 has 1,300 statements and more than 200,000 characters.
_MAX_CHARACTERS = 2_000_000
_MAX_NODES = 500_000
_MAX_LOOP_DEPTH = 3


class Plan(Value):
    """A plan that passed every static check.

    `parameters` are those of forward; `prepared` the names that `prepare` returns, None when
    there is no `prepare`. `launches`, `operators`, `weights` and `updates` say what it touches.
    """

    text: str
    parameters: tuple[str, ...]
    prepared: tuple[str, ...] | None
    launches: tuple[str, ...]
    operators: tuple[str, ...]
    weights: tuple[str, ...]
    updates: tuple[str, ...]


def validate_plan(text: str, source: KernelSource, operators: frozenset[str] = ADMITTED) -> Plan:
    """Check a plan against its kernel.

    Args:
        text: The plan.
        source: The kernel it launches.
        operators: Library operators admitted; the task's policy may narrow them.

    Raises:
        ContractError: Naming the line and the rule.
    """
    try:
        return _Validator(source, operators & ADMITTED).plan(text)
    except RecursionError:
        raise ContractError(0, "size", "an expression of the plan nests too deeply") from None


def parse_plan(text: str) -> ast.Module:
    """The syntax tree; ContractError when it is no Python or too large."""
    if len(text) > _MAX_CHARACTERS:
        raise ContractError(0, "size", f"a plan has at most {_MAX_CHARACTERS} characters")
    try:
        # A model's odd spelling is judged below; Python's opinion of it is nobody's to read.
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(text)
            # Repeated arguments and the like are found by the compiler only; nothing runs.
            compile(text, "<plan>", "exec")
    except SyntaxError as error:
        raise ContractError(error.lineno or 0, "syntax", f"{error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ContractError(0, "syntax", f"the plan cannot be parsed: {error}") from None
    if sum(1 for _ in ast.walk(tree)) > _MAX_NODES:
        raise ContractError(0, "size", "the plan is too long")
    return tree


def library_calls(text: str) -> tuple[str, ...]:
    """Which of the library's operators a valid plan's forward calls; those of a loop once."""
    functions = (item for item in ast.parse(text).body if isinstance(item, ast.FunctionDef))
    forward = (item for item in functions if item.name == "forward")
    nodes = (node for item in forward for node in ast.walk(item))
    paths = (operator_path(node.func) for node in nodes if isinstance(node, ast.Call))
    return tuple(path[0] for path in paths if path)


class _Validator:
    """One walk over one plan."""

    def __init__(self, source: KernelSource, admitted: frozenset[str]):
        self._expressions = Expressions(Calls(source, admitted))
        self._tunables = frozenset(item.name for item in source.tunables)
        self._inside = ""

    def plan(self, text: str) -> Plan:
        if clash := self._tunables & RESERVED:
            raise ContractError(
                0, "name", f"tunable {min(clash)!r} is a word of the plan's language"
            )
        functions = self._functions(parse_plan(text))
        if (prepare := functions.get("prepare")) is not None:
            self._function(prepare)
            self._draws_nothing(prepare)
            self._expressions.prepared = _returned_names(prepare)
        for name, function in functions.items():
            if name.startswith(PART):
                self._part(function)
        forward = functions["forward"]
        self._function(forward)
        calls = self._expressions.calls
        return Plan(
            text=text,
            parameters=tuple(argument.arg for argument in forward.args.args),
            prepared=self._expressions.prepared,
            launches=tuple(calls.launches),
            operators=tuple(calls.operators),
            weights=tuple(self._expressions.weights),
            updates=tuple(calls.updates),
        )

    def _functions(self, tree: ast.Module) -> dict[str, ast.FunctionDef]:
        found: dict[str, ast.FunctionDef] = {}
        for statement in tree.body:
            if isinstance(statement, ast.FunctionDef) and is_function_name(statement.name):
                if statement.name in found:
                    refuse(statement, "structure", f"{statement.name} is defined twice")
                found[statement.name] = statement
            elif not _is_text(statement):
                words = (
                    "a plan holds `def forward(...)`, at most `def prepare(weights)`, and for a "
                    "model in parts `def part_0(...)` and so on"
                )
                refuse(statement, "structure", words)
        if "forward" not in found:
            raise ContractError(0, "structure", "the plan has no `def forward(...)`")
        return found

    def _part(self, function: ast.FunctionDef) -> None:
        """A part is computed without the whole that calls it."""
        self._function(function)
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and node.id in (REFERENCE, "update"):
                refuse(node, "structure", f"{function.name} may not call {node.id}")
        self._draws_nothing(function)

    def _draws_nothing(self, function: ast.FunctionDef) -> None:
        """Random numbers are drawn once a call, in the module's order."""
        for node in ast.walk(function):
            path = operator_path(node) if isinstance(node, ast.Attribute) else ()
            if path and path[0] in DRAWS:
                words = f"aten.{path[0]} draws random numbers, which only forward does"
                refuse(node, "operator", words)

    def _function(self, function: ast.FunctionDef) -> None:
        self._inside = function.name
        args = function.args
        plain = not (args.vararg or args.kwarg or args.kwonlyargs or args.posonlyargs)
        if not plain or args.defaults or function.decorator_list or function.returns:
            refuse(function, "structure", f"{function.name} takes plain names only")
        if getattr(function, "type_params", []) or any(item.annotation for item in args.args):
            refuse(function, "structure", f"{function.name} has no types")
        names = [item.arg for item in args.args]
        if self._inside == "prepare" and names != ["weights"]:
            refuse(function, "structure", "the form is def prepare(weights)")
        for name in names:
            check_word(function, name)
        self._block(function.body, depth=0)
        if not any(isinstance(node, ast.Return) for node in ast.walk(function)):
            refuse(function, "structure", f"{function.name} returns nothing")
        Names(function, self._tunables)

    def _block(self, body: list[ast.stmt], depth: int) -> None:
        for statement in body:
            if not isinstance(statement, STATEMENTS):
                words = f"`{kind(statement)}` is not part of the plan's language"
                refuse(statement, "statement", words)
            match statement:
                case ast.For():
                    self._for(statement, depth)
                case ast.If(test=test, body=then, orelse=other):
                    self._expressions.check(test)
                    self._block(then, depth)
                    self._block(other, depth)
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        self._target(target)
                    self._expressions.check(value)
                case ast.AugAssign(target=target, op=op, value=value):
                    if not isinstance(target, ast.Name):
                        refuse(statement, "assignment", "only names can be assigned")
                    self._target(target)
                    self._expressions.operator(statement, op)
                    self._expressions.check(value)
                case ast.Expr(value=value):
                    self._alone(statement, value)
                case ast.Return(value=value):
                    self._return(statement, value)

    def _for(self, loop: ast.For, depth: int) -> None:
        match loop:
            case ast.For(
                target=ast.Name() as target,
                iter=ast.Call(func=ast.Name(id="range"), args=args, keywords=[]),
                orelse=[],
            ) if 1 <= len(args) <= 3 and not any(isinstance(arg, ast.Starred) for arg in args):
                self._target(target)
                for arg in args:
                    self._expressions.check(arg)
            case _:
                refuse(loop, "loop", "the form is `for name in range(...)`")
        if depth >= _MAX_LOOP_DEPTH:
            refuse(loop, "loop", f"loops nest at most {_MAX_LOOP_DEPTH} deep")
        self._block(loop.body, depth + 1)

    def _alone(self, statement: ast.Expr, value: ast.expr) -> None:
        if _is_text(statement):
            return
        named = isinstance(value, ast.Call) and isinstance(value.func, ast.Name)
        if not isinstance(value, ast.Call) or not named:
            words = "only launch and update stand on a line of their own"
            refuse(statement, "statement", words)
        self._expressions.call(value, statement=True)

    def _return(self, statement: ast.Return, value: ast.expr | None) -> None:
        if value is None:
            refuse(statement, "structure", "a bare return returns no tensor")
        if self._inside == "prepare":
            for item in _written_out(statement).values:
                self._expressions.check(item)
        else:
            self._expressions.check(value)

    def _target(self, target: ast.expr) -> None:
        match target:
            case ast.Name(id=name):
                check_word(target, name)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    self._target(part)
            case _:
                refuse(target, "assignment", "only names can be assigned")


def is_function_name(name: str) -> bool:
    """Whether a plan may define a function of that name."""
    number = name.removeprefix(PART)
    return name in ("forward", "prepare") or (number != name and number.isdecimal())


def weights_read(plan: str) -> dict[str, tuple[str, ...]]:
    """State-dict names that each of the plan's functions reads, sorted."""
    return {
        function.name: tuple(sorted(set(_weights_read(function))))
        for function in ast.parse(plan).body
        if isinstance(function, ast.FunctionDef)
    }


def _weights_read(function: ast.FunctionDef) -> Iterator[str]:
    for node in ast.walk(function):
        match node:
            case ast.Subscript(value=ast.Name(id="weights"), slice=ast.Constant(value=name)):
                yield str(name)


def _returned_names(prepare: ast.FunctionDef) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for node in _returns(prepare):
        for key in _written_out(node).keys:
            assert isinstance(key, ast.Constant)
            found[str(key.value)] = None
    return tuple(found)


def _written_out(statement: ast.Return) -> ast.Dict:
    value = statement.value
    if not isinstance(value, ast.Dict):
        words = 'prepare returns a dictionary written out: {"name": tensor}'
        refuse(statement, "prepare", words)
    if not all(isinstance(key, ast.Constant) and isinstance(key.value, str) for key in value.keys):
        refuse(statement, "prepare", "the keys of what prepare returns are words in quotes")
    return value


def _returns(function: ast.FunctionDef) -> Iterator[ast.Return]:
    return (node for node in ast.walk(function) if isinstance(node, ast.Return))


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )
