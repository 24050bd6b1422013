"""What a task's own inputs look like, and which of them must keep to their domain.

An input is described by its range, mean, spread, and the domain it keeps to. Most tasks draw from
[0, 1] out of habit; few need it. An input needs its domain when it reaches an operator that is
undefined elsewhere (logarithm, root, arcsine), or when the reference, run on normal values instead,
raises or returns something that is not finite (a loss that insists on probabilities).

The first is told by a small sign analysis over the graph: what is known to be non-negative whatever
the inputs are (an exponential, a square, a variance, sums of those) may safely reach a logarithm.
It errs on the safe side: what it does not know, it takes for possibly negative. The second is told
by a real forward on real inputs, where it is cheap. That finds what fake tensors cannot: indices
out of range, checks of values, and which inputs the forward insists on having in some domain.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from types import ModuleType
from typing import cast

import torch
from torch import nn

from kernelwright.tools.tasks.graph.convert import tensor_spec
from kernelwright.tools.tasks.loading.modules import build_module, check_outputs
from kernelwright.tools.tasks.loading.packing import leaves_of
from kernelwright.tools.tasks.loading.probe import Probe
from kernelwright.tools.tasks.loading.user_file import Entry
from kernelwright.tools.tasks.refusals import user_code
from kernelwright.tools.types import (
    Arg,
    Domain,
    Graph,
    InputSpec,
    ListArg,
    Node,
    Ref,
    RefusedError,
    Scalar,
)
from kernelwright.tools.types.graph import base, refs, words

_LARGEST_SAMPLE = 2**22


def input_spec(name: str, value: object, sample: object) -> InputSpec:
    """Describe one argument; `sample` has real values, perhaps of another shape, or is None."""
    if not isinstance(value, torch.Tensor):
        assert value is None or isinstance(value, (bool, int, float, str))
        return InputSpec(name=name, scalar=value)
    spec = tensor_spec(value, with_strides=True)
    if not isinstance(sample, torch.Tensor) or sample.numel() == 0:
        return InputSpec(name=name, tensor=spec)
    low, high = (float(v) for v in torch.aminmax(_orderable(sample)))
    some = _thinned(sample).double()
    return InputSpec(
        name=name,
        tensor=spec,
        minimum=low,
        maximum=high,
        mean=_finite(some.mean()),
        standard_deviation=_finite(some.std(correction=0)),
        domain=_domain(sample, low, high),
    )


def _orderable(sample: torch.Tensor) -> torch.Tensor:
    if sample.dtype is torch.float8_e4m3fn:
        return sample.float()
    return sample.to(torch.uint8) if sample.dtype is torch.bool else sample


def _thinned(sample: torch.Tensor) -> torch.Tensor:
    """Evenly spaced values, enough for a mean."""
    flat = sample.reshape(-1)
    return flat[:: max(1, flat.numel() // _LARGEST_SAMPLE)]


def _finite(value: torch.Tensor) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None


def _domain(sample: torch.Tensor, low: float, high: float) -> Domain:
    if sample.dtype is torch.bool or not math.isfinite(low):
        return "any"
    if not sample.dtype.is_floating_point:
        return _integer_domain(sample, low, high)
    if low < 0:
        return "any"
    if high <= 1 and _rows_sum_to_one(sample):
        return "distribution"
    return "unit" if high <= 1 else "nonnegative"


def _rows_sum_to_one(sample: torch.Tensor) -> bool:
    if sample.dim() == 0 or sample.shape[-1] < 2:
        return False
    rows = sample.reshape(-1, sample.shape[-1])[:64].double()
    tolerance = 16 * torch.finfo(sample.dtype).eps * math.sqrt(sample.shape[-1])
    return bool((rows.sum(-1) - 1).abs().max() <= tolerance)


def _integer_domain(sample: torch.Tensor, low: float, high: float) -> Domain:
    """Offsets ascend; a permutation has each value of its range once."""
    if sample.dim() != 1 or sample.numel() < 3:
        return "any"
    values = sample.to(torch.int64)
    if bool((values.diff() >= 0).all()) and high > low:
        return "sorted"
    once = values.numel() == high - low + 1 and bool((values.sort().values.diff() == 1).all())
    return "permutation" if once else "any"


# All results of a forward together, and its operations: a fraction of a second on one core.
LARGEST_BYTES = 2**28
MOST_FLOPS = 2**32


@dataclass(frozen=True)
class Trial:
    """A module of the task's own, inputs that it is known to run on, and what it made of them."""

    module: nn.Module
    samples: list[object]
    path: str
    results: tuple[torch.Tensor, ...] = ()

    @cached_property
    def is_finite(self) -> bool:
        """Whether the forward made finite values of the samples."""
        return _all_finite(self.results)

    def run(self, values: Sequence[object]) -> list[torch.Tensor]:
        """The flat outputs on these arguments; RefusedError when the forward raises."""
        with user_code("The forward", self.path), torch.no_grad():
            outputs = self.module(*values)
            check_outputs(outputs)
        return cast("list[torch.Tensor]", leaves_of(outputs))


