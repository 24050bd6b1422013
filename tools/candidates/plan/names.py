"""Checks that every name in a plan is defined before it is read, and that no word is redefined."""

import ast
from collections.abc import Iterable

from kernelwright.tools.candidates.errors import ContractError
from kernelwright.tools.candidates.plan.vocabulary import RESERVED


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
