"""Any candidate as an answer: in full, kernel and plan, or in the short contract where it fits.

Tunables are settled at the values that the candidate has. A plan fits the short contract when it
only names weights, allocates what is not filled, launches with sizes that are known, and returns.
"""

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping

from kernelwright.tools.candidates import ContractError
from kernelwright.tools.learning.contract.launches import (
    Interface,
    Launched,
    Temporary,
    answer_text,
    candidate_of,
    launch_comment,
    temporary_comment,
)
from kernelwright.tools.types import Candidate, DType


def in_full(candidate: Candidate) -> str:
    """A candidate as the full contract has it: its kernel and its plan, tunables as they were."""
    values = {item.name: str(item.value) for item in candidate.settings}
    kernel = answer_text(_settled(candidate.kernel, values), candidate.language)
    return f"{kernel}\n{answer_text(_valued(candidate.plan, values), 'python')}"


def _settled(kernel: str, values: Mapping[str, str]) -> str:
    lines = [line for line in kernel.splitlines() if not re.match(r"\s*//\s*(tune|require):", line)]
    return _valued("\n".join(lines), values)


def _valued(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda word: values.get(word[0], word[0]), text)


_ARITHMETIC: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_CALLS: Mapping[str, Callable[..., int]] = {
    "ceil_div": lambda a, b: -(-a // b),
    "min": min,
    "max": max,
}


class _UnlikeError(ValueError):
    """A plan that does more than the short contract says."""


def shortened(candidate: Candidate, names: Interface) -> str | None:
    """A candidate as an answer in the short contract; None where its plan does more than that."""
    values = {item.name: str(item.value) for item in candidate.settings}
    try:
        plan = ast.parse(_valued(candidate.plan, values))
        temporaries, launches = _Reading(names).of(plan)
    except (ContractError, SyntaxError, ValueError, KeyError, ArithmeticError):
        return None
    kernel = re.sub(r'#include "kernelwright\.\w+"\n*', "", _settled(candidate.kernel, values))
    if "#include" in kernel:
        return None
    head = [temporary_comment(item) for item in temporaries]
    head += [launch_comment(item) for item in launches]
    answer = answer_text("\n".join([*head, kernel.strip()]), candidate.language)
    try:
        candidate_of(answer, names, candidate.language)
    except ContractError:
        return None
    return answer


class _Reading:
    """Reads a plan as allocations and launches."""

    def __init__(self, names: Interface) -> None:
        self._names = names
        self._called: dict[str, str] = {}
        self._made: dict[str, Temporary] = {}

    def of(self, plan: ast.Module) -> tuple[list[Temporary], list[Launched]]:
        if len(plan.body) != 1 or not isinstance(plan.body[0], ast.FunctionDef):
            raise _UnlikeError("it prepares something")
        function = plan.body[0]
        given = [argument.arg for argument in function.args.args]
        inputs = [item.name for item in self._names.inputs]
        self._called = dict(zip(given, inputs, strict=True))
        launches = [found for line in function.body if (found := self._line(line)) is not None]
        temporaries = [item for name, item in self._made.items() if name not in self._called]
        called = {**{item.name: item.name for item in temporaries}, **self._called}
        renamed = [
            one.model_copy(update={"arguments": tuple(called.get(a, a) for a in one.arguments)})
            for one in launches
        ]
        return temporaries, renamed

    def _line(self, line: ast.stmt) -> Launched | None:
        match line:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Subscript(value=ast.Name(id="weights"), slice=ast.Constant(value=target)),
            ):
                self._called[name] = {w.target: w.name for w in self._names.weights}[str(target)]
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(
                    func=ast.Name(id="empty"),
                    args=[shape],
                    keywords=[ast.keyword(arg="dtype", value=ast.Constant(value=dtype))],
                ),
            ):
                sizes = tuple(ast.literal_eval(shape))
                self._made[name] = Temporary(
                    name=name, dtype=DType(str(dtype)), shape=sizes or (1,)
                )
            case ast.Expr(value=ast.Call(func=ast.Name(id="launch")) as call):
                return _launched(call)
            case ast.Return(value=value):
                self._return(value)
            case _:
                raise _UnlikeError(ast.unparse(line))
        return None

    def _return(self, value: ast.expr | None) -> None:
        parts = value.elts if isinstance(value, ast.Tuple) else [value]
        for part, output in zip(parts, self._names.outputs, strict=True):
            if not isinstance(part, ast.Name) or part.id not in self._made:
                raise _UnlikeError("it returns no tensor of its own")
            shape = self._made[part.id].shape
            if part.id in self._called or shape != (output.tensor.shape or (1,)):
                raise _UnlikeError("it returns something in another shape, or twice")
            self._called[part.id] = output.name


def _launched(call: ast.Call) -> Launched:
    (name,) = call.args
    words = {item.arg: item.value for item in call.keywords if item.arg}
    if not isinstance(name, ast.Constant) or not isinstance(words.get("args"), ast.Tuple):
        raise _UnlikeError("a launch in other words")
    arguments = words.pop("args")
    assert isinstance(arguments, ast.Tuple)
    texts = tuple(ast.unparse(item) for item in arguments.elts)
    if any(not isinstance(item, ast.Name | ast.Constant) for item in arguments.elts):
        raise _UnlikeError("an argument that is computed")
    geometry = tuple((str(word), ",".join(_sizes(value))) for word, value in words.items())
    return Launched(kernel=str(name.value), arguments=texts, geometry=geometry)


def _sizes(value: ast.expr) -> Iterator[str]:
    for part in value.elts if isinstance(value, ast.Tuple) else [value]:
        yield str(_whole(part))


def _whole(node: ast.expr) -> int:
    """The value of whole numbers' arithmetic."""
    match node:
        case ast.Constant(value=int() as number):
            return number
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            return _ARITHMETIC[type(op)](_whole(left), _whole(right))
        case ast.Call(func=ast.Name(id=name), args=args) if name in _CALLS:
            return _CALLS[name](*map(_whole, args))
    raise _UnlikeError("a size that is computed from the inputs")
