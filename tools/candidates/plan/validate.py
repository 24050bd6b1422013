"""Reads a plan and refuses whatever is not on the allow-list; nothing is executed.

The lists are in `vocabulary` and `operators`. What static reading cannot decide (shapes, types
of values, grid sizes) is checked when the plan runs.
"""

import ast
import warnings
from collections.abc import Iterator
from typing import Never

from tools.candidates.errors import ContractError
from tools.candidates.plan.calls import Calls, operator_path
from tools.candidates.plan.names import Names
from tools.candidates.plan.operators import ADMITTED
from tools.candidates.plan.vocabulary import (
    EXPRESSIONS,
    METHODS,
    OPERATORS,
    PROPERTIES,
    RESERVED,
    STATEMENTS,
)
from tools.candidates.source import KernelSource
from tools.nouns import Value

_MAX_CHARACTERS = 200_000
_MAX_NODES = 50_000
_MAX_LOOP_DEPTH = 3
_MAX_DIGITS = 40


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


class _Validator:
    """One walk over one plan."""

    def __init__(self, source: KernelSource, admitted: frozenset[str]):
        self._calls = Calls(source, admitted)
        self._tunables = frozenset(item.name for item in source.tunables)
        self._weights: dict[str, None] = {}
        self._prepared: tuple[str, ...] | None = None
        self._inside = ""

    def plan(self, text: str) -> Plan:
        if clash := self._tunables & RESERVED:
            raise ContractError(
                0, "name", f"tunable {min(clash)!r} is a word of the plan's language"
            )
        functions = self._functions(parse_plan(text))
        if (prepare := functions.get("prepare")) is not None:
            self._prepared = _returned_names(prepare)
            self._function(prepare)
        forward = functions["forward"]
        self._function(forward)
        return Plan(
            text=text,
            parameters=tuple(argument.arg for argument in forward.args.args),
            prepared=self._prepared,
            launches=tuple(self._calls.launches),
            operators=tuple(self._calls.operators),
            weights=tuple(self._weights),
            updates=tuple(self._calls.updates),
        )

    def _functions(self, tree: ast.Module) -> dict[str, ast.FunctionDef]:
        found: dict[str, ast.FunctionDef] = {}
        for statement in tree.body:
            if isinstance(statement, ast.FunctionDef) and statement.name in ("forward", "prepare"):
                if statement.name in found:
                    self._refuse(statement, "structure", f"{statement.name} is defined twice")
                found[statement.name] = statement
            elif not _is_text(statement):
                words = "a plan holds `def forward(...)` and at most `def prepare(weights)`"
                self._refuse(statement, "structure", words)
        if "forward" not in found:
            raise ContractError(0, "structure", "the plan has no `def forward(...)`")
        return found

    def _function(self, function: ast.FunctionDef) -> None:
        self._inside = function.name
        args = function.args
        plain = not (args.vararg or args.kwarg or args.kwonlyargs or args.posonlyargs)
        if not plain or args.defaults or function.decorator_list or function.returns:
            self._refuse(function, "structure", f"{function.name} takes plain names only")
        if getattr(function, "type_params", []) or any(item.annotation for item in args.args):
            self._refuse(function, "structure", f"{function.name} has no types")
        names = [item.arg for item in args.args]
        if self._inside == "prepare" and names != ["weights"]:
            self._refuse(function, "structure", "the form is def prepare(weights)")
        for name in names:
            self._word(function, name)
        self._block(function.body, depth=0)
        if not any(isinstance(node, ast.Return) for node in ast.walk(function)):
            self._refuse(function, "structure", f"{function.name} returns nothing")
        Names(function, self._tunables)

    def _block(self, body: list[ast.stmt], depth: int) -> None:
        for statement in body:
            if not isinstance(statement, STATEMENTS):
                words = f"`{_kind(statement)}` is not part of the plan's language"
                self._refuse(statement, "statement", words)
            match statement:
                case ast.For():
                    self._for(statement, depth)
                case ast.If(test=test, body=then, orelse=other):
                    self._expression(test)
                    self._block(then, depth)
                    self._block(other, depth)
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        self._target(target)
                    self._expression(value)
                case ast.AugAssign(target=target, op=op, value=value):
                    if not isinstance(target, ast.Name):
                        self._refuse(statement, "assignment", "only names can be assigned")
                    self._target(target)
                    self._operator_node(statement, op)
                    self._expression(value)
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
                    self._expression(arg)
            case _:
                self._refuse(loop, "loop", "the form is `for name in range(...)`")
        if depth >= _MAX_LOOP_DEPTH:
            self._refuse(loop, "loop", f"loops nest at most {_MAX_LOOP_DEPTH} deep")
        self._block(loop.body, depth + 1)

    def _alone(self, statement: ast.Expr, value: ast.expr) -> None:
        if _is_text(statement):
            return
        named = isinstance(value, ast.Call) and isinstance(value.func, ast.Name)
        if not isinstance(value, ast.Call) or not named:
            words = "only launch and update stand on a line of their own"
            self._refuse(statement, "statement", words)
        self._call(value, statement=True)

    def _return(self, statement: ast.Return, value: ast.expr | None) -> None:
        if value is None:
            self._refuse(statement, "structure", "a bare return returns no tensor")
        if self._inside == "prepare":
            assert isinstance(value, ast.Dict)
            for item in value.values:
                self._expression(item)
        else:
            self._expression(value)

    def _target(self, target: ast.expr) -> None:
        match target:
            case ast.Name(id=name):
                self._word(target, name)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for part in parts:
                    self._target(part)
            case _:
                self._refuse(target, "assignment", "only names can be assigned")

    def _expression(self, node: ast.expr) -> None:
        if not isinstance(node, EXPRESSIONS):
            words = f"`{_kind(node)}` is not part of the plan's language"
            self._refuse(node, "expression", words)
        match node:
            case ast.Constant(value=value):
                self._constant(node, value)
            case ast.Name(id=name):
                self._name(node, name)
            case ast.Attribute(value=value, attr=attribute):
                if attribute not in PROPERTIES:
                    verb = "must be called" if attribute in METHODS else "may not be read"
                    self._refuse(node, "attribute", f".{attribute} {verb} in a plan")
                self._expression(value)
            case ast.Subscript(value=value, slice=index):
                self._subscript(node, value, index)
            case ast.Call():
                self._call(node, statement=False)
            case _:
                for child in ast.iter_child_nodes(node):
                    self._part(node, child)

    def _part(self, parent: ast.expr, child: ast.AST) -> None:
        if isinstance(child, ast.expr):
            self._expression(child)
        elif not isinstance(child, ast.expr_context):
            self._operator_node(parent, child)

    def _operator_node(self, parent: ast.AST, operator: ast.AST) -> None:
        if not isinstance(operator, OPERATORS):
            words = f"the operator {_kind(operator)} is not part of the plan's language"
            self._refuse(parent, "operator", words)

    def _call(self, call: ast.Call, *, statement: bool) -> None:
        self._calls.check(call, statement=statement)
        if isinstance(call.func, ast.Attribute) and not operator_path(call.func):
            self._expression(call.func.value)
        for part in (*call.args, *(item.value for item in call.keywords)):
            self._expression(part)

    def _subscript(self, node: ast.expr, value: ast.expr, index: ast.expr) -> None:
        match value:
            case ast.Name(id="weights" | "prepared" as word):
                if not (isinstance(index, ast.Constant) and isinstance(index.value, str)):
                    self._refuse(node, word, f'the form is {word}["name"]')
                self._looked_up(node, word, index.value)
            case _:
                self._expression(value)
                self._expression(index)

    def _looked_up(self, node: ast.expr, word: str, name: str) -> None:
        if word == "weights":
            self._weights[name] = None
        elif self._inside == "prepare" or self._prepared is None:
            self._refuse(node, word, "there is no `prepare` whose results could be read here")
        elif name not in self._prepared:
            known = ", ".join(self._prepared)
            self._refuse(node, word, f"prepare returns no {name!r}; it returns {known}")

    def _constant(self, node: ast.expr, value: object) -> None:
        if not isinstance(value, bool | int | float | str | None):
            self._refuse(node, "constant", f"{value!r} is not a constant of the plan's language")
        if isinstance(value, int) and value.bit_length() > 4 * _MAX_DIGITS:
            self._refuse(node, "constant", "an integer constant is too long")

    def _name(self, node: ast.expr, name: str) -> None:
        self._word(node, name)
        if name in ("weights", "prepared"):
            self._refuse(node, name, f'the form is {name}["name"]')
        if name in RESERVED and name not in ("inf", "nan"):
            self._refuse(node, "name", f"{name!r} must be called, not passed around")

    def _word(self, node: ast.AST, name: str) -> None:
        if name.startswith("__"):
            self._refuse(node, "name", f"{name!r} is not a name of the plan's language")

    def _refuse(self, node: ast.AST, rule: str, words: str) -> Never:
        raise ContractError(getattr(node, "lineno", 0), rule, words)


def _returned_names(prepare: ast.FunctionDef) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for node in _returns(prepare):
        if not isinstance(node.value, ast.Dict):
            words = 'prepare returns a dictionary written out: {"name": tensor}'
            raise ContractError(node.lineno, "prepare", words)
        for key in node.value.keys:
            if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                raise ContractError(node.lineno, "prepare", "its keys are words in quotes")
            names[key.value] = None
    return tuple(names)


def _returns(function: ast.FunctionDef) -> Iterator[ast.Return]:
    return (node for node in ast.walk(function) if isinstance(node, ast.Return))


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _kind(node: ast.AST) -> str:
    words = {"With": "with", "Try": "try", "While": "while", "Import": "import", "Dict": "{...}"}
    return words.get(type(node).__name__, type(node).__name__)
