"""A large source as several programs that are compiled at once, and their cubins as one object.

NVRTC works on the kernels of a program one after another: fifty of them, as a network has, take
twenty seconds of one processor. So each program has the bodies of some kernels, and of the others
the declarations alone: everything else, line numbers too, is as it was. Kernels that could see each
other (a variable of the file's, a static one) stay together, and so does what is small.
"""

import io
import json
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tree_sitter import Node

from kernelwright.tools.languages.base.c_source import parsed

LARGE_BYTES = 100_000  # of a source; below, it takes NVRTC some seconds at most
MOST_PARTS = 8
_INDEX, _ZIP = "kernels.json", b"PK"

# What may stand outside of functions and holds nothing while a program runs.
_STATELESS = frozenset({
    "comment", ";", "preproc_include", "preproc_def", "preproc_call", "preproc_function_def",
    "struct_specifier", "static_assert_declaration", "using_declaration", "alias_declaration",
    "template_declaration", "function_definition", "linkage_specification", "namespace_definition",
    "namespace_alias_definition",
    "{", "}",
})  # fmt: skip


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
    if root.has_error or not all(map(_is_stateless, nodes)) or b" static " in _spaced(data):
        return ()
    groups = _grouped([(kernel.body.start_byte, kernel.body.end_byte) for kernel in kernels])
    return tuple(
        Part(
            text=_with_bodies(data, [kernel.body for kernel in kernels], group).decode(),
            kernels=tuple(kernels[at].name for at in group),
        )
        for group in groups
    )


def _spaced(data: bytes) -> bytes:
    """For finding words; constants of functions are no state."""
    return b" ".join(data.split()).replace(b"static constexpr", b"constexpr")


def _outside(node: Node) -> Iterator[Node]:
    """What stands outside of functions, in namespaces too."""
    for child in node.children:
        yield child
        body = child.child_by_field_name("body")
        if child.type == "namespace_definition" and body is not None:
            yield from _outside(body)


def _is_stateless(node: Node) -> bool:
    return node.type in _STATELESS


class _Kernel(NamedTuple):
    name: str
    body: Node


def _kernel(node: Node) -> _Kernel | None:
    """An exported kernel; None of anything else."""
    held = node.child_by_field_name("body") if node.type == "linkage_specification" else None
    if held is None or held.type != "function_definition":
        return None
    body, declarator = (held.child_by_field_name(field) for field in ("body", "declarator"))
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
