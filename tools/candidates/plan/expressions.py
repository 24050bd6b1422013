"""Checks of a plan's expressions: every node, attribute, name and constant.

Checks that every name in a plan is defined before it is read, and that no word is redefined.
"""

import ast
from collections.abc import Iterable
from typing import Never

from kernelwright.tools.candidates.arithmetic import ContractError
from kernelwright.tools.candidates.plan.calls import Calls, operator_path
from kernelwright.tools.candidates.plan.vocabulary import (
    CONSTANTS,
    EXPRESSIONS,
    METHODS,
    OPERATORS,
    PROPERTIES,
    RESERVED,
)

_MAX_INTEGER_BITS = 160
_SPELLINGS = {"With": "with", "Try": "try", "While": "while", "Import": "import", "Dict": "{...}"}


class Expressions:
    """Checks expressions of one plan, and collects which weights they read.

    Attributes:
        calls: Checks the calls among them.
        weights: State-dict names read.
        prepared: Names that may be read from `prepared`; None where there are none.
    """

    def __init__(self, calls: Calls):
        self.calls = calls
        self.weights: dict[str, None] = {}
        self.prepared: tuple[str, ...] | None = None

    def check(self, node: ast.expr) -> None:
        """Check an expression and everything in it."""
        if not isinstance(node, EXPRESSIONS):
            words = f"`{kind(node)}` is not part of the plan's language"
            refuse(node, "expression", words)
        match node:
            case ast.Constant(value=value):
                self._constant(node, value)
            case ast.Name(id=name):
                self._name(node, name)
            case ast.Attribute(value=value, attr=attribute):
                if attribute not in PROPERTIES:
                    verb = "must be called" if attribute in METHODS else "may not be read"
                    refuse(node, "attribute", f".{attribute} {verb} in a plan")
                self.check(value)
            case ast.Subscript(value=value, slice=index):
                self._subscript(node, value, index)
            case ast.Call():
                self.call(node, statement=False)
            case _:
                for child in ast.iter_child_nodes(node):
                    self._part(node, child)

    def _part(self, parent: ast.expr, child: ast.AST) -> None:
        if isinstance(child, ast.expr):
            self.check(child)
        elif not isinstance(child, ast.expr_context):
            self.operator(parent, child)

    def operator(self, parent: ast.AST, operator: ast.AST) -> None:
        """Check an operator such as the + of an addition."""
        if not isinstance(operator, OPERATORS):
            words = f"the operator {kind(operator)} is not part of the plan's language"
            refuse(parent, "operator", words)

    def call(self, call: ast.Call, *, statement: bool) -> None:
        """Check a call; `statement` when it stands alone on a line."""
        self.calls.check(call, statement=statement)
        if isinstance(call.func, ast.Attribute) and not operator_path(call.func):
            self.check(call.func.value)
        for part in (*call.args, *(item.value for item in call.keywords)):
            self.check(part)

    def _subscript(self, node: ast.expr, value: ast.expr, index: ast.expr) -> None:
        match value:
            case ast.Name(id="weights" | "prepared" as word):
                if not (isinstance(index, ast.Constant) and isinstance(index.value, str)):
                    refuse(node, word, f'the form is {word}["name"]')
                self._looked_up(node, word, index.value)
            case _:
                self.check(value)
                self.check(index)

    def _looked_up(self, node: ast.expr, word: str, name: str) -> None:
        if word == "weights":
            self.weights[name] = None
        elif self.prepared is None:
            refuse(node, word, "there is no `prepare` whose results could be read here")
        elif name not in self.prepared:
            known = ", ".join(self.prepared)
            refuse(node, word, f"prepare returns no {name!r}; it returns {known}")

    def _constant(self, node: ast.expr, value: object) -> None:
        if not isinstance(value, bool | int | float | str | None):
            refuse(node, "constant", f"{value!r} is not a constant of the plan's language")
        if isinstance(value, int) and value.bit_length() > _MAX_INTEGER_BITS:
            refuse(node, "constant", "an integer constant is too long")

    def _name(self, node: ast.expr, name: str) -> None:
        check_word(node, name)
        if name in ("weights", "prepared"):
            refuse(node, name, f'the form is {name}["name"]')
        if name in RESERVED - CONSTANTS:
            refuse(node, "name", f"{name!r} must be called, not passed around")


def check_word(node: ast.AST, name: str) -> None:
    """Refuse names with two leading underscores: the guards are called that."""
    if name.startswith("__"):
        refuse(node, "name", f"{name!r} is not a name of the plan's language")


def kind(node: ast.AST) -> str:
    """What a person calls a node."""
    name = type(node).__name__
    return _SPELLINGS.get(name, name)


def refuse(node: ast.AST, rule: str, words: str) -> Never:
    """Raise the error that names the node's line."""
    raise ContractError(getattr(node, "lineno", 0), rule, words)


class Names:
    """The names of one function, followed through its statements.

    After an `if`, a name is defined when every branch that goes on defines it. After a `for`,
    whatever its body defines counts as defined: an empty range is then a refusal at run time.
    """

    def __init__(self, function: ast.FunctionDef, given: frozenset[str]):
        self._given = given
        self._arguments = frozenset(argument.arg for argument in function.args.args)
        self.assigned: set[str] = set()
        for name in self._arguments - {"weights"}:
            self._check_new(name, function.lineno)
        self._follow(function.body, set(self._arguments))

    def _follow(self, body: Iterable[ast.stmt], defined: set[str]) -> set[str] | None:
        """The names defined after the statements; None when they always return."""
        for statement in body:
            match statement:
                case ast.If(test=test, body=then, orelse=other):
                    self._read(test, defined)
                    branches = [self._follow(part, set(defined)) for part in (then, other)]
                    going_on = [names for names in branches if names is not None]
                    if not going_on:
                        return None
                    defined = set.intersection(*going_on)
                case ast.For(target=target, iter=iterated, body=inner):
                    self._read(iterated, defined)
                    self._assign(target, defined)
                    defined |= self._follow(inner, set(defined)) or set()
                case ast.Assign(targets=targets, value=value):
                    self._read(value, defined)
                    for target in targets:
                        self._assign(target, defined)
                case ast.AugAssign(target=ast.Name() as target, value=value):
                    self._read(value, defined)
                    self._read(ast.copy_location(ast.Name(target.id, ast.Load()), target), defined)
                    self._assign(target, defined)
                case ast.Return(value=value):
                    if value is not None:
                        self._read(value, defined)
                    return None
                case ast.Expr(value=value):
                    self._read(value, defined)
        return defined

    def _read(self, expression: ast.expr, defined: set[str]) -> None:
        for node in ast.walk(expression):
            if isinstance(node, ast.Name) and node.id not in defined | self._given | RESERVED:
                raise ContractError(node.lineno, "name", f"{node.id!r} is not defined here")

    def _assign(self, target: ast.expr, defined: set[str]) -> None:
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                self._check_new(node.id, node.lineno)
                defined.add(node.id)
                self.assigned.add(node.id)

    def _check_new(self, name: str, line: int) -> None:
        if name in self._given:
            raise ContractError(line, "name", f"{name!r} is a tunable and cannot be assigned")
        if name in RESERVED:
            raise ContractError(line, "name", f"{name!r} is a word of the plan's language")
