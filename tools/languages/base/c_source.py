"""What the languages of C's family share: signatures, tunables as macros, allowed includes.

Exported functions and declarations are read with tree-sitter, whose CUDA grammar also reads C++.
Nothing is preprocessed: an exported signature must be spelled out, not made by a macro. Kernels
include headers of ours; a digest of them is here.

Text of ours that is copied into exports may use nothing of Kernelwright's. What stands after the
line `# --- exported from here ---` is what an export holds; the imports above it are listed by the
language's `ExportParts`.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path

import tree_sitter_cuda
from tree_sitter import Language as Grammar
from tree_sitter import Node, Parser, Query, QueryCursor

from kernelwright.tools.candidates.arithmetic import ContractError
from kernelwright.tools.candidates.kernel_source import (
    POINTEES,
    SCALARS,
    TENSOR_MAP,
    KernelFunction,
    KernelSource,
    Parameter,
    canonical,
    declarations,
)
from kernelwright.tools.languages.base.compilers import CompileRefusedError
from kernelwright.tools.types import LanguageName, Setting, Verdict

INCLUDE = Path(__file__).with_name("include")


@cache
def headers_digest() -> str:
    """The text of our preludes; a changed header makes every cached object stale."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(INCLUDE.iterdir()))


_MAX_BYTES = 4 << 20  # a large model has thirty kernels of products, of 30 kB each
# The grammar does not know this attribute and would read the function as a variable.
_CLUSTER_DIMS = re.compile(rb"__cluster_dims__\s*\([^()]*\)")
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b[^\n]*$", re.MULTILINE)
_SPLICE = re.compile(r"\\[ \t]*\r?\n")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
# `%:` is how the language also spells `#`.
_DIRECTIVE = re.compile(r"(?:#|%:|\?\?=)[ \t]*(?:include_next|include|embed|import)\b([^\n]*)")
# Whether a file of the host is there, or newer: no kernel's business either.
_ASKING = re.compile(r"\b__has_(?:include(?:_next)?|embed)\b|\bGCC[ \t]+dependency\b")
_HEADER = re.compile(r'\s*(?:<([^<>"\n]+)>|"([^<>"\n]+)")')


@lru_cache(maxsize=128)  # the coder, the tuner and the judge all read the same few sources
def read_c_source(
    text: str, language: LanguageName, *, qualifier: str, has_grid: bool
) -> KernelSource:
    """What a kernel exports and declares.

    Args:
        text: The source.
        language: The name that the result bears.
        qualifier: What an exported function has beside `extern "C"`, as "__global__"; "" for none.
        has_grid: Whether its launches have a geometry.

    Raises:
        ContractError: When a signature or declaration breaks the contract, or nothing is
            exported.
    """
    data = text.encode("utf-8", errors="replace")
    if len(data) > _MAX_BYTES or b"\0" in data:
        raise ContractError(0, "source", "the kernel is no text of at most four megabytes")
    root = parsed(data)
    found = QueryCursor(_query()).captures(root)
    tunables, requires = declarations(_comments(found.get("comment", [])))
    exported = _exported(found.get("function", []), qualifier)
    functions = tuple(_function(node) for node in exported)
    if not has_grid:
        _refuse_maps(functions)
    if not functions:
        raise _nothing_exported(root)
    _check_names(functions)
    return KernelSource(
        language=language,
        functions=functions,
        tunables=tunables,
        requires=requires,
        has_grid=has_grid,
    )


def parsed(data: bytes) -> Node:
    """The syntax tree of a source, whose places are those of the text."""
    known = _CLUSTER_DIMS.sub(lambda found: b" " * len(found.group()), data)
    return Parser(grammar()).parse(known).root_node


def with_macros(kernel: str, settings: Sequence[Setting]) -> str:
    """The kernel with one `#define` a tunable after its last include.

    Not on the command line: there a tunable called N or T would rewrite the system's headers.
    A `#line` keeps the compiler's line numbers those of the kernel as written.
    """
    if not settings:
        return kernel
    macros = "".join(f"#define {item.name} {_literal(item.value)}\n" for item in settings)
    last = max((found.end() for found in _INCLUDE.finditer(kernel)), default=0)
    head, tail = kernel[:last], kernel[last:].removeprefix("\n")
    line = head.count("\n") + (2 if head else 1)
    return f"{head}{chr(10) if head else ''}{macros}#line {line}\n{tail}"


def _literal(value: int) -> str:
    return str(value) if value >= 0 else f"({value})"


def check_includes(kernel: str, allowed: Collection[str]) -> None:
    """Refuse a kernel that includes what is not on the list.

    Comments are looked at with and without, because a raw string can disguise one as the other.

    Raises:
        CompileRefusedError: Naming the header and those that are allowed.
    """
    spliced = _SPLICE.sub("", kernel)
    for text in (spliced, _COMMENT.sub(" ", spliced)):
        if asking := _ASKING.search(text):
            words = f"a kernel may not ask which files there are ({asking.group()})"
            raise CompileRefusedError(words, verdict=Verdict.COMPILE_ERROR)
        for found in _DIRECTIVE.finditer(text):
            header = _HEADER.match(found.group(1))
            name = (header.group(1) or header.group(2)) if header else found.group(1).strip()
            if name not in allowed:
                known = ", ".join(sorted(allowed))
                words = f"a kernel may not include {name!r}; allowed are {known}"
                raise CompileRefusedError(words, verdict=Verdict.COMPILE_ERROR)


@cache
def grammar() -> Grammar:
    """Of CUDA, which C++ is read by as well."""
    return Grammar(tree_sitter_cuda.language())


