"""Reads a kernel's exported functions and declarations from its source, with tree-sitter.

The CUDA grammar also reads C++. Nothing is preprocessed: an exported signature must be spelled
out, not made by a macro.
"""

import re
from collections.abc import Iterator
from functools import cache, lru_cache

import tree_sitter_cuda
from tree_sitter import Language as Grammar
from tree_sitter import Node, Parser

from tools.candidates.comments import declarations
from tools.candidates.ctypes_table import POINTEES, SCALARS, canonical
from tools.candidates.errors import ContractError
from tools.candidates.source import KernelFunction, KernelSource, Parameter
from tools.nouns import Language

_MAX_BYTES = 1 << 20
# The grammar does not know this attribute and would read the function as a variable.
_CLUSTER_DIMS = re.compile(rb"__cluster_dims__\s*\([^()]*\)")


@lru_cache(maxsize=128)  # the coder, the tuner and the judge all read the same few sources
def parse_kernel(text: str, language: Language) -> KernelSource:
    """What a kernel exports and declares.

    Exported are `extern "C" __global__ void` functions in CUDA and `extern "C" void` ones in C++.

    Raises:
        ContractError: When a signature or declaration breaks the contract, or nothing is
            exported.
    """
    data = text.encode("utf-8", errors="replace")
    if len(data) > _MAX_BYTES or b"\0" in data:
        raise ContractError(0, "source", "the kernel is no text of at most a megabyte")
    data = _CLUSTER_DIMS.sub(lambda found: b" " * len(found.group()), data)
    root = Parser(_grammar()).parse(data).root_node
    tunables, requires = declarations(_comments(root))
    functions = tuple(_function(node) for node in _exported(root, language))
    _check_names(functions)
    return KernelSource(
        language=language, functions=functions, tunables=tunables, requires=requires
    )


@cache
def _grammar() -> Grammar:
    return Grammar(tree_sitter_cuda.language())


def _walk(root: Node) -> Iterator[Node]:
    """Every node in the source's order, without recursion (sources nest deeply)."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.children))


def _comments(root: Node) -> Iterator[tuple[int, str]]:
    for node in _walk(root):
        if node.type == "comment":
            yield _line(node), _text(node)


def _exported(root: Node, language: Language) -> Iterator[Node]:
    for linkage in _walk(root):
        if linkage.type != "linkage_specification":
            continue
        for node in _walk(linkage):
            if node.type == "function_definition":
                kernel = any(child.type == "__global__" for child in node.children)
                if kernel or language is Language.CPP:
                    yield node


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
    names = [item for item in _walk(declarator) if item.type == "identifier"]
    nested = declarator.child_by_field_name("declarator") if pointer else declarator
    if nested is None or nested.type != "identifier" or len(names) != 1:
        words = f"{function}: {spelled!r} is neither a pointer to a type nor a number"
        raise ContractError(line, "signature", words)
    type_ = canonical(_text(kind))
    known = POINTEES if pointer else SCALARS
    if type_ not in known:
        what = "pointer to" if pointer else "value of"
        words = f"{function}: parameter {_text(nested)} is a {what} {type_!r}; known are "
        raise ContractError(line, "signature", words + ", ".join(sorted(known)))
    return Parameter(name=_text(nested), type=type_, pointer=pointer)


def _check_names(functions: tuple[KernelFunction, ...]) -> None:
    if not functions:
        raise ContractError(0, "exports", 'no `extern "C"` kernel is exported')
    seen: set[str] = set()
    for function in functions:
        if function.name in seen:
            raise ContractError(function.line, "exports", f"{function.name} is defined twice")
        seen.add(function.name)


def _line(node: Node) -> int:
    return node.start_point.row + 1


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", errors="replace")