def try_out(file: ModuleType, entry: Entry, found: Probe, graph: Graph, flops: int) -> Trial | None:
    """Run the forward once for real; None when that would be dear.

    Raises:
        RefusedError: the forward raises on the task's own inputs.
    """
    size = sum(spec.size_bytes for node in graph.nodes for spec in node.out)
    if found.samples is None or not found.samples_fit or size > LARGEST_BYTES or flops > MOST_FLOPS:
        return None
    module = build_module(file, entry, 0, found.call)
    trial = Trial(module, found.samples, str(file.__file__))
    return replace(trial, results=tuple(trial.run(found.samples)))


_LIMITED = words("log log2 log10 log1p sqrt rsqrt acos asin atanh acosh lgamma digamma erfinv")
_ALWAYS = words(
    "exp exp2 sigmoid abs relu square erfc var var_mean eq ne lt le gt ge logical_and logical_or "
    "logical_not logical_xor isnan isinf any all argmax argmin arange sqrt rsqrt cosh"
)
_KEEPS = words(
    "add mul div sum amax amin mean prod maximum where clone view permute expand unsqueeze "
    "squeeze slice select cat index gather index_select embedding _to_copy reciprocal full "
    "split_with_sizes split cumsum cumprod repeat flip constant_pad_nd getitem log1p floor ceil "
    "round tanh expm1 scalar_tensor full_like max_pool2d_with_indices avg_pool2d asinh atan "
    "_unsafe_view alias minimum"
)


@lru_cache(maxsize=64)
def inputs_in_need_of_a_domain(graph: Graph) -> frozenset[str]:
    """Names of `input` nodes whose values can make some operator undefined."""
    nonnegative: dict[str, bool] = {}
    reached_by: dict[str, frozenset[str]] = {}
    needy: set[str] = set()
    for node in graph.nodes:
        sources = refs(node)
        own = {node.name} if node.op == "input" else set()
        reached_by[node.name] = frozenset(own.union(*(reached_by[s] for s in sources)))
        nonnegative[node.name] = _is_nonnegative(node, nonnegative)
        if _limited(node) and not nonnegative.get(sources[0] if sources else "", True):
            needy |= reached_by[sources[0]]
    return frozenset(needy)


def _limited(node: Node) -> bool:
    if base(node.op) != "pow":
        return base(node.op) in _LIMITED
    exponent = node.args[1] if len(node.args) > 1 else None
    return not (isinstance(exponent, Scalar) and float(exponent.value or 0).is_integer())


def _is_nonnegative(node: Node, known: dict[str, bool]) -> bool:
    name = base(node.op)
    if name == "mul" and len(node.args) == 2 and node.args[0] == node.args[1]:
        return True
    if name == "pow" and len(node.args) == 2:
        exponent = node.args[1]
        even = isinstance(exponent, Scalar) and float(exponent.value or 0) % 2 == 0
        return even or _arg_nonnegative(node.args[0], known)
    if name == "clamp":
        low = node.args[1] if len(node.args) > 1 else None
        if isinstance(low, Scalar) and isinstance(low.value, (int, float)) and low.value >= 0:
            return True
        return _arg_nonnegative(node.args[0], known)
    if name == "full":
        return _arg_nonnegative(node.args[1], known)
    if name in ("add", "sub") and dict(node.kwargs):
        return False
    if name == "where":
        return all(_arg_nonnegative(arg, known) for arg in node.args[1:])
    if name in ("add", "mul", "div", "maximum", "minimum"):
        return all(_arg_nonnegative(arg, known) for arg in node.args[:2])
    return name in _ALWAYS or (
        name in _KEEPS and bool(node.args) and _arg_nonnegative(node.args[0], known)
    )


def _arg_nonnegative(arg: Arg, known: dict[str, bool]) -> bool:
    if isinstance(arg, Ref):
        return known[arg.node]
    if isinstance(arg, ListArg):
        return all(_arg_nonnegative(item, known) for item in arg.items)
    return isinstance(arg, Scalar) and isinstance(arg.value, (int, float)) and arg.value >= 0


def keep_needed_domains(
    specs: tuple[InputSpec, ...], graph: Graph, trial: Trial | None
) -> tuple[InputSpec, ...]:
    """The inputs with `domain` set to "any" where the forward does not mind."""
    needy = inputs_in_need_of_a_domain(graph)
    return tuple(
        spec
        if spec.name in needy or not _is_bounded(spec) or _insists(trial, position)
        else spec.model_copy(update={"domain": "any"})
        for position, spec in enumerate(specs)
    )


def _is_bounded(spec: InputSpec) -> bool:
    floating = spec.tensor is not None and spec.tensor.dtype.is_floating
    return floating and spec.domain != "any"


def _insists(trial: Trial | None, position: int) -> bool:
    """Whether the forward fails once this input is normal; False where it cannot be tried."""
    if trial is None or not trial.is_finite:
        return False
    values = list(trial.samples)
    sample = values[position]
    assert isinstance(sample, torch.Tensor)
    values[position] = torch.randn(sample.shape, device=sample.device).to(sample.dtype)
    try:
        return not _all_finite(trial.run(values))
    except RefusedError:
        return True


def _all_finite(results: Sequence[torch.Tensor]) -> bool:
    return all(bool(torch.isfinite(result).all()) for result in results)
