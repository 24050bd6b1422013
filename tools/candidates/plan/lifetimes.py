"""When a plan lets go of its tensors: behind the last statement that reads them.

A plan names every buffer of a model, and names that live until the function returns would hold all
of them: many times what PyTorch holds, whose allocator gives the memory of what is dead to what
comes next, often while it is still in the cache. Whoever runs or prints a plan puts these
statements into it, so that no plan has to say them.

Not covered: names that are bound inside of a loop or a branch, which may not be bound at all, and
what a name held that is bound again, which lives until the new value is made.
"""

import ast
from collections.abc import Iterator

from kernelwright.tools.candidates.plan.expressions import operator_path
from kernelwright.tools.candidates.plan.vocabulary import NUMERIC_HELPERS, NUMERIC_METHODS

_NUMERIC = NUMERIC_METHODS | {"size", "stride"}
_NO_TENSORS = frozenset({"shape", "dtype", "ndim"})
_KEPT_ELSEWHERE = frozenset({"weights", "prepared"})


def letting_go(function: ast.FunctionDef) -> ast.FunctionDef:
    """The same function, which deletes its names of tensors where they are read last.

    What it returns and its parameters are left alone: the caller holds those.
    """
    kept = {argument.arg for argument in function.args.args}
    bound: set[str] = set()
    last: dict[str, int] = {}
    for place, statement in enumerate(function.body):
        if isinstance(statement, ast.Assign) and _may_be_tensor(statement.value):
            bound.update(name for target in statement.targets for name in _names(target))
        last |= dict.fromkeys(_names(statement), place)
    body: list[ast.stmt] = []
    for place, statement in enumerate(function.body):
        body.append(statement)
        dead = [name for name in last if last[name] == place and name in bound and name not in kept]
        if dead and not isinstance(statement, ast.Return):
            gone: list[ast.expr] = [ast.Name(name, ast.Del()) for name in dead]
            body.append(ast.copy_location(ast.Delete(gone), statement))
    function.body = body
    return ast.fix_missing_locations(function)


def _names(node: ast.AST) -> Iterator[str]:
    return (found.id for found in ast.walk(node) if isinstance(found, ast.Name))


def _may_be_tensor(value: ast.expr) -> bool:
    """Whether an expression may be a tensor that only its name holds; numbers cost no memory."""
    match value:
        case ast.Call(func=ast.Name(id=name)):
            return name not in NUMERIC_HELPERS
        case ast.Call(func=ast.Attribute(attr=method) as function):
            return method not in _NUMERIC or bool(operator_path(function))
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return any(map(_may_be_tensor, parts))
        case ast.Subscript(value=ast.Name(id=name)):
            return name not in _KEPT_ELSEWHERE
        case ast.Attribute(attr=name):
            return name not in _NO_TENSORS
        case ast.Subscript(value=ast.Attribute(attr=name)):
            return name not in _NO_TENSORS
        case ast.Name() | ast.Subscript() | ast.IfExp():
            return True
    return False