def walk(root: Node) -> Iterator[Node]:
    """Every node in the source's order, without recursion (sources nest deeply)."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.children))


@cache
def _query() -> Query:
    """All that is looked for, in one pass that leaves the other nodes where they are."""
    return Query(grammar(), "(comment) @comment (function_definition) @function")


def _in_order(nodes: Sequence[Node]) -> list[Node]:
    return sorted(nodes, key=lambda node: (node.start_byte, -node.end_byte))


def _comments(nodes: Sequence[Node]) -> Iterator[tuple[int, str]]:
    for node in _in_order(nodes):
        yield _line(node), _text(node)


def _exported(nodes: Sequence[Node], qualifier: str) -> Iterator[Node]:
    for node in _in_order(nodes):
        qualified = not qualifier or any(child.type == qualifier for child in node.children)
        if qualified and _is_linked(node):
            yield node


def _is_linked(node: Node) -> bool:
    """Whether it stands in an `extern "C"`."""
    above = node.parent
    while above is not None and above.type != "linkage_specification":
        above = above.parent
    return above is not None


def _function(node: Node) -> KernelFunction:
    declarator = _declarator(node)
    name = declarator.child_by_field_name("declarator")
    returned = node.child_by_field_name("type")
    if name is None or name.type != "identifier":
        raise ContractError(_line(node), "signature", "an exported function has no plain name")
    word = _text(name)
    if any(child.type == "storage_class_specifier" for child in node.children):
        raise ContractError(
            _line(node), "signature", f"{word} is static or inline, so not exported"
        )
    if returned is not None and _text(returned) != "void":
        raise ContractError(_line(node), "signature", f"{word} must return void")
    listed = declarator.child_by_field_name("parameters")
    children = listed.children if listed is not None else []
    parameters = [child for child in children if child.type not in ("(", ")", ",", "comment")]
    if len(parameters) == 1 and _text(parameters[0]) == "void":
        parameters = []
    return KernelFunction(
        name=word, parameters=tuple(_parameter(item, word) for item in parameters), line=_line(node)
    )


def _declarator(node: Node) -> Node:
    declarator = node.child_by_field_name("declarator")
    if declarator is None or declarator.type != "function_declarator":
        raise ContractError(_line(node), "signature", "an exported function must return void")
    return declarator


def _parameter(node: Node, function: str) -> Parameter:
    line, spelled = _line(node), _text(node)
    kind, declarator = node.child_by_field_name("type"), node.child_by_field_name("declarator")
    if node.type != "parameter_declaration" or kind is None or declarator is None:
        raise ContractError(line, "signature", f"{function}: {spelled!r} is not `type name`")
    pointer = declarator.type == "pointer_declarator"
    names = [item for item in walk(declarator) if item.type == "identifier"]
    nested = declarator.child_by_field_name("declarator") if pointer else declarator
    if nested is None or nested.type != "identifier" or len(names) != 1:
        words = f"{function}: {spelled!r} is neither a pointer to a type nor a number"
        raise ContractError(line, "signature", words)
    type_ = canonical(_text(kind))
    if type_ == TENSOR_MAP and not pointer:
        _check_map(node, function, _text(nested))
        return Parameter(name=_text(nested), type=type_, pointer=False)
    known = POINTEES if pointer else SCALARS
    if type_ not in known:
        what = "pointer to" if pointer else "value of"
        words = f"{function}: parameter {_text(nested)} is a {what} {type_!r}; known are "
        raise ContractError(line, "signature", words + ", ".join(sorted(known)))
    constant = "const" in _qualifiers(node)
    return Parameter(name=_text(nested), type=type_, pointer=pointer, constant=constant)


def _qualifiers(node: Node) -> set[str]:
    """Of what a parameter points to, or of its value."""
    return {_text(child) for child in node.children if child.type == "type_qualifier"}


def _check_map(node: Node, function: str, name: str) -> None:
    """A map is read where the launch put it: a copy elsewhere would be one that no copy finds."""
    if not {"const", "__grid_constant__"} <= _qualifiers(node):
        words = (
            f"{function}: parameter {name} must be `const __grid_constant__ {TENSOR_MAP} {name}`"
        )
        raise ContractError(_line(node), "signature", words)


def _refuse_maps(functions: tuple[KernelFunction, ...]) -> None:
    for function in functions:
        for item in function.parameters:
            if item.is_map:
                words = f"{function.name}: parameter {item.name}: this language has no tensor maps"
                raise ContractError(function.line, "signature", words)


def _check_names(functions: tuple[KernelFunction, ...]) -> None:
    seen: set[str] = set()
    for function in functions:
        if function.name in seen:
            raise ContractError(function.line, "exports", f"{function.name} is defined twice")
        seen.add(function.name)


def _nothing_exported(root: Node) -> ContractError:
    """That there is no kernel; where the text cannot be read, that is likely why, and its line."""
    words = 'no `extern "C"` kernel is exported'
    if not root.has_error:
        return ContractError(0, "exports", words)
    broken = next(node for node in walk(root) if node.is_error or node.is_missing)
    what = f"{broken.type!r} is missing" if broken.is_missing else "the source cannot be read"
    return ContractError(_line(broken), "exports", f"{words}: {what} here")


def _line(node: Node) -> int:
    return node.start_point.row + 1


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", errors="replace")


MARKER = "# --- exported from here ---\n"
EXPORT_CACHE = Path(__file__).with_name("export_cache.py")  # what every export holds


def exported(*files: Path) -> str:
    """What exports hold of these files, one after another, without their own imports."""
    texts = (file.read_text(encoding="utf-8").partition(MARKER)[2].strip() for file in files)
    return "\n\n\n".join(texts)


def listed(words: tuple[str, ...]) -> str:
    """A tuple of words as Python, one a line."""
    return "(\n" + "".join(f"    {word!r},\n" for word in words) + ")"
