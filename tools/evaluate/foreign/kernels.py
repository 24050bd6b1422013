"""What the kernels of a foreign file are for, read from its syntax: a GPU, lower precisions.

Only what the forward reaches counts. A name is a hint that says what to measure, no finding.
"""

import ast
from collections.abc import Iterator, Sequence

from kernelwright.tools.evaluate.foreign.syntax import Names
from kernelwright.tools.evaluate.verify.precision import words_of

_BUILDS = ("torch.utils.cpp_extension.load_inline", "torch.utils.cpp_extension.load")
_GPU = (
    "triton.", "cupy.", "pycuda.", "numba.cuda", "cuda.", "tilelang.", "cutlass.",
    "torch.cuda._compile_kernel",
)  # fmt: skip
_HOST = ("ctypes.", "cffi.", "numba.", "torch.ops.load_library", "importlib.util.")
_CASTS = ("half", "bfloat16")
_LEAST_CHARACTERS = 40


def for_gpu(reached: Sequence[ast.AST], names: Names) -> bool:
    """Whether every way to kernels of its own leads to a GPU, so that none can run elsewhere."""
    dotted = [names.dotted(node) for node in reached]
    calls = [n for n in reached if isinstance(n, ast.Call) and names.dotted(n.func) in _BUILDS]
    on_gpu = [_of_cuda(call) for call in calls]
    on_gpu += [True for name in dotted if name.startswith(_GPU)]
    on_host = any(name.startswith(_HOST) and not name.startswith(_GPU) for name in dotted)
    return bool(on_gpu) and all(on_gpu) and not on_host


def named_words(reached: Sequence[ast.AST], names: Names) -> frozenset[str]:
    """Words that may name a precision: torch's types and casts, and what native sources say."""
    found: set[str] = set()
    for node in reached:
        found |= set(_python_words(node, names))
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            native = len(node.value) >= _LEAST_CHARACTERS and "(" in node.value
            found |= words_of(node.value) if native else set()
    return frozenset(found)


def _python_words(node: ast.AST, names: Names) -> Iterator[str]:
    if isinstance(node, (ast.Attribute, ast.Name)):
        parts = names.dotted(node).split(".")
        if parts[0] == "torch" and parts[-1] == "autocast":
            yield "float16"
        elif parts[0] == "torch" and len(parts) > 1:
            yield parts[-1]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
        yield from {node.func.attr}.intersection(_CASTS)


def _of_cuda(call: ast.Call) -> bool:
    """Whether an extension is built from CUDA sources, which takes nvcc and a GPU."""
    for keyword in call.keywords:
        empty = isinstance(keyword.value, (ast.Constant, ast.List)) and not _text(keyword.value)
        if keyword.arg == "cuda_sources" and not empty:
            return True
        if keyword.arg == "with_cuda" and getattr(keyword.value, "value", None) is True:
            return True
    return any(
        isinstance(node, ast.Constant) and str(node.value).endswith(".cu")
        for part in (*call.args, *call.keywords)
        for node in ast.walk(part)
    )


def _text(node: ast.expr) -> str:
    """All the words of a constant or of a list of them; "x" for what is not one."""
    if isinstance(node, ast.List):
        return "".join(_text(item) for item in node.elts)
    if isinstance(node, ast.Constant):
        return node.value.strip() if isinstance(node.value, str) else ""
    return "x"
