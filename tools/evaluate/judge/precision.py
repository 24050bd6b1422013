"""The precision a candidate computes in, as far as its source and the task's types tell.

A candidate that computes in less than the task's type gets that type's name as its label and is
ranked apart. Read from tokens, not from comments or names; what arithmetic really lost is the
error ratio's business.
"""

import re

from tools.nouns import Candidate, DType, Task

_SHORT = {
    DType.FLOAT64: "fp64",
    DType.FLOAT32: "fp32",
    DType.BFLOAT16: "bf16",
    DType.FLOAT16: "fp16",
}
_ORDER = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8")
_TOKENS = {
    "tf32": r"tf32",
    "bf16": r"(__)?(nv_)?bfloat16\d*|bf16|__float2bfloat16\w*",
    "fp16": r"half|__half|half2|__half2|_Float16|float16|f16|__float2half\w*",
    "fp8": r"e4m3\w*|e5m2\w*|__nv_fp8\w*",
}
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_WORDS = re.compile(r"\w+")


def task_precision(task: Task) -> str:
    """The lowest floating type among inputs and outputs; `int` when there is none."""
    specs = [spec.tensor for spec in task.inputs if spec.tensor] + list(task.outputs)
    names = {_SHORT[spec.dtype] for spec in specs if spec.dtype in _SHORT}
    return max(names, key=_ORDER.index) if names else "int"


def candidate_precision(task: Task, candidate: Candidate) -> str:
    """The task's precision, or a lower one that the kernel's source names."""
    own = task_precision(task)
    if own == "int":
        return own
    words = set(_WORDS.findall(_COMMENTS.sub(" ", candidate.kernel + candidate.plan)))
    lower = [label for label in _ORDER[_ORDER.index(own) + 1 :] if label in _TOKENS]
    named = [label for label in lower if any(re.fullmatch(_TOKENS[label], word) for word in words)]
    return max(named, key=_ORDER.index) if named else own
