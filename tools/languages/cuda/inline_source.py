"""The CUDA of a Python file that compiles its own (`load_inline`), as a bare kernel.

Answers to KernelBench hold their kernels as text, with host code that allocates and launches. Kept
of that text is what runs on the device: kernels, device functions, types, constants and macros. The
launch's block and shared memory are read off the host code where they are numbers, and said in a
`// launch:` line; everything else about it is inferred as for any bare kernel (`launches`).

A kernel that is a template over one type is taken for float. Not here: text that is put together
when the file runs, what host code computes by the library between launches.
"""

import ast
import re
from collections.abc import Iterator, Mapping

from tree_sitter import Node, Parser

from kernelwright.tools.candidates.arithmetic import Expression
from kernelwright.tools.languages.base.c_source import grammar, walk

# Headers of the device; the others are the host's.
_HEADERS = re.compile(r"[<\"](?:cuda_(?:fp16|bf16|fp8)\.h|mma\.h|cooperative_groups\S*)[>\"]")
_HOST = re.compile(r"\b(?:torch|at|c10|pybind11|std)::|\bcuda[A-Z]\w*\s*\(|<<<|PYBIND11_MODULE")
_KEPT = frozenset({
    "preproc_def", "preproc_function_def", "struct_specifier", "class_specifier", "declaration",
    "type_definition", "alias_declaration", "enum_specifier", "comment", "namespace_definition",
})  # fmt: skip
_AROUND = frozenset({"linkage_specification", "preproc_if", "preproc_ifdef"})
_ONE_TYPE = re.compile(r"template\s*<\s*(?:typename|class)\s+(\w+)\s*>\s*")


def device_code(answer: str) -> str:
    """The device's code of the kernels that a Python file holds; "" where there is none.

    Raises:
        SyntaxError: The file is no Python.
    """
    sources = [text for text in _texts(answer) if "__global__" in text]
    kept = [part for text in sources for part in _device_parts(_tree(text), text)]
    if not any("__global__" in part for part in kept):
        return ""
    return "\n".join(dict.fromkeys([*_launch_lines(sources, kept), *kept])) + "\n"


def _texts(answer: str) -> Iterator[str]:
    """Texts that stand in the file as they are, not as parts of others."""
    tree = ast.parse(answer)
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
             for part in node.values}  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


def _tree(text: str) -> Node:
    return Parser(grammar()).parse(text.encode()).root_node


def _words(node: Node) -> str:
    return (node.text or b"").decode()


def _device_parts(root: Node, text: str) -> Iterator[str]:
    for node in root.children:
        words = _words(node)
        if node.type == "preproc_include":
            if _HEADERS.search(words):
                yield words.strip()
        elif node.type == "template_declaration":
            yield from _template(node)
        elif node.type == "function_definition":
            if _is_of_device(node):
                yield words
        elif node.type in _AROUND:
            yield from _within(node, text)
        elif node.type in _KEPT and not _HOST.search(words) and not _declares_host(node):
            yield words.strip() + (";" if node.type.endswith("_specifier") else "")


def _within(node: Node, text: str) -> Iterator[str]:
    """What runs on the device of a block of exports, or of what is compiled on a condition."""
    body = node.child_by_field_name("body")
    if node.type != "linkage_specification":
        words = _words(node)  # both branches, with the condition: as a whole or not at all
        if "__global__" in words and not _HOST.search(words):
            yield words.strip()
    elif body is not None and body.type == "declaration_list":
        yield from (f'extern "C" {part}' if _is_kernel(part) else part
                    for part in _device_parts(body, text))  # fmt: skip
    elif "__global__" in _words(node) or "__device__" in _words(node):
        yield _words(node)


def _is_kernel(words: str) -> bool:
    return words.startswith("__global__")


def _template(node: Node) -> Iterator[str]:
    words, functions = _words(node), [c for c in node.children if c.type == "function_definition"]
    if not functions:
        if not _HOST.search(words):
            yield words + ";"
        return
    if not _is_of_device(functions[0]):
        return
    one = _ONE_TYPE.match(words)
    if "__global__" in _specifiers(functions[0]) and one:
        yield re.sub(rf"\b{one[1]}\b", "float", words[one.end() :])
    else:
        yield words


def _specifiers(function: Node) -> set[str]:
    return {child.type for child in function.children}


def _is_of_device(function: Node) -> bool:
    return bool(_specifiers(function) & {"__device__", "__global__"})


def _declares_host(node: Node) -> bool:
    """Whether a declaration is a host function's."""
    if node.type != "declaration":
        return False
    return any(child.type == "function_declarator" for child in node.children) and not (
        _is_of_device(node)
    )


def _launch_lines(sources: list[str], kept: list[str]) -> list[str]:
    """What host code says in numbers of the one launch; nothing where there are several."""
    calls = [(call, text) for text in sources for call in _launches(_tree(text))]
    if len(calls) != 1 or any("// launch:" in text for text in sources):
        return []
    call, text = calls[0]
    callee = call.parent and re.match(r"\w+", _words(call.parent))
    if not callee or not any(re.search(rf"\b{callee[0]}\s*\(", part) for part in kept):
        return []
    given = [child for child in call.children if child.is_named]
    known = _numbers(text)
    said = [
        f"{name}={value}"
        for name, node in zip(("block", "shared"), given[1:3], strict=False)
        if (value := _value(_words(node), known)) not in ("", "0")
    ]
    return [f"// launch: {', '.join(said)}"] if said else []


def _launches(root: Node) -> Iterator[Node]:
    return (node for node in walk(root) if node.type == "kernel_call_syntax")


_NAMED = re.compile(
    r"(?:#define\s+(\w+)\s+(\d+)\s*$)|(?:\b(\w+)\s*=\s*([^;{}]+);)|(?:\bdim3\s+(\w+)\s*\(([^;]*)\)\s*;)",
    re.MULTILINE,
)


def _numbers(text: str) -> dict[str, str]:
    """What names are set to, of those that are set to one thing alone."""
    found: dict[str, set[str]] = {}
    for match in _NAMED.finditer(text):
        define, number, name, value, dims, sizes = match.groups()
        given = number or value or f"dim3({sizes})"
        found.setdefault(define or name or dims, set()).add(given)
    return {name: values.pop() for name, values in found.items() if len(values) == 1}


_SIZES = {"float": 4, "double": 8, "int": 4, "half": 2, "__half": 2}
_DEEP = 8


def _value(words: str, known: Mapping[str, str], depth: int = 0) -> str:
    """An expression of numbers as a plan writes it; "" for any other."""
    dims = re.fullmatch(r"\s*dim3\s*\((.*)\)\s*", words, re.DOTALL)
    if dims:
        sizes = [_value(part, known, depth) for part in dims[1].split(",")]
        return f"({', '.join(sizes)}{',' * (len(sizes) == 1)})" if all(sizes) else ""
    if words.strip() in known and depth < _DEEP:
        return _value(known[words.strip()], known, depth + 1)
    try:
        return str(_number(words, known, depth))
    except (ValueError, ZeroDivisionError, OverflowError):
        return ""


def _number(words: str, known: Mapping[str, str], depth: int) -> int:
    if depth >= _DEEP:
        raise ValueError("names stand for each other")
    sized = re.sub(r"sizeof\s*\(\s*(\w+)\s*\)", lambda m: str(_SIZES.get(m[1], m[0])), words)
    expression = Expression(re.sub("/+", "//", sized), frozenset(known), 0)
    values = {name: _number(known[name], known, depth + 1) for name in expression.names}
    return expression.value(values)
