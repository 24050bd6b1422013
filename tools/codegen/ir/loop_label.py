"""A readable label for a loop, worked out from its structure alone.

The label names ideas and groups the ledger; nothing else depends on it.
"""

from __future__ import annotations

from kernelwright.tools.codegen.ir import Loop, ReduceKind, Stmt

_POWERS = ("exp", "exp2")
_POSITIONS = {ReduceKind.ARGMAX, ReduceKind.ARGMIN}


def loop_label(loop: Loop) -> str:
    """What a person would call the loop."""
    reductions = [stmt for stmt in loop.body if stmt.op == "reduce"]
    if any(stmt.op == "scan" for stmt in loop.body):
        return "scan"
    if not reductions:
        return _without_reductions(loop)
    kinds = {stmt.reduce for stmt in reductions}
    if kinds & _POSITIONS:
        return "argmax"
    if _exponential_sum(loop, reductions):
        return _softmax_relative(loop)
    if not _writes_elements(loop):
        return "loss" if loop.rows == 1 and len(loop.body) > 3 else "reduction"
    return "normalisation"


def _without_reductions(loop: Loop) -> str:
    computes = any(stmt.op not in ("load", "const", "index", "cast") for stmt in loop.body)
    if not computes:
        return "copy"
    return "pointwise"


def _exponential_sum(loop: Loop, reductions: list[Stmt]) -> bool:
    if any(stmt.reduce is ReduceKind.SOFTMAX for stmt in reductions):
        return True
    sums = [stmt for stmt in reductions if stmt.reduce is ReduceKind.SUM]
    maxima = {stmt.name for stmt in reductions if stmt.reduce is ReduceKind.MAX}
    return bool(maxima) and any(loop.stmt(stmt.args[0]).op in _POWERS for stmt in sums)


def _softmax_relative(loop: Loop) -> str:
    logarithm = any(stmt.op == "log" and loop.levels()[stmt.name] == "row" for stmt in loop.body)
    if not _writes_elements(loop):
        return "log-sum-exp" if logarithm else "softmax statistics"
    return "log-softmax" if logarithm else "softmax"


def _writes_elements(loop: Loop) -> bool:
    levels = loop.levels()
    return any(levels[store.value] == "element" for store in loop.stores)
