"""What each line of a plan does to its names, and what kernels may do with what they are given.

A line is parsed once in a process: drafts of a task share most of theirs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from kernelwright.tools.candidates.plan.expressions import operator_path
from kernelwright.tools.candidates.plan.vocabulary import METHODS, NUMERIC_METHODS, RESERVED
from kernelwright.tools.types.graph import words

# What may return memory of what it is given: operators of the first argument, methods of theirs.
VIEWS = words("""
    _conj _unsafe_view alias chunk contiguous detach diagonal expand flatten imag movedim narrow
    permute real reshape select slice split split_with_sizes squeeze t transpose unbind unfold
    unsqueeze view view_as_complex view_as_real
""")
_COPIES_AND_SIZES = NUMERIC_METHODS | {"flip", "size", "stride"}
VIEW_METHODS = METHODS - _COPIES_AND_SIZES
# What tells something of a tensor without its values.
_SHAPE = NUMERIC_METHODS | {"dtype", "ndim", "shape", "size", "stride"}
_MAKERS = frozenset({"empty", "empty_like", "zeros"})


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel's function, and for each of its arguments the names of whose memory it may be."""

    function: str
    arguments: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Statement:
    """What one line does. A weight that is looked up is the name `weights["..."]`.

    Attributes:
        text: The line.
        binds: Names that it binds.
        reads: Names that it reads, without what a block binds itself.
        maker: The helper that allocates what it binds; "" for anything else.
        shares: Names of whose memory that may be, which it binds or returns.
        takes: Names whose values it reads, kernels aside.
        launches: Its launches.
        updates: Buffers that it updates, by their state-dict names.
        returns: Whether it returns.
    """

    text: str
    binds: tuple[str, ...]
    reads: frozenset[str]
    maker: str
    shares: tuple[str, ...]
    takes: tuple[str, ...]
    launches: tuple[Launch, ...]
    updates: tuple[str, ...]
    returns: bool


@lru_cache(maxsize=16_384)
def statement(text: str) -> Statement:
    """One line of a plan, which may be a block."""
    (node,) = ast.parse(text).body
    reads, binds, calls = _seen(node)
    shares, is_block = tuple(dict.fromkeys(_handed_on(node))), isinstance(node, ast.For | ast.If)
    returns = isinstance(node, ast.Return) or (is_block and _holds_return(node))
    taken = shares if returns else [name for call in calls for name in _taken(call)]
    if is_block:
        reads -= {*binds}
        shares, taken = (tuple(name for name in of if name in reads) for of in (shares, taken))
    return Statement(
        text=text,
        binds=tuple(dict.fromkeys(binds)),
        reads=frozenset(reads),
        maker=_maker(node),
        shares=shares,
        takes=tuple(dict.fromkeys(taken)),
        launches=tuple(_launched(call) for call in calls if _is(call, "launch")),
        updates=tuple(ast.literal_eval(call.args[0]) for call in calls if _is(call, "update")),
        returns=returns,
    )


def _is(call: ast.Call, name: str) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == name


def _holds_return(node: ast.AST) -> bool:
    return any(isinstance(part, ast.Return) for part in ast.walk(node))


def _looked_up(node: ast.Subscript) -> str:
    match node:
        case ast.Subscript(
            value=ast.Name(id="weights" | "prepared" as word), slice=ast.Constant(value=str(name))
        ):
            return f'{word}["{name}"]'
    return ""


def _seen(node: ast.AST) -> tuple[set[str], list[str], list[ast.Call]]:
    """The names that are read and bound in it, and the calls."""
    reads, binds, calls = set[str](), list[str](), list[ast.Call]()
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, ast.Name):
            if isinstance(part.ctx, ast.Store):
                binds.append(part.id)
            elif part.id not in RESERVED:
                reads.add(part.id)
        elif isinstance(part, ast.Subscript) and (name := _looked_up(part)):
            reads.add(name)
        else:
            if isinstance(part, ast.Call):
                calls.append(part)
            elif isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Name):
                reads.add(part.target.id)
            waiting += ast.iter_child_nodes(part)
    # Of several targets the first was put off longest.
    return reads, binds[::-1], calls[::-1]


