"""Which nodes of a program one kernel can serve, and that kernel's launch on another's buffers.

Networks repeat their layers, so loops repeat. Two are alike when they differ in nothing but names
and in what an order says nothing of: the terms of an index, the operands of a sum, independent
statements. How lowering orders those follows from names, so that layer 10 comes out otherwise than
layer 9. Not covered: loops whose axes are walked in another order.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b

from kernelwright.tools.codegen.ir import Access, Buffer, LibraryCall, Loop, ProgramNode
from kernelwright.tools.codegen.ir.loops import Stmt, Store, Stride, axis_names, indices, results

# Operators whose two operands may change places, to the last bit.
_COMMUTE = frozenset({
    "add", "mul", "maximum", "minimum", "eq", "ne", "hypot", "logical_and", "logical_or",
    "logical_xor", "bitwise_and", "bitwise_or", "bitwise_xor",
})  # fmt: skip


def buffers_of(node: ProgramNode) -> tuple[str, ...]:
    """The buffers of a node, in an order that is the same for nodes that are alike."""
    if isinstance(node, LibraryCall):
        names = [buffer.name for buffer in (*node.operands, *node.results)]
    else:
        names = _named_by(_Ordered(node).loop)
    return tuple(dict.fromkeys(names))


def shape_of(node: ProgramNode) -> ProgramNode:
    """The node without names and in a fixed order: equal for nodes that one kernel can serve."""
    if isinstance(node, LibraryCall):
        return _nameless_call(node, _numbered(buffers_of(node)))
    loop = _Ordered(node).loop
    return _nameless(loop, _numbered(_named_by(loop)))


def _numbered(names: Iterable[str]) -> dict[str, str]:
    return {name: f"b{at}" for at, name in enumerate(dict.fromkeys(names))}


def on_other_buffers(
    lines: tuple[str, ...], first: ProgramNode, other: ProgramNode
) -> tuple[str, ...]:
    """The plan lines of one node, for another of equal shape."""
    names = dict(zip(buffers_of(first), buffers_of(other), strict=True))
    tree = Renaming(names).visit(ast.parse("\n".join(lines)))
    return tuple(ast.unparse(tree).splitlines())


class Renaming(ast.NodeTransformer):
    """Gives variables of a plan other names."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        """One variable."""
        return ast.Name(self._names.get(node.id, node.id), node.ctx)


class _Ordered:
    """A loop with its statements, their operands and its stores in the order that is told here.

    `loop` computes the same: statements come as its stores ask for them, the operands of what
    commutes by what they are made of, whatever the buffers are called. Where that is the same for
    both, they stay as they stand.
    """

    def __init__(self, loop: Loop) -> None:
        self._axes = axis_names(loop)
        self._by_result = {name: stmt for stmt in loop.body for name in results(stmt)}
        self._signs: dict[str, str] = {}
        for stmt in loop.body:
            sign = self._sign(stmt)
            self._signs |= {name: f"{sign}{name[len(stmt.name) :]}" for name in results(stmt)}
        stores = self._ordered_stores(loop.stores)
        self._names: dict[str, str] = {}
        self._body: list[Stmt] = []
        for name in (name for store in stores for name in self._read_by(store)):
            self._take(name)
        for stmt in loop.body:  # what nothing reads
            self._take(stmt.name)
        self.loop = loop.model_copy(
            update={"body": tuple(self._body), "stores": tuple(map(self._store, stores))}
        )

    def _ordered_stores(self, stores: Sequence[Store]) -> list[Store]:
        """Stores of one buffer keep their order: the last one's values stay."""
        groups: dict[str, list[Store]] = {}
        for store in stores:
            groups.setdefault(store.access.buffer, []).append(store)
        ordered = sorted(groups.values(), key=lambda group: [*map(self._sign_of_store, group)])
        return [store for group in ordered for store in group]

    def _take(self, name: str) -> None:
        stmt = self._by_result[name]
        if stmt.name in self._names:
            return
        args = self._arguments(stmt)
        values = [] if stmt.op == "index" else args
        access = stmt.access and self._ordered(stmt.access)
        for read in (*values, *(indices(access, self._axes) if access else ())):
            self._take(read)
        own = f"v{len(self._body)}"
        self._names |= {one: f"{own}{one[len(stmt.name) :]}" for one in results(stmt)}
        renamed = tuple(args) if stmt.op == "index" else tuple(self._names[one] for one in args)
        named = access and self._renamed(access)
        self._body.append(stmt.model_copy(update={"name": own, "args": renamed, "access": named}))

    def _arguments(self, stmt: Stmt) -> Sequence[str]:
        commutes = stmt.op in _COMMUTE
        return sorted(stmt.args, key=self._signs.__getitem__) if commutes else stmt.args

    def _sign(self, stmt: Stmt) -> str:
        """What a statement computes, without the names of values and buffers."""
        values = () if stmt.op == "index" else self._arguments(stmt)
        read = stmt.args if stmt.op == "index" else tuple(self._signs[name] for name in values)
        rest = (stmt.op, stmt.dtype, stmt.value, stmt.reduce, stmt.scan, stmt.along)
        return _digest((*rest, read, self._sign_of_access(stmt.access)))

    def _sign_of_access(self, access: Access | None) -> tuple[object, ...]:
        if access is None:
            return ()
        steps = sorted((self._signs.get(one.by, one.by), one.step) for one in access.strides)
        return (access.dtype, access.offset, tuple(steps))

    def _sign_of_store(self, store: Store) -> str:
        when = self._signs.get(store.when, "")
        return _digest((self._signs[store.value], when, self._sign_of_access(store.access)))

    def _ordered(self, access: Access) -> Access:
        def place(one: Stride) -> tuple[str, int]:
            return self._signs.get(one.by, one.by), one.step

        strides = tuple(sorted(access.strides, key=place))
        return access if strides == access.strides else _moving(access, strides)

    def _renamed(self, access: Access) -> Access:
        """The access, where it is indirect by the new names of values."""
        if all(one.by in self._axes for one in access.strides):
            return access
        strides = tuple(
            one.model_copy(update={"by": self._names.get(one.by, one.by)}) for one in access.strides
        )
        return _moving(access, strides)

    def _read_by(self, store: Store) -> list[str]:
        named = [store.when] if store.when else []
        return [store.value, *named, *indices(self._ordered(store.access), self._axes)]

    def _store(self, store: Store) -> Store:
        access = self._renamed(self._ordered(store.access))
        value, when = self._names[store.value], self._names.get(store.when, "")
        return store.model_copy(update={"access": access, "value": value, "when": when})


