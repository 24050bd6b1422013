"""Products of matrices that run measured kernels where these were faster, else PyTorch's own.

    from PACKAGE import Linear, bmm, linear, matmul, patch

    names = patch(model)        # the linear layers whose sizes the table has
    y = matmul(a, b)            # as torch.matmul

table.json has every shape that was measured, with its times, intervals and what runs: a kernel in
kernels/, or the library, which keeps the shapes that it wins, ties, and all shapes that were not
measured. Kernels that may keep sums in fp16 (`accumulate` in the table) run while
`torch.backends.cuda.matmul.allow_fp16_accumulation` is set, and all others only while it is not, as
they were held against such libraries. A kernel whose single calls on an idle device are slower than
the library's (the host's time to issue one decides there) runs where a CUDA graph is captured; set
`ALWAYS = True` where calls are queued and the host is ahead anyway. Where autograd records, and
inside torch.compile, the library runs.

It is independent of what made it: it needs torch and what kernels/*/README.md name.
"""

import collections
import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

_TABLE = json.loads((Path(__file__).resolve().parent / "table.json").read_text(encoding="utf-8"))
# Every measured shape: a dictionary each.
TABLE = _TABLE["shapes"]
# On which kind of device, as CUDA numbers it.
CAPABILITY = tuple(_TABLE["capability"])
# Whether kernels run that are faster only where the host is ahead; see above.
ALWAYS = False
# How calls ended: "kernel", or "library: <why>".
COUNTS: collections.Counter[str] = collections.Counter()

_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}
_Call = Callable[..., torch.Tensor]
_BY_SHAPE: dict[tuple[object, ...], dict[str, Any]] = {
    (
        _DTYPES[one["dtype"]],
        one["accumulate"],
        one["layout"],
        tuple(one["epilogue"]),
        one["batch"],
        one["m"],
        one["n"],
        one["k"],
    ): one
    for one in TABLE
}
# What `linear` may be asked to do after a layer, as PyTorch does it.
ACTIVATIONS: dict[str, _Call] = {
    "": lambda y: y,
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"),
}
_LOADED: dict[str, Any] = {}
_BUILT: set[tuple[str, int]] = set()
_SINGLE = "single calls"


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The product of two matrices, as `torch.matmul`."""
    if a.dim() != 2 or b.dim() != 2:
        return _library("dimensions", torch.matmul, a, b)
    return _product(a, b, 1, torch.matmul)


def bmm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The products of two batches of matrices, as `torch.bmm`."""
    if a.dim() != 3 or b.dim() != 3 or a.shape[0] != b.shape[0]:
        return _library("dimensions", torch.bmm, a, b)
    if a.shape[0] == 1:
        return matmul(a[0], b[0])[None]
    return _product(a, b, a.shape[0], torch.bmm)


def linear(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str = "",
) -> torch.Tensor:
    """A linear layer, as `torch.nn.functional.linear`, and after it what `ACTIVATIONS` names."""
    epilogue = (*(("bias",) if bias is not None else ()), *((activation,) if activation else ()))

    def library(*tensors: torch.Tensor) -> torch.Tensor:
        return ACTIVATIONS[activation](F.linear(x, weight, bias))

    if x.dim() < 2 or weight.dim() != 2 or not (x.is_contiguous() and weight.is_contiguous()):
        return _library("layout", library)
    rows = x.view(-1, x.shape[-1])
    given = (rows, weight) if bias is None else (rows, weight, bias)
    sizes = (1, rows.shape[0], weight.shape[0], rows.shape[1])
    kernel = _kernel(given, ("nt", epilogue, *sizes))
    if kernel is None:
        return library()
    return kernel(*given).view(*x.shape[:-1], weight.shape[0])


class Linear(nn.Linear):
    """`torch.nn.Linear` over `linear`, without an activation."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """The layer's product."""
        return linear(input, self.weight, self.bias)


