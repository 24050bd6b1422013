"""A large source as several programs that are compiled at once, and their cubins as one object.

NVRTC works on the kernels of a program one after another: fifty of them, as a network has, take
twenty seconds of one processor. So each program has the bodies of some kernels, and of the others
the declarations alone: everything else, line numbers too, is as it was. Kernels that could see each
other (a variable of the file's, a static one, a macro that a body defines) stay together, and so
does what is small.
"""

import io
import json
import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tree_sitter import Node, Query, QueryCursor

from kernelwright.tools.candidates.arithmetic import ContractError
from kernelwright.tools.languages.base.c_source import grammar, parsed, read_c_source

LARGE_BYTES = 100_000  # of a source; below, it takes NVRTC some seconds at most
MOST_PARTS = 8
_INDEX, _ZIP = "kernels.json", b"PK"
_QUALIFIER = "__global__"

# What holds others of these: what counts is what stands in it.
_HOLDERS = frozenset({
    "namespace_definition", "linkage_specification", "declaration_list", "template_declaration",
})  # fmt: skip
# What may stand outside of functions and holds nothing while a program runs.
_STATELESS = frozenset({
    "comment", ";", "preproc_include", "preproc_def", "preproc_call", "preproc_function_def",
    "struct_specifier", "class_specifier", "union_specifier", "enum_specifier", "type_definition",
    "static_assert_declaration", "using_declaration", "alias_declaration", "function_definition",
    "namespace_alias_definition",
    "namespace", "namespace_identifier", "nested_namespace_specifier", "inline", "extern",
    "string_literal", "template", "template_parameter_list", "{", "}",
})  # fmt: skip
_COMMENTS = "(comment) @comment"
# Constants of functions and types are no state.
_STATIC = re.compile(rb"\bstatic\b(?!\s+constexpr\b)")
# A directive whose effect goes on behind the body that it stands in.
_LASTING = re.compile(rb"(?:#|%:)\s*(?:define|undef|include|line|pragma\s+\w+_macro)\b")


class Part(NamedTuple):
    """One program, and the kernels that it holds."""

    text: str
    kernels: tuple[str, ...]


def parted(text: str) -> tuple[Part, ...]:
    """The programs of a source; none where it is small, or its kernels belong together."""
    data = text.encode()
    if len(data) < LARGE_BYTES:
        return ()
    root = parsed(data)
    nodes = list(_outside(root))
    kernels = [kernel for node in nodes if (kernel := _kernel(node)) is not None]
    if not all(map(_is_stateless, nodes)) or not _are_apart(root, data, kernels):
        return ()
    groups = _grouped([(kernel.body.start_byte, kernel.body.end_byte) for kernel in kernels])
    return tuple(
        Part(
            text=_with_bodies(data, [kernel.body for kernel in kernels], group).decode(),
            kernels=tuple(kernels[at].name for at in group),
        )
        for group in groups
    )


def _outside(node: Node) -> Iterator[Node]:
    """What stands outside of functions, in namespaces, linkage specifications and templates too."""
    for child in node.children:
        if child.type in _HOLDERS:
            yield from _outside(child)
        else:
            yield child


def _is_stateless(node: Node) -> bool:
    return node.type in _STATELESS


class _Kernel(NamedTuple):
    name: str
    body: Node


def _are_apart(root: Node, data: bytes, kernels: Sequence[_Kernel]) -> bool:
    """Whether the source was read whole, and no kernel's body holds what another one needs."""
    bodies = (data[kernel.body.start_byte : kernel.body.end_byte] for kernel in kernels)
    return (
        not root.has_error
        and _STATIC.search(_without_comments(root, data)) is None
        and not any(map(_LASTING.search, bodies))
        and [kernel.name for kernel in kernels] == _exported(data)
    )


def _without_comments(root: Node, data: bytes) -> bytes:
    found = QueryCursor(Query(grammar(), _COMMENTS)).captures(root).get("comment", [])
    pieces, at = list[bytes](), 0
    for node in sorted(found, key=lambda node: node.start_byte):
        pieces += [data[at : node.start_byte], b" "]
        at = node.end_byte
    return b"".join([*pieces, data[at:]])


def _exported(data: bytes) -> list[str]:
    """The kernels that launches can name; none where the source breaks the contract."""
    try:
        source = read_c_source(data.decode(), "cuda", qualifier=_QUALIFIER, has_grid=True)
    except ContractError:
        return []
    return [function.name for function in source.functions]


def _kernel(node: Node) -> _Kernel | None:
    """A kernel; None of anything else, a device function of C linkage among it."""
    if node.type != "function_definition" or all(c.type != _QUALIFIER for c in node.children):
        return None
    body, declarator = (node.child_by_field_name(field) for field in ("body", "declarator"))
    name = declarator.child_by_field_name("declarator") if declarator is not None else None
    if body is None or name is None or name.text is None:
        return None
    return _Kernel(name.text.decode(), body)


def _grouped(spans: Sequence[tuple[int, int]]) -> list[range]:
    """Neighbouring kernels whose texts together are about as long as every other group's."""
    share = sum(end - start for start, end in spans) / MOST_PARTS
    groups: list[range] = []
    first = length = 0
    for at, (start, end) in enumerate(spans, start=1):
        length += end - start
        if length >= share or at == len(spans):
            groups.append(range(first, at))
            first, length = at, 0
    return groups


def _with_bodies(data: bytes, bodies: Sequence[Node], kept: range) -> bytes:
    """The source with these kernels, and declarations of the others on as many lines."""
    pieces, at = list[bytes](), 0
    for number, body in enumerate(bodies):
        if number not in kept:
            lines = data.count(b"\n", body.start_byte, body.end_byte)
            pieces += [data[at : body.start_byte], b";", b"\n" * lines]
            at = body.end_byte
    return b"".join([*pieces, data[at:]])


class Cubin(NamedTuple):
    """What one program was compiled to, and its kernels; none where it is the only one."""

    code: bytes
    kernels: tuple[str, ...] = ()


def packed(cubins: Sequence[Cubin]) -> bytes:
    """Cubins as one object, which has the same bytes whenever it is made."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as folder:
        names = [f"{number}.cubin" for number in range(len(cubins))]
        index = {name: cubin.kernels for name, cubin in zip(names, cubins, strict=True)}
        folder.writestr(zipfile.ZipInfo(_INDEX), json.dumps(index))
        for name, cubin in zip(names, cubins, strict=True):
            folder.writestr(zipfile.ZipInfo(name), cubin.code)
    return made.getvalue()


def cubins_of(artifact: Path) -> list[Cubin]:
    """The cubins of an object."""
    data = artifact.read_bytes()
    if not data.startswith(_ZIP):
        return [Cubin(data)]
    with zipfile.ZipFile(io.BytesIO(data)) as folder:
        index = json.loads(folder.read(_INDEX))
        return [Cubin(folder.read(name), tuple(held)) for name, held in index.items()]
