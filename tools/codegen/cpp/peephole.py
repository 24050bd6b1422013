"""Small rewrites that only pay on a CPU, where arithmetic and not memory is often the limit.

Each holds for every input, up to rounding within the prelude's stated errors:
1 + erf(x) and 1 + tanh(x) have cheaper forms than their functions; an exponential under its
maximum cannot overflow; a division by a sum of such, which lies between 1 and the row's length,
is a product.
"""

from __future__ import annotations

from kernelwright.tools.codegen.ir import Loop, ReduceKind, Stmt
from kernelwright.tools.codegen.ir.dependence import without_unread
from kernelwright.tools.types import DType

ONE_PLUS = {"erf": "one_plus_erf", "tanh": "one_plus_tanh"}


def shortened(loop: Loop) -> Loop:
    """The loop with these rewrites applied; statements nobody reads any more are dropped."""
    known = {stmt.name: stmt for stmt in loop.body}
    body: list[Stmt] = []
    inverses: dict[str, str] = {}
    for stmt in loop.body:
        divisor = _softmax_divisor(stmt, loop, known)
        if divisor is None:
            body.append(_below_maximum(_one_plus(stmt, known), known))
            continue
        if divisor not in inverses:
            inverses[divisor] = f"{divisor}_inverse"
            inverse = Stmt(
                name=inverses[divisor], op="reciprocal", dtype=stmt.dtype, args=(divisor,)
            )
            body.append(inverse)
        body.append(
            stmt.model_copy(update={"op": "mul", "args": (stmt.args[0], inverses[divisor])})
        )
    return without_unread(loop.model_copy(update={"body": tuple(body)}))


def _one_plus(stmt: Stmt, known: dict[str, Stmt]) -> Stmt:
    if stmt.op != "add" or stmt.dtype is not DType.FLOAT32:
        return stmt
    for one, other in (stmt.args, stmt.args[::-1]):
        constant, function = known.get(one), known.get(other)
        if constant is None or function is None or constant.op != "const":
            continue
        if constant.value == 1 and function.op in ONE_PLUS and function.dtype is stmt.dtype:
            return stmt.model_copy(update={"op": ONE_PLUS[function.op], "args": function.args})
    return stmt


def _below_maximum(stmt: Stmt, known: dict[str, Stmt]) -> Stmt:
    if stmt.op == "exp" and _is_below_maximum(stmt, known):
        return stmt.model_copy(update={"op": "exp_below"})
    return stmt


def _is_below_maximum(power: Stmt | None, known: dict[str, Stmt]) -> bool:
    """Whether a statement is an exponential of a value minus the maximum of that value."""
    if power is None or power.op != "exp" or power.dtype is not DType.FLOAT32:
        return False
    shifted = known.get(power.args[0])
    most = known.get(shifted.args[1]) if shifted is not None and shifted.op == "sub" else None
    if shifted is None or most is None or most.args[:1] != shifted.args[:1]:
        return False
    return most.reduce in (ReduceKind.MAX, ReduceKind.SOFTMAX)


def _softmax_divisor(stmt: Stmt, loop: Loop, known: dict[str, Stmt]) -> str | None:
    """The second argument of a division when it is a sum of exponentials under their maximum."""
    if stmt.op != "div" or stmt.dtype is not DType.FLOAT32 or f"{stmt.args[1]}_inverse" in known:
        return None
    name = stmt.args[1]
    if any(s.reduce is ReduceKind.SOFTMAX and name == f"{s.name}_sum" for s in loop.body):
        return name
    total = known.get(name)
    if total is None or total.reduce is not ReduceKind.SUM:
        return None
    return name if _is_below_maximum(known.get(total.args[0]), known) else None
