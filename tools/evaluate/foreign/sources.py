"""Whether C++ or CUDA in a foreign file computes anything itself, or only calls libraries.

Read with a grammar, so that comments and strings say nothing: there must be a loop or a kernel
that is launched. Sources that cannot be seen (built elsewhere, put together at run time) get the
benefit of the doubt; the audit measures them.
"""

import ast
from collections.abc import Sequence

from kernelwright.tools.evaluate.foreign.syntax import Names

_INLINE = "torch.utils.cpp_extension.load_inline"
_WORK = {"for_statement", "while_statement", "do_statement", "for_range_loop"}
_LAUNCH = "kernel_call_syntax"
_LEAST_CHARACTERS = 40


def computes(tree: ast.Module, reached: Sequence[ast.AST], names: Names) -> bool:
    """Whether any native source that is reached does work of its own."""
    calls = [n for n in reached if isinstance(n, ast.Call) and names.dotted(n.func) == _INLINE]
    if not calls:
        return True
    texts = [node.value for node in ast.walk(tree) if _is_text(node)]  # type: ignore[attr-defined]
    native = [text for text in texts if len(text) >= _LEAST_CHARACTERS and "(" in text]
    return not native or any(_works(text) for text in native)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _works(source: str) -> bool:
    import tree_sitter_cuda
    from tree_sitter import Language, Parser

    parser = Parser(Language(tree_sitter_cuda.language()))
    stack = [parser.parse(source.encode()).root_node]
    while stack:
        node = stack.pop()
        if node.type in _WORK or node.type == _LAUNCH:
            return True
        stack += node.children
    return False
