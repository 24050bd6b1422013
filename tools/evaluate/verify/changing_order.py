"""Where PyTorch's own library gives other bits for the same inputs, and what a judge can ask then.

On a GPU threads add up in whatever order they come: in some convolutions, at indices, and in the
gradients of what resizes, pads and pools. Most of it has a second algorithm that adds up in one
order, which PyTorch takes when it is told to be deterministic. A part has none, which is known by
name: PyTorch's own warning does not reach Python where an operator is called by `torch.ops`.
"""

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch

from kernelwright.tools.evaluate.verify.precision import convolved
from kernelwright.tools.types import Task
from kernelwright.tools.types.graph import base, words

ORDER_CHANGED = (
    "the same bits twice: the library's convolutions and sums by index add up in changing order; "
    "under its deterministic algorithms the bits were the same"
)

# What `torch.use_deterministic_algorithms` says of CUDA: first what has another algorithm, beside
# convolutions (of an embedding's gradient since 2.11, where few rows are met by many indices), then
# what raises there, so that one is lacking.
_RESTLESS = words(
    "cumsum embedding_dense_backward index_add index_put put scatter_add scatter_reduce"
)
_WITHOUT_ORDER = words(
    """
    _adaptive_avg_pool2d_backward _adaptive_avg_pool3d_backward _embedding_bag_dense_backward
    _upsample_bicubic2d_aa_backward _upsample_bilinear2d_aa_backward adaptive_max_pool2d_backward
    adaptive_max_pool3d_backward avg_pool3d_backward cudnn_grid_sampler_backward
    fractional_max_pool2d_backward fractional_max_pool3d_backward grid_sampler_2d_backward
    grid_sampler_3d_backward max_pool2d_with_indices_backward max_pool3d_with_indices_backward
    max_unpool2d max_unpool3d reflection_pad1d_backward reflection_pad2d_backward
    reflection_pad3d_backward replication_pad1d_backward replication_pad2d_backward
    replication_pad3d_backward upsample_bicubic2d_backward upsample_bilinear2d_backward
    upsample_linear1d_backward upsample_trilinear3d_backward
    """
)


def order_may_change(task: Task, device: str) -> bool:
    """Whether a candidate for this task may call what does not repeat itself."""
    called = {base(node.op) for node in task.graph.nodes}
    if device != "cuda":
        return "index_put" in called  # threads that add to one place
    return bool(convolved(task)) or not called.isdisjoint(_RESTLESS | _WITHOUT_ORDER)


def without_order(task: Task) -> frozenset[str]:
    """What the module itself calls that may have no algorithm that repeats itself."""
    return frozenset(base(node.op) for node in task.graph.nodes) & _WITHOUT_ORDER


def no_order_words(names: Iterable[str]) -> str:
    """What is not proven of a candidate that called these, and differed from itself."""
    return (
        f"the same bits twice: the library's {', '.join(sorted(names))} has no deterministic "
        "algorithm; a race beside it would show in wrong results alone"
    )


@contextmanager
def one_order() -> Iterator[None]:
    """The library adds up in one order inside; what cannot is called all the same."""
    usual = torch.backends.cudnn.deterministic
    asked = torch.are_deterministic_algorithms_enabled()
    only_warned = torch.is_deterministic_algorithms_warn_only_enabled()
    filled = _fills_memory(False)  # what the judge has poisoned stays so
    torch.backends.cudnn.deterministic = True
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with warnings.catch_warnings(action="ignore"):  # calls by `torch.ops` warn on stderr
            yield
    finally:
        torch.use_deterministic_algorithms(asked, warn_only=only_warned)
        torch.backends.cudnn.deterministic = usual
        _fills_memory(filled)


def _fills_memory(wanted: bool) -> bool:
    """Say whether deterministic PyTorch fills what `empty` gives; as it was before."""
    setting = torch.utils.deterministic
    before = bool(setting.fill_uninitialized_memory)  # type: ignore[attr-defined]
    setting.fill_uninitialized_memory = wanted  # type: ignore[attr-defined]
    return before
