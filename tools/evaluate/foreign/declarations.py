"""What a foreign file says that it does, read from its syntax trees and never executed.

Comments, dead branches and names count for nothing: only what the entry's forward can reach does.
The reading accuses where code has no honest use in an implementation (it replaces functions of
torch, looks through the process, hands over to the reference); who did the work is measured.

C++ and CUDA in the file are read with a grammar, so that comments and strings say nothing: whether
they compute anything themselves (there must be a loop, or a kernel that is launched) or only call
libraries; whether they need a GPU; and which lower precisions they name. A name is a hint that says
what to measure, no finding. Sources that cannot be seen (built elsewhere, put together at run time)
get the benefit of the doubt; the audit measures them.
Not covered: what is hidden in strings that code executes, which is why executing them is refused.
"""

import ast
import re
from collections.abc import Iterator, Sequence

from kernelwright.tools.evaluate.foreign.syntax import Names, Reach, alive
from kernelwright.tools.evaluate.verify.precision import words_of
from kernelwright.tools.types.value import Value

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


_BUILDS = ("torch.utils.cpp_extension.load_inline", "torch.utils.cpp_extension.load")
_GPU = (
    "triton.", "cupy.", "pycuda.", "numba.cuda", "cuda.", "tilelang.", "cutlass.",
    "torch.cuda._compile_kernel",
)  # fmt: skip
_HOST = ("ctypes.", "cffi.", "numba.", "torch.ops.load_library", "importlib.util.")
_CASTS = ("half", "bfloat16")


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


# Ways to kernels of one's own, by the beginning of the dotted name.
OWN = (
    "torch.utils.cpp_extension.", "triton.", "ctypes.", "cupy.", "numba.", "cffi.", "cuda.",
    "tilelang.", "cutlass.", "pycuda.", "torch.ops.load_library", "torch.cuda._compile_kernel",
    "importlib.util.",
)  # fmt: skip
COMPILERS = ("torch.compile", "torch.jit.", "torch._dynamo.optimize", "torch._inductor.compile")
GRAPHS = ("torch.cuda.CUDAGraph", "torch.cuda.graph", "torch.cuda.make_graphed_callables")
STREAMS = ("torch.cuda.Stream", "torch.cuda.stream", "torch.Stream", "torch.cuda.set_stream")
_STREAM_CALLS = ("cudaStreamCreate", "cuStreamCreate", "getStreamFromPool")
PRYING = (
    "gc.get_objects", "gc.get_referrers", "gc.get_referents", "inspect.currentframe",
    "inspect.stack", "inspect.getouterframes", "inspect.trace", "sys._getframe",
    "sys._current_frames", "sys.modules", "sys.settrace", "sys.setprofile", "exec", "eval",
    "builtins.exec", "builtins.eval", "types.FunctionType", "types.CodeType", "marshal.loads",
)  # fmt: skip
# A caught exception and a generator lead to frames as well, and those to the harness's variables.
_FRAMES = ("tb_frame", "f_back", "f_locals", "f_globals", "gi_frame", "cr_frame", "ag_frame")
# Lines that are asked to persist in the L2 outlive the call, and the flush before the next one.
_L2_CALLS = (
    "cudaDeviceSetLimit", "cuCtxSetLimit", "cudaStreamSetAttribute", "cuStreamSetAttribute",
    "cudaGraphKernelNodeSetAttribute", "cuGraphKernelNodeSetAttribute",
)  # fmt: skip
_L2_WORDS = ("accessPolicyWindow", "AccessPolicyWindow", "PersistingL2", "LIMIT_PERSISTING_L2")
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_SETTINGS = ("torch.backends.", "torch._dynamo.config.", "torch._inductor.config.")
_SECRET_PLACES = ("/proc/", "/dev/shm")