def _read(node: ast.AST) -> set[str]:
    return _seen(node)[0]


def _handed_on(node: ast.stmt) -> Iterator[str]:
    """Of whose memory what is bound or returned may be; in a block, of all that it reads."""
    match node:
        case ast.Assign(value=value) | ast.Return(value=ast.expr() as value):
            yield from _shared(value)
        case ast.For() | ast.If():
            yield from _read(node)


def _shared(node: ast.expr) -> Iterator[str]:
    match node:
        case ast.Name() | ast.Subscript(value=ast.Name(id="weights" | "prepared")):
            yield from _read(node)
        case ast.Subscript(value=value) | ast.Attribute(value=value, attr="T" | "mT"):
            yield from _shared(value)
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            yield from (name for part in parts for name in _shared(part))
        case ast.IfExp(body=one, orelse=other):
            yield from (*_shared(one), *_shared(other))
        case ast.Call(func=ast.Name(id="tensor_map"), args=[given, *_]):
            yield from _shared(given)
        case ast.Call(func=ast.Attribute(value=value, attr=method) as function, args=arguments):
            path = operator_path(function)
            if path:
                yield from _shared(arguments[0]) if path[0] in VIEWS and arguments else ()
            elif method in VIEW_METHODS:
                yield from _shared(value)


def _taken(call: ast.Call) -> Iterator[str]:
    """The names whose values an operator of the library or an update reads."""
    path = operator_path(call.func)
    if path or _is(call, "update"):
        given = call.args[1:] if path and path[0] in VIEWS else call.args
        for part in (*given, *(keyword.value for keyword in call.keywords)):
            yield from _valued(part)


def _valued(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute) and node.attr in _SHAPE:
        return
    if isinstance(node, ast.Name) or (isinstance(node, ast.Subscript) and _looked_up(node)):
        yield from _read(node)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _valued(child)


def _launched(call: ast.Call) -> Launch:
    match call:
        case ast.Call(args=[ast.Constant(value=str() as function), *_], keywords=keywords):
            given = [part.value for part in keywords if part.arg == "args"]
            listed = [part.elts for part in given if isinstance(part, ast.Tuple)]
            return Launch(function, tuple(tuple(_shared(one)) for of in listed for one in of))
    raise ValueError(f"no launch names a function like {ast.unparse(call)}")


def _maker(node: ast.stmt) -> str:
    match node:
        case ast.Assign(targets=[ast.Name()], value=ast.Call(func=ast.Name(id=maker))):
            return maker if maker in _MAKERS else ""
    return ""


# What a function may do with an argument: write to its memory, or only read it; None for a number,
# and for a tensor map, which does not say.
May = bool | None

_FUNCTION = re.compile(r'extern "C"([^{;]*)\{')
_TUNABLE = re.compile(r"// tune: (\w+)")


@dataclass(frozen=True, slots=True)
class Declared:
    """The tunables of device code, and what its functions may write of their arguments."""

    tunables: frozenset[str]
    functions: Mapping[str, tuple[May, ...]]


@lru_cache(maxsize=1024)
def declared(source: str) -> Declared:
    """What device code declares, read from its text: parsing it would take as long as a draft."""
    functions: dict[str, tuple[May, ...]] = {}
    for head in _FUNCTION.findall(source):
        before, _, parameters = head.rpartition(")")[0].rpartition("(")
        functions[before.split()[-1]] = tuple(map(_may_write, parameters.split(",")))
    return Declared(frozenset(_TUNABLE.findall(source)), functions)


def _may_write(parameter: str) -> May:
    pointee, star, _ = parameter.partition("*")
    return "const" not in pointee.split() if star else None
