"""How exact PyTorch's other ways to do a task are: what candidates are asked, asked of a baseline.

torch.compile may hand a convolution over in a layout in which the library computes it in TF32,
while eager's is in fp32; its time is then that of coarser answers. That is no reason to leave it
out, as PyTorch's settings allow it, but whoever reads the ratio should know.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from kernelwright.tools.evaluate.verify.bench import Bench, Draw
from kernelwright.tools.evaluate.verify.errors import distance
from kernelwright.tools.evaluate.verify.truth import Argument, UnverifiableError
from kernelwright.tools.tasks import RefusedError

Call = Callable[[Sequence[Argument]], object]


def times_eager(bench: Bench, call: Call, seed: int) -> float | None:
    """How many times as far from the truth as eager's answers those of another way are.

    The larger of the norm and the worst element, over floating outputs, on one draw of the task's
    own values; None where there is no room for the truth, or nothing floating.
    """
    try:
        arguments = bench.draw(Draw("task", seed))
        own = bench.own(arguments)
        right = bench.right(arguments, own)
        answers = _answers(bench, call, arguments)
    except (RefusedError, UnverifiableError):
        return None
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        return None
    results = zip(answers, own.outputs, right.outputs, strict=True)
    ratios = [
        distance(answer, mine, truth, bench.chunk_elements).ratio
        for answer, mine, truth in results
        if answer.dtype.is_floating_point
    ]
    return max(ratios, default=None)


def _answers(bench: Bench, call: Call, arguments: Sequence[Argument]) -> list[Tensor]:
    """What it returns; buffers that it updates are put back."""
    before = bench.reference.snapshot()
    try:
        return [leaf for leaf in pytree.tree_leaves(call(arguments)) if isinstance(leaf, Tensor)]
    finally:
        bench.reference.restore(before)