class Declaration(Value):
    """What a foreign file says that it does.

    Attributes:
        forbidden: What no honest implementation does; a sentence each.
        own: Whether the forward reaches kernels of the file's own.
        compiles: PyTorch's compiler that the forward reaches, by name.
        graphs: Whether the forward reaches a CUDA graph.
        falls_back: Whether an exception in the forward leads on to other code.
        streams: Whether the file makes streams of its own.
        for_gpu: Whether the kernels that the forward reaches are for a GPU, all of them.
        words: Words in what the forward reaches that may name a precision.
    """

    forbidden: tuple[str, ...] = ()
    own: bool = False
    compiles: str = ""
    graphs: bool = False
    falls_back: bool = False
    streams: bool = False
    for_gpu: bool = False
    words: frozenset[str] = frozenset()

    def on(self, device: str) -> "Declaration":
        """The findings for a device: kernels for a GPU are none where there is no GPU."""
        if device == "cuda" or not self.for_gpu:
            return self
        return self.model_copy(update={"own": False, "falls_back": False})

    @property
    def builds_late(self) -> bool:
        """Whether a first call may take a compiler's time."""
        return self.own or self.compiles != ""


def read(
    source: str, entry: str, reference: str = "", reference_entry: str = "Model"
) -> Declaration:
    """Read a foreign file.

    Args:
        source: its text.
        entry: the class that is constructed.
        reference: the text of the task's file.
        reference_entry: the class in that.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return Declaration()  # the guest will say so when it runs the file
    names = Names(tree)
    reach = Reach(tree, entry)
    reached = [node for part in reach.parts for node in alive(part)]
    dotted = [names.dotted(node) for node in reached]
    compilers = [name for name in dotted if name.startswith(COMPILERS)]
    own = any(name.startswith(OWN) for name in dotted) and computes(tree, reached, names)
    return Declaration(
        forbidden=tuple(
            dict.fromkeys(
                [
                    *_prying(tree, names),
                    *_patches(tree, names),
                    *reach.handing_over(reference, reference_entry),
                ]
            )
        ),
        own=own,
        compiles=compilers[0] if compilers else "",
        graphs=any(name.startswith(GRAPHS) for name in dotted),
        streams=any(name.startswith(STREAMS) for name in dotted) or names.mentions(_STREAM_CALLS),
        for_gpu=for_gpu(reached, names),
        words=named_words(reached, names),
        falls_back=own and any(_falls_back(node) for part in reach.called for node in alive(part)),
    )


def _prying(tree: ast.Module, names: Names) -> list[str]:
    """Looking at frames, objects, other processes' files, or executing hidden text."""
    found = []
    for node in alive(tree):
        name = names.dotted(node)
        last = node.attr if isinstance(node, ast.Attribute) else name.rpartition(".")[2]
        if name in PRYING or last in _FRAMES:
            found.append(f"it uses {name or last}, which no implementation of a forward needs")
        if last in _L2_CALLS:
            found.append(f"it calls {last}, which can keep its data in the L2 between calls")
        said = node.value if isinstance(node, ast.Constant) else None
        if isinstance(said, str) and said.startswith(_SECRET_PLACES):
            found.append(f"it names {said[:40]!r}, a place outside of its own memory")
        if isinstance(said, str) and (word := _without_comments(said, _L2_WORDS)):
            found.append(f"it names {word}, which keeps its data in the L2 between calls")
    return found


def _without_comments(text: str, words: tuple[str, ...]) -> str:
    """The first of the words that a native source says outside of its comments."""
    code = _COMMENTS.sub(" ", text)
    return next((word for word in words if word in code), "")


def _patches(tree: ast.Module, names: Names) -> list[str]:
    """Assignments to what belongs to an imported module."""
    found = []
    for node in alive(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign):
            targets = list(node.targets)
        elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
            targets = [node.target]
        elif isinstance(node, ast.Delete):
            targets = list(node.targets)
        elif isinstance(node, ast.Call) and names.dotted(node.func) in ("setattr", "delattr"):
            targets = node.args[:1]
            if targets and names.imported(targets[0]) and not _setting(names.dotted(targets[0])):
                found.append(f"it replaces a part of {names.dotted(targets[0])}")
            continue
        for target in targets:
            name = names.dotted(target)
            if isinstance(target, ast.Attribute) and names.imported(target) and not _setting(name):
                found.append(f"it replaces {name}")
    return found


def _setting(name: str) -> bool:
    return f"{name}.".startswith(_SETTINGS)


def _falls_back(node: ast.AST) -> bool:
    """A try whose handler goes on instead of raising."""
    if not isinstance(node, ast.Try):
        return False
    return any(not isinstance(handler.body[-1], ast.Raise) for handler in node.handlers)
