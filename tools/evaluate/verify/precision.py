"""The precisions that a candidate's source names, and those that PyTorch's convolutions may use.

The source is read as far as its tokens tell. Comments, switched-off code, included names, text
outside of assembly, and variables that nobody reads do not count. What a preprocessor or a clever
name hides is found by measuring: see `measured_precision`.

PyTorch lets convolutions of single precision be computed in TF32 unless told otherwise, and the
library decides by shape and layout whether it does. On an H200 a convolution of 8 channels was
computed in fp32 as written, and in TF32 with channels last, which is also what torch.compile makes
of it: 1,200 times the error, to four digits the same for both. So such a task has two answers that
are PyTorch's own, and a candidate no further from the truth than the coarser one does what its
settings allow; it is labelled `tf32`. Whoever wants fp32 switches `torch.backends.cudnn.allow_tf32`
off in the file, a setting that torch.compile's library calls go by as well.
"""

import copy
import re
from collections.abc import Collection, Sequence

import torch
from torch import Tensor, nn

from kernelwright.tools.evaluate.verify.truth import Argument
from kernelwright.tools.languages import language_of
from kernelwright.tools.tasks import Reference
from kernelwright.tools.tasks.graph.convert import allows_tf32
from kernelwright.tools.types import Candidate, DType, Graph, Task, TensorSpec

COARSER = "tf32"
AS_TURNED = (
    "; as close to the truth as PyTorch's own result with channels last, where the library "
    "computes convolutions in TF32, as its settings allow"
)
_LAYOUTS = {4: torch.channels_last, 5: torch.channels_last_3d}


def may_be_coarser(task: Task, device: str) -> bool:
    """Whether the library may compute a convolution of this task in TF32."""
    return device == "cuda" and allows_tf32() and DType.FLOAT32 in convolved(task)


def convolved(task: Task) -> set[DType]:
    """The types of what the library's convolutions make in a task."""
    nodes = [n for n in task.graph.nodes if n.op.removeprefix("aten.").startswith("convolution")]
    return {spec.dtype for node in nodes for spec in node.out}