def _moving(access: Access, strides: tuple[Stride, ...]) -> Access:
    return access.model_copy(update={"strides": strides})


def _digest(parts: tuple[object, ...]) -> str:
    return blake2b(repr(parts).encode(), digest_size=12).hexdigest()


def _named_by(loop: Loop) -> list[str]:
    names = [stmt.access.buffer for stmt in loop.body if stmt.access is not None]
    return names + [store.access.buffer for store in loop.stores]


def _nameless(loop: Loop, names: Mapping[str, str]) -> Loop:
    preparable = tuple(sorted(names[name] for name in loop.preparable))
    return loop.on_buffers(names).model_copy(update={"name": "", "preparable": preparable})


def _nameless_call(call: LibraryCall, names: Mapping[str, str]) -> LibraryCall:
    def renamed(buffers: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
        return tuple(
            one.model_copy(update={"name": names[one.name], "role": "temporary"}) for one in buffers
        )

    line = call.line.model_copy(
        update={
            "name": "nameless",
            "text": ast.unparse(Renaming(names).visit(ast.parse(call.line.text))),
            "scores": call.line.scores and call.line.scores.renamed(names),
            "makes": tuple(names[name] for name in call.line.makes),
            "uses": tuple(names[name] for name in call.line.uses),
        }
    )
    return LibraryCall(line=line, operands=renamed(call.operands), results=renamed(call.results))
