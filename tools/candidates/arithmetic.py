"""Integer expressions over tunables, as in `// require: THREADS * VECTOR <= 4096`.

Evaluated by walking the syntax tree: nothing is called but min and max, and no number grows
past 64 bits. Also the errors that say what can be wrong with a candidate, always as one sentence
that names the rule.
"""

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Never


class ContractError(ValueError):
    """A kernel or plan that breaks the candidate contract; found before anything runs.

    Attributes:
        line: 1-based line of the kernel or plan, 0 when it concerns the whole text.
        rule: Short stable name of the rule, for a critic to count.
        words: The sentence a person or a model reads.
    """

    def __init__(self, line: int, rule: str, words: str):
        super().__init__(f"line {line}: {words} [{rule}]" if line else f"{words} [{rule}]")
        self.line = line
        self.rule = rule
        self.words = words


class LaunchRefused(Exception):  # noqa: N818 - it says what happened, not that we are broken
    """A plan that could not be carried out: a wrong argument, shape, grid or library call.

    Attributes:
        line: 1-based line of the plan where it happened, 0 when unknown.
        words: The sentence a person or a model reads.
    """

    def __init__(self, words: str, line: int = 0):
        super().__init__(f"plan line {line}: {words}" if line else words)
        self.line = line
        self.words = words


class DeviceError(RuntimeError):
    """The device reported an error that belongs to earlier work, such as an illegal access.

    The context is poisoned: whoever catches this retires the process.
    """


_LIMIT = 1 << 64

_BINARY: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
}
_UNARY: Mapping[type[ast.unaryop], Callable[[int], int]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
    ast.Not: operator.not_,
}
_COMPARE: Mapping[type[ast.cmpop], Callable[[int, int], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_CALLS: Mapping[str, Callable[..., int]] = {"min": min, "max": max}


class Expression:
    """A checked integer expression.

    Args:
        text: As written after `require:`.
        names: Names it may use.
        line: Where it stands, for errors.

    Raises:
        ContractError: When it is no integer expression over those names.
    """

    def __init__(self, text: str, names: frozenset[str], line: int):
        self._line = line
        self._known = names
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            self._refuse(f"{text.strip()!r} is not an expression")
        self.names = frozenset(n.id for n in ast.walk(self._tree) if isinstance(n, ast.Name))
        self.names -= frozenset(_CALLS)
        self._check(self._tree)

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether it is true; an expression that cannot be evaluated (x % 0) is false."""
        try:
            return bool(self.value(values))
        except (ZeroDivisionError, OverflowError, ValueError):
            return False

    def value(self, values: Mapping[str, int]) -> int:
        """What it comes to.

        Raises:
            ZeroDivisionError, OverflowError, ValueError: It cannot be evaluated.
        """
        return self._value(self._tree, values)

    def _check(self, node: ast.expr) -> None:
        match node:
            case ast.Constant(value=bool() | int()):
                return
            case ast.Name(id=name):
                if name not in self._known:
                    self._refuse(f"{name!r} is not a declared tunable")
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _CALLS:
                if len(args) < 2:
                    self._refuse(f"{name} takes at least two numbers")
                for arg in args:
                    self._check(arg)
            case ast.BinOp() | ast.UnaryOp() | ast.BoolOp() | ast.Compare():
                self._check_operation(node)
            case _:
                self._refuse(f"{ast.unparse(node)!r} is not integer arithmetic")

    def _check_operation(self, node: ast.BinOp | ast.UnaryOp | ast.BoolOp | ast.Compare) -> None:
        match node:
            case ast.BinOp(left=left, op=op, right=right):
                known, parts = type(op) in _BINARY, [left, right]
            case ast.UnaryOp(op=unary, operand=operand):
                known, parts = type(unary) in _UNARY, [operand]
            case ast.BoolOp(values=values):
                known, parts = True, values
            case ast.Compare(left=left, ops=ops, comparators=rest):
                known, parts = all(type(item) in _COMPARE for item in ops), [left, *rest]
        if not known:
            self._refuse(f"{ast.unparse(node)!r} uses an operator that requirements do not have")
        for part in parts:
            self._check(part)

    def _value(self, node: ast.expr, values: Mapping[str, int]) -> int:
        match node:
            case ast.Constant(value=int() as number):
                return number
            case ast.Name(id=name):
                return values[name]
            case ast.Call(func=ast.Name(id=name), args=args):
                return _CALLS[name](*(self._value(arg, values) for arg in args))
            case ast.BinOp(left=left, op=op, right=right):
                return _binary(op, self._value(left, values), self._value(right, values))
            case ast.UnaryOp(op=op, operand=operand):
                return _UNARY[type(op)](self._value(operand, values))
            case ast.BoolOp(op=op, values=parts):
                return self._decide(isinstance(op, ast.And), parts, values)
            case ast.Compare(left=left, ops=ops, comparators=rest):
                numbers = [self._value(part, values) for part in (left, *rest)]
                pairs = zip(ops, numbers, numbers[1:], strict=False)
                return all(_COMPARE[type(op)](a, b) for op, a, b in pairs)
        raise AssertionError(f"{ast.dump(node)} passed the check")

    def _decide(self, both: bool, parts: list[ast.expr], values: Mapping[str, int]) -> int:
        """`and` and `or` give the value that decided, as Python's do."""
        result = 0
        for part in parts:
            result = self._value(part, values)
            if bool(result) != both:
                break
        return result

    def _refuse(self, words: str) -> Never:
        raise ContractError(self._line, "require", words)


def _binary(op: ast.operator, left: int, right: int) -> int:
    if isinstance(op, ast.LShift) and right > 64:
        raise OverflowError("shifted past 64 bits")
    result = _BINARY[type(op)](left, right)
    if abs(result) > _LIMIT:
        raise OverflowError("past 64 bits")
    return result
