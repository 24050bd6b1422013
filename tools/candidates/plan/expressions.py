"""Checks of a plan's expressions: every node, attribute, name, constant and call.

Every name is defined before it is read, and no word is redefined. Calls are launches, helpers,
tensor methods and library operators.
"""

import ast
from collections.abc import Iterable, Sequence
from typing import Never

from kernelwright.tools.candidates.arithmetic import ContractError
from kernelwright.tools.candidates.kernel_source import KernelFunction, KernelSource
from kernelwright.tools.candidates.plan.vocabulary import (
    CONSTANTS,
    DROPOUT,
    EXPRESSIONS,
    FORBIDDEN_KEYWORDS,
    GRID_LAUNCH,
    HELPERS,
    KEYWORDS,
    METHODS,
    OPERATORS,
    PLAIN_LAUNCH,
    PROPERTIES,
    REFERENCE,
    RESERVED,
    TENSOR_MAP,
    TENSOR_MAP_KEYWORDS,
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
        # Calls of `tensor_map` that stand where they may.
        self._maps: list[ast.Call] = []

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
            case ast.Name(id=name) if name == TENSOR_MAP:
                if not any(call is one for one in self._maps):
                    words = "tensor_map stands among the args of a launch only"
                    raise ContractError(call.lineno, TENSOR_MAP, words)
            case ast.Name(id=name) if name == REFERENCE:
                if call.keywords or _starred(call.args) or not call.args:
                    words = "the form is reference(x, y), with the arguments of forward"
                    raise ContractError(call.lineno, REFERENCE, words)
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
            if _is_map(value) != parameter.is_map:
                what = "takes tensor_map(...)" if parameter.is_map else "takes no tensor map"
                words = f"{function.name}: {parameter.spelling} {parameter.name} {what}"
                raise ContractError(line, "launch", words)
            if isinstance(value, ast.Call) and parameter.is_map:
                self._map(value)
            if isinstance(value, ast.Constant) and _mismatch(value, parameter.pointer):
                words = f"{value.value!r} cannot be passed as {parameter.spelling} {parameter.name}"
                raise ContractError(line, "launch", words)

    def _map(self, call: ast.Call) -> None:
        """One tensor that has a name, so that it is there until the launch, and keywords."""
        given = [item.arg for item in call.keywords]
        wrong = [name for name in given if name not in TENSOR_MAP_KEYWORDS or given.count(name) > 1]
        named = len(call.args) == 1 and isinstance(call.args[0], ast.Name | ast.Subscript)
        if not named or wrong or "box" not in given:
            words = f"{', '.join(sorted(TENSOR_MAP_KEYWORDS - {'box'}))}"
            words = f"the form is tensor_map(name, box=(...)), with {words} where they are needed"
            raise ContractError(call.lineno, TENSOR_MAP, words)
        if isinstance(call.args[0], ast.Subscript) and not _is_kept(call.args[0]):
            words = "tensor_map takes a tensor that has a name: give the view one first"
            raise ContractError(call.lineno, TENSOR_MAP, words)
        self._maps.append(call)

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


def _is_map(value: ast.expr) -> bool:
    return (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Name)
        and value.func.id == TENSOR_MAP
    )


def _is_kept(value: ast.Subscript) -> bool:
    return isinstance(value.value, ast.Name) and value.value.id in ("weights", "prepared")


def _mismatch(value: ast.Constant, pointer: bool) -> bool:
    return pointer or not isinstance(value.value, int | float)


def _starred(values: Sequence[ast.expr]) -> bool:
    return any(isinstance(value, ast.Starred) for value in values)


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
