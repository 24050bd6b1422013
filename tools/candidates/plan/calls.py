"""Checks of everything that a plan calls: launches, helpers, tensor methods, library operators."""

import ast
from collections.abc import Sequence

from kernelwright.tools.candidates.arithmetic import ContractError
from kernelwright.tools.candidates.kernel_source import KernelFunction, KernelSource
from kernelwright.tools.candidates.plan.vocabulary import (
    DROPOUT,
    FORBIDDEN_KEYWORDS,
    GRID_LAUNCH,
    HELPERS,
    KEYWORDS,
    METHODS,
    PLAIN_LAUNCH,
)


class Calls:
    """Checks calls against one kernel source and one set of admitted operators.

    Attributes:
        launches: Functions launched, in order of appearance.
        operators: Library operators called, in order of appearance.
        updates: Buffers updated.
    """

    def __init__(self, source: KernelSource, admitted: frozenset[str]):
        self._source = source
        self._admitted = admitted
        self.launches: dict[str, None] = {}
        self.operators: dict[str, None] = {}
        self.updates: dict[str, None] = {}

    def check(self, call: ast.Call, *, statement: bool) -> None:
        """Check one call; `statement` when it stands alone on a line.

        Raises:
            ContractError: Naming the rule.
        """
        match call.func:
            case ast.Name(id="launch" | "update" as word):
                if not statement:
                    words = f"{word} stands on a line of its own; it has no value"
                    raise ContractError(call.lineno, word, words)
                self._launch(call) if word == "launch" else self._update(call)
            case ast.Name(id="range"):
                raise ContractError(call.lineno, "range", "range belongs in a for statement only")
            case ast.Name(id=name):
                self._helper(call, name)
            case ast.Attribute() as function if operator_path(function):
                self._operator(call, operator_path(function))
            case ast.Attribute(attr=method):
                if method not in METHODS:
                    words = f"a plan may not call .{method}()"
                    raise ContractError(call.lineno, "attribute", words)
                self._no_forbidden_keywords(call, f".{method}")
            case _:
                words = f"{ast.unparse(call.func)!r} is no function of the plan's language"
                raise ContractError(call.lineno, "call", words)

    def _launch(self, call: ast.Call) -> None:
        line = call.lineno
        match call.args:
            case [ast.Constant(value=str() as name)]:
                function = self._source.function(name)
            case _:
                words = 'the form is launch("name", ..., args=(...))'
                raise ContractError(line, "launch", words)
        if function is None:
            known = ", ".join(item.name for item in self._source.functions)
            words = f"the kernel exports no {name!r}; it exports {known}"
            raise ContractError(line, "launch", words)
        self._launch_keywords(call)
        keywords = {item.arg: item.value for item in call.keywords}
        self._arguments(keywords["args"], function, line)
        self.launches[name] = None

    def _launch_keywords(self, call: ast.Call) -> None:
        grid = self._source.has_grid
        allowed = GRID_LAUNCH if grid else PLAIN_LAUNCH
        needed = {"grid", "block", "args"} if grid else {"args"}
        given = [item.arg or "**" for item in call.keywords]
        wrong = [name for name in given if name not in allowed or given.count(name) > 1]
        missing = sorted(needed - set(given))
        if wrong:
            words = f"launch takes {', '.join(sorted(allowed))}, not {wrong[0]!r}"
            raise ContractError(call.lineno, "launch", words)
        if missing:
            raise ContractError(call.lineno, "launch", f"launch needs {' and '.join(missing)}")

    def _arguments(self, given: ast.expr, function: KernelFunction, line: int) -> None:
        if not isinstance(given, ast.Tuple | ast.List) or _starred(given.elts):
            raise ContractError(line, "launch", "args must be written out as a tuple")
        wanted = function.parameters
        if len(given.elts) != len(wanted):
            signature = ", ".join(f"{item.spelling} {item.name}" for item in wanted)
            words = f"{function.name}({signature}) takes {len(wanted)} arguments"
            raise ContractError(line, "launch", f"{words}, not {len(given.elts)}")
        for value, parameter in zip(given.elts, wanted, strict=True):
            if isinstance(value, ast.Constant) and _mismatch(value, parameter.pointer):
                words = f"{value.value!r} cannot be passed as {parameter.spelling} {parameter.name}"
                raise ContractError(line, "launch", words)

    def _update(self, call: ast.Call) -> None:
        match call:
            case ast.Call(args=[ast.Constant(value=str() as name), value], keywords=[]):
                if isinstance(value, ast.Starred):
                    raise ContractError(call.lineno, "update", "update takes a tensor")
                self.updates[name] = None
            case _:
                raise ContractError(call.lineno, "update", 'the form is update("name", tensor)')

    def _helper(self, call: ast.Call, name: str) -> None:
        if name not in HELPERS:
            known = ", ".join(sorted(HELPERS))
            words = f"{name!r} is no function of the plan's language; those are {known}, launch"
            raise ContractError(call.lineno, "call", words)
        least, most = HELPERS[name]
        count = len(call.args) + len(call.keywords)
        known_keywords = KEYWORDS.get(name, frozenset())
        wrong = [item.arg for item in call.keywords if item.arg not in known_keywords]
        if wrong or _starred(call.args) or not least <= count <= most:
            counted = str(least) if least == most else f"{least} to {most}"
            words = f"{name} takes {counted} arguments as its documentation says"
            raise ContractError(call.lineno, "call", words)

    def _operator(self, call: ast.Call, path: tuple[str, ...]) -> None:
        name = path[0]
        if len(path) > 2 or path[-1].startswith("__") or name not in self._admitted:
            words = f"aten.{'.'.join(path)} is not among the library operators admitted here"
            raise ContractError(call.lineno, "operator", words)
        if _starred(call.args):
            words = f"the arguments of aten.{name} must be written out"
            raise ContractError(call.lineno, "operator", words)
        self._no_forbidden_keywords(call, f"aten.{name}")
        if name in DROPOUT:
            _check_dropout(call, name)
        self.operators[".".join(path)] = None

    def _no_forbidden_keywords(self, call: ast.Call, name: str) -> None:
        for keyword in call.keywords:
            if keyword.arg is None or keyword.arg in FORBIDDEN_KEYWORDS:
                words = f"{name} may not be given {keyword.arg or '**'}"
                raise ContractError(call.lineno, "keyword", words)


def operator_path(function: ast.expr) -> tuple[str, ...]:
    """("max", "dim") for `aten.max.dim`; empty when it is not an operator."""
    path: list[str] = []
    while isinstance(function, ast.Attribute):
        path.append(function.attr)
        function = function.value
    rooted = isinstance(function, ast.Name) and function.id == "aten"
    return tuple(reversed(path)) if rooted else ()


def _check_dropout(call: ast.Call, name: str) -> None:
    keyword, position = DROPOUT[name]
    values = [item.value for item in call.keywords if item.arg == keyword]
    values += call.args[position : position + 1]
    if not all(isinstance(value, ast.Constant) and value.value == 0 for value in values):
        words = f"aten.{name} is admitted without dropout only ({keyword}=0.0)"
        raise ContractError(call.lineno, "operator", words)


def _mismatch(value: ast.Constant, pointer: bool) -> bool:
    return pointer or not isinstance(value.value, int | float)


def _starred(values: Sequence[ast.expr]) -> bool:
    return any(isinstance(value, ast.Starred) for value in values)