def with_channels_last(
    reference: Reference, task: Task, arguments: Sequence[Argument]
) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Outputs and buffers of a copy of the module whose tensors lie so; the module stays as it is.

    Raises:
        torch.OutOfMemoryError: There is no room for the copies.
    """
    module = _laid_out(copy.deepcopy(reference.module))
    other = Reference(module, task, reference.device)
    outputs = other.forward([_turned(one) if isinstance(one, Tensor) else one for one in arguments])
    return outputs, dict(other.weights())


def _laid_out(module: nn.Module) -> nn.Module:
    for tensor in (*module.parameters(), *module.buffers()):
        tensor.data = _turned(tensor.data)
    return module


def _turned(tensor: Tensor) -> Tensor:
    layout = _LAYOUTS.get(tensor.dim())
    return tensor if layout is None else tensor.contiguous(memory_format=layout)


_SHORT = {
    DType.FLOAT64: "fp64",
    DType.FLOAT32: "fp32",
    DType.BFLOAT16: "bf16",
    DType.FLOAT16: "fp16",
    DType.FLOAT8_E4M3FN: "fp8",
}
# From the finest to the coarsest; bits of a significand, the hidden one counted.
SIGNIFICANT_BITS = {"fp64": 53, "fp32": 24, "tf32": 11, "fp16": 11, "bf16": 8, "fp8": 4}
_ORDER = tuple(SIGNIFICANT_BITS)
_TOKENS = {
    "tf32": r"tf32|__float_to_tf32|to_tf32",
    "fp16": r"_*half[234]?|_*half2?_raw|_Float16|__fp16|float16(_t)?|f16(x2)?|fp16"
    r"|__(float2?|double)2half\w*|__halves2half2|float_to_half|h(add|mul|fma|sub|exp|rcp)2?"
    r"|__h(add|mul|fma|sub)2?\w*",
    "bf16": r"_*(nv_)?bfloat16[2_]?\d*(_raw)?|__bf16|bf16(x2)?"
    r"|__(float2?|double)2bfloat16\w*|float_to_bfloat16|float_to_bf16",
    "fp8": r"e4m3\w*|e5m2\w*|__nv_fp8\w*",
}
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_SWITCHED_OFF = re.compile(r"^[ \t]*#[ \t]*if[ \t]+0\b.*?^[ \t]*#[ \t]*endif\b", re.S | re.M)
_INCLUDES = re.compile(r"^[ \t]*#[ \t]*(include|pragma|error|warning)\b.*$", re.M)
_ASSEMBLY = re.compile(r"\b(?:__)?asm(?:__)?\b(?:\s*(?:__)?volatile(?:__)?)?\s*\(")
_TEXT = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_WORDS = re.compile(r"\w+")
# `half` is a type to CUDA, but somebody may have called a number that.
_OWN_NAME = re.compile(r"\b(?:int|long|unsigned|size_t|u?int\d+_t|float|double|auto|bool)\s+(\w+)")


def task_precision(task: Task) -> str:
    """The lowest floating type among inputs and outputs; `int` when there is none."""
    specs = [spec.tensor for spec in task.inputs if spec.tensor] + list(task.outputs)
    names = _names(specs)
    return max(names, key=_ORDER.index) if names else "int"


def asked_for(task: Task) -> frozenset[str]:
    """Every floating precision that the reference itself goes through, at its ends or within."""
    specs = [spec.tensor for spec in task.inputs if spec.tensor] + list(task.outputs)
    return frozenset(_names([*specs, *_inner(task.graph)]))


def lower_precisions(task: Task, candidate: Candidate) -> tuple[str, ...]:
    """What the source names that the task does not ask for, the finest first."""
    return lower_among(task, _words(candidate))


def lower_among(task: Task, words: Collection[str]) -> tuple[str, ...]:
    """The precisions among these words that the task does not ask for, the finest first."""
    own = task_precision(task)
    if own == "int":
        return ()
    asked = asked_for(task)
    return tuple(
        label
        for label in _ORDER[_ORDER.index(own) + 1 :]
        if label in _TOKENS and label not in asked
        if any(re.fullmatch(_TOKENS[label], word) for word in words)
    )


def candidate_precision(task: Task, candidate: Candidate) -> str:
    """The task's precision, or the lowest one that the kernel's source names."""
    return (task_precision(task), *lower_precisions(task, candidate))[-1]


def _names(specs: list[TensorSpec]) -> set[str]:
    return {_SHORT[spec.dtype] for spec in specs if spec.dtype in _SHORT}


def _inner(graph: Graph) -> list[TensorSpec]:
    return [spec for node in graph.nodes for spec in node.out]


def words_of(native: str) -> set[str]:
    """The names and keywords that stand in C++ or CUDA which is compiled."""
    source = _COMMENTS.sub(" ", native)
    source = _INCLUDES.sub(" ", _SWITCHED_OFF.sub(" ", source))
    assembly = " ".join(_assembly(source))
    code = _TEXT.sub(" ", source)
    named = set(_OWN_NAME.findall(code))
    code = _without_idle_variables(code)
    return (set(_WORDS.findall(code)) - named) | set(_WORDS.findall(assembly))


def _words(candidate: Candidate) -> set[str]:
    """Of a kernel and its plan."""
    found = words_of(candidate.kernel)
    found -= language_of(candidate).spec.plain_words
    return found | set(_WORDS.findall(_TEXT.sub(" ", candidate.plan)))


def _assembly(source: str) -> list[str]:
    """The instructions inside of `asm(...)`."""
    found = []
    for start in _ASSEMBLY.finditer(source):
        end = source.find(";", _end_of_text(source, start.end()))
        found += _TEXT.findall(source[start.end() : end if end >= 0 else len(source)])
    return found


def _end_of_text(source: str, position: int) -> int:
    """Behind the last piece of text that follows without other code in between."""
    while piece := re.compile(r"\s*" + _TEXT.pattern).match(source, position):
        position = piece.end()
    return position


def _without_idle_variables(code: str) -> str:
    """The code without declarations of a lower type whose name stands nowhere else."""
    every = "|".join(_TOKENS.values())
    declared = re.compile(rf"\b(?:{every})\b[\s*&]+(?P<name>\w+)\s*(\[[^\]]*\])?\s*([;=][^;]*)")
    count: dict[str, int] = {}
    for word in _WORDS.findall(code):
        count[word] = count.get(word, 0) + 1
    return declared.sub(lambda m: " " if count[m["name"]] == 1 else m[0], code)


def allowed_rounding(task: Task) -> float:
    """The coarsest step between neighbours that the person allowed, relative; 0 where none."""
    return max((2.0 ** (1 - SIGNIFICANT_BITS[name]) for name in task.allow), default=0.0)