def patch(model: nn.Module) -> list[str]:
    """Let a model's linear layers use the kernels; weights, names and state dicts stay.

    Returns:
        The names of the layers: those whose sizes some kernel has, in its type.
    """
    sizes = {
        (_DTYPES[one["dtype"]], bool(one["epilogue"]), one["n"], one["k"])
        for one in TABLE
        if one["kernel"] and one["layout"] == "nt" and one["epilogue"] in ([], ["bias"])
    }
    names: list[str] = []
    for name, module in model.named_modules():
        if type(module) is not nn.Linear:
            continue
        weight, has_bias = module.weight, module.bias is not None
        if (weight.dtype, has_bias, *weight.shape) in sizes:
            module.__class__ = Linear
            names.append(name)
    return names


def unpatch(model: nn.Module) -> list[str]:
    """Make the layers PyTorch's own again; the names of those that were not."""
    names: list[str] = []
    for name, module in model.named_modules():
        if type(module) is Linear:
            setattr(module, "__class__", nn.Linear)  # noqa: B010 - to a type it is not a subtype of
            names.append(name)
    return names


def _product(a: torch.Tensor, b: torch.Tensor, batch: int, library: _Call) -> torch.Tensor:
    left, right = _lies(a), _lies(b)
    if not left or not right or a.shape[-1] != b.shape[-2]:
        return _library("layout", library, a, b)
    sizes = (batch, a.shape[-2], b.shape[-1], a.shape[-1])
    kernel = _kernel((a, b), (left + right, (), *sizes))
    if kernel is None:
        return library(a, b)
    return kernel(a if left == "n" else a.mT, b if right == "n" else b.mT)


def _lies(matrix: torch.Tensor) -> str:
    """`n` for row after row, `t` for turned, nothing for neither."""
    if matrix.is_contiguous():
        return "n"
    return "t" if matrix.mT.is_contiguous() else ""


def _kernel(given: tuple[torch.Tensor, ...], key: tuple[object, ...]) -> _Call | None:
    """The kernel for such a call; None where the library runs, which is counted."""
    if torch.compiler.is_compiling():
        return None
    dtype = given[0].dtype
    found = _BY_SHAPE.get((dtype, _accumulate(dtype), *key))
    why = _why_not(found, given) if found is not None else "not measured"
    if found is not None and why in ("", _SINGLE):
        # What waits for a graph is built now: nothing can be while one is captured.
        _build(found["kernel"], given[0].get_device())
    if found is not None and not why:
        COUNTS["kernel"] += 1
        return _loaded(found["kernel"])
    COUNTS[f"library: {why}"] += 1
    return None


def _accumulate(dtype: torch.dtype) -> str:
    """What the library would be let to keep sums in."""
    # A torch before 2.7 has no such setting.
    allowed = getattr(torch.backends.cuda.matmul, "allow_fp16_accumulation", False)
    return "fp16" if allowed and dtype is torch.float16 else "fp32"


def _why_not(found: dict[str, Any], given: tuple[torch.Tensor, ...]) -> str:
    """Why the library runs a measured shape; nothing where a kernel does."""
    first = given[0]
    if not found["kernel"]:
        return "faster"
    if any(one.dtype is not first.dtype for one in given):
        return "types"
    if not first.is_cuda or any(one.device != first.device for one in given):
        return "device"
    if torch.cuda.get_device_capability(first.device) != CAPABILITY:
        return "device"
    if torch.is_grad_enabled() and any(one.requires_grad for one in given):
        return "gradient"
    if torch.cuda.is_current_stream_capturing():
        ready = (found["kernel"], first.get_device()) in _BUILT
        return "" if ready else "not called before the capture"
    return _SINGLE if found["queued_only"] and not ALWAYS else ""


def _build(name: str, index: int) -> None:
    """Have a kernel ready on a device."""
    if (name, index) not in _BUILT:
        _BUILT.add((name, index))
        sys.modules[type(_loaded(name)).__module__].kernels_for(index)


def _loaded(name: str) -> _Call:
    """The kernel's own export, whose guards look at every call again."""
    if name not in _LOADED:
        module = importlib.import_module(f"{__name__}.kernels.{name}")
        _LOADED[name] = module.Model()
    found: _Call = _LOADED[name]
    return found


def _library(why: str, call: _Call, *arguments: torch.Tensor | None) -> torch.Tensor:
    COUNTS[f"library: {why}"] += 1
    return call(*arguments)
