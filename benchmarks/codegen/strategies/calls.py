"""Problems lowered from PyTorch's own calls.

Weights are inputs. Truth is the same call in float64.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from kernelwright.tools.codegen.lower import Lowering, lower
from kernelwright.tools.tasks.graph.aten_graph import trace_graph
from kernelwright.tools.tasks.graph.convert import simplify, to_graph
from strategies.loops import Problem, Truth

Call = Callable[..., torch.Tensor]
# Elements of an input whose truth is made at once.
_PIECE = 1 << 27


class _Called(torch.nn.Module):
    def __init__(self, call: Call):
        super().__init__()
        self.call = call

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.call(*inputs)


def called(
    name: str,
    call: Call,
    *shapes: tuple[int, ...],
    apart: bool = True,
    dtype: torch.dtype = torch.float32,
    products: bool = False,
    convolutions: bool = False,
    sums_windows: bool = False,
    channels_last: bool = False,
    tf32: bool = True,
) -> Problem:
    """A call on tensors of these shapes, the first of which is a batch of images.

    `apart` says that images do not meet, so that the truth may be made some images at a time;
    `products` and `convolutions` that these are loops too, and not the library's; `sums_windows`
    that weighted windows are reductions, with `channels_last` over tensors that lie so; `tf32` that
    PyTorch may use it.
    """
    inputs = [torch.empty(shape, device="meta", dtype=dtype) for shape in shapes]
    traced = trace_graph(_Called(call), inputs, None)
    simplify(traced)
    names = [f"x{at}" for at in range(len(shapes))]
    with _allowing(tf32):
        graph = to_graph(traced, names)
    program = lower(
        graph,
        lowering=Lowering(
            products=products,
            convolutions=convolutions,
            sums_windows=sums_windows,
            channels_last=channels_last,
        ),
    )
    (output,) = program.returns
    return Problem(
        name=name,
        program=program,
        truth=_by_images(call, names, output, shapes[0], apart),
        eager=lambda data: _eager(call, names, shapes, data, tf32),
    )


@contextmanager
def _allowing(tf32: bool) -> Iterator[None]:
    before = torch.backends.cudnn.allow_tf32
    torch.backends.cudnn.allow_tf32 = tf32
    yield
    torch.backends.cudnn.allow_tf32 = before


def _eager(
    call: Call,
    names: list[str],
    shapes: tuple[tuple[int, ...], ...],
    data: dict[str, torch.Tensor],
    tf32: bool,
) -> torch.Tensor:
    with _allowing(tf32):
        return call(*(data[each].view(s) for each, s in zip(names, shapes, strict=True)))


def _by_images(
    call: Call, names: list[str], output: str, shape: tuple[int, ...], apart: bool
) -> Truth:
    images = max(1, _PIECE * shape[0] // torch.Size(shape).numel()) if apart else shape[0]

    def truth(data: dict[str, torch.Tensor]) -> Iterator[tuple[str, int, torch.Tensor]]:
        written, others = 0, [data[name].double() for name in names[1:]]
        for start in range(0, shape[0], images):
            made = call(data[names[0]][start : start + images].double(), *others)
            yield output, written, made.contiguous()
            written += made.numel()

    return truth
