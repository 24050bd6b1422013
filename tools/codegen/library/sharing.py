"""What keeps a candidate of many loops small: shared kernels and fixed tunables.

Networks repeat their layers, so loops repeat: equal ones under equal strategies are emitted once
and launched on other buffers. A file has a bounded number of tunables; beyond that the loops
with the least time have theirs fixed at the first valid values.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping

from kernelwright.tools.candidates import complete_settings
from kernelwright.tools.codegen.ir import Access, Buffer, Emitted, LibraryCall, Loop, ProgramNode
from kernelwright.tools.languages import parse_kernel
from kernelwright.tools.types import LanguageName

# The contract allows 64 in a file; a search over more than this would be blind anyway.
MOST_TUNABLES = 48


def buffers_of(node: ProgramNode) -> tuple[str, ...]:
    """The buffers of a node in the order in which it names them."""
    if isinstance(node, LibraryCall):
        names = [buffer.name for buffer in (*node.operands, *node.results)]
    else:
        names = [stmt.access.buffer for stmt in node.body if stmt.access is not None]
        names += [store.access.buffer for store in node.stores]
    return tuple(dict.fromkeys(names))


def shape_of(node: ProgramNode) -> ProgramNode:
    """The node with nameless buffers: equal for nodes that one kernel can serve."""
    names = {name: f"b{at}" for at, name in enumerate(buffers_of(node))}
    return _nameless_call(node, names) if isinstance(node, LibraryCall) else _nameless(node, names)


def _nameless(loop: Loop, names: Mapping[str, str]) -> Loop:
    def renamed(access: Access) -> Access:
        return access.model_copy(update={"buffer": names[access.buffer]})

    body = tuple(
        stmt.model_copy(update={"access": renamed(stmt.access)}) if stmt.access else stmt
        for stmt in loop.body
    )
    stores = tuple(s.model_copy(update={"access": renamed(s.access)}) for s in loop.stores)
    return loop.model_copy(update={"name": "", "body": body, "stores": stores})


def _nameless_call(call: LibraryCall, names: Mapping[str, str]) -> LibraryCall:
    def renamed(buffers: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
        return tuple(
            one.model_copy(update={"name": names[one.name], "role": "temporary"}) for one in buffers
        )

    line = call.line.model_copy(
        update={
            "name": "nameless",
            "text": ast.unparse(_Renaming(names).visit(ast.parse(call.line.text))),
            "makes": tuple(names[name] for name in call.line.makes),
            "uses": tuple(names[name] for name in call.line.uses),
        }
    )
    return LibraryCall(line=line, operands=renamed(call.operands), results=renamed(call.results))


def on_other_buffers(
    lines: tuple[str, ...], first: ProgramNode, other: ProgramNode
) -> tuple[str, ...]:
    """The plan lines of one node, for another of equal shape."""
    names = dict(zip(buffers_of(first), buffers_of(other), strict=True))
    renaming = _Renaming(names)
    tree = renaming.visit(ast.parse("\n".join(lines)))
    return tuple(ast.unparse(tree).splitlines())


class _Renaming(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(self._names.get(node.id, node.id), node.ctx)


def within_budget(
    emitted: Mapping[str, Emitted], order: tuple[str, ...], header: str, language: LanguageName
) -> dict[str, Emitted]:
    """The emitted loops with at most `MOST_TUNABLES` tunables among them.

    `order` names the loops that matter most first: they keep theirs.
    """
    result, left = dict(emitted), MOST_TUNABLES
    for name in order:
        count = len(_tunables(emitted[name].source))
        if count > left:
            result[name] = fixed(emitted[name], header, language)
        else:
            left -= count
    return result


def fixed(emitted: Emitted, header: str, language: LanguageName) -> Emitted:
    """The same kernel with every tunable at its first valid value."""
    source = parse_kernel(f"{header}\n{emitted.source}", language)
    values = {setting.name: str(setting.value) for setting in complete_settings(source)}
    lines = emitted.source.splitlines()
    kept = [line for line in lines if not re.match(r"\s*// (tune|require):", line)]
    return Emitted(
        source=_valued("\n".join(kept), values),
        plan=tuple(_valued(line, values) for line in emitted.plan),
    )


def _valued(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda word: values.get(word[0], word[0]), text)


def _tunables(source: str) -> list[str]:
    return re.findall(r"^\s*// tune: (\w+)", source, flags=re.MULTILINE)
