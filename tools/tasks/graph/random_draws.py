"""Random numbers in a forward: which another implementation can draw as PyTorch does, and how.

A forward may make tensors of fresh numbers (an initial state from `randn`, noise). Those operators
stay PyTorch's own in a candidate, in the reference's order, so that both draw the same numbers from
the same state of the generators. Each is spelt with its shape and type, whatever the forward takes
them from; and float64's truth draws in the task's own types, as `randn` in float64 would draw other
numbers.

Not covered, and refused: draws whose number or order is a library's own business (dropout inside an
operator, `multinomial`), draws from values (`bernoulli` of a tensor), draws into a tensor in place,
and those whose numbers follow a layout that is not row by row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import fx
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.tools.types import Graph
from kernelwright.tools.types.graph import DRAWS, draws

aten = torch.ops.aten
_RANDOM = torch.Tag.nondeterministic_seeded

# What takes shape and type from a tensor, and the operator that is told them instead.
_LIKE: Mapping[OpOverload, OpOverload] = {
    aten.rand_like.default: aten.rand.default,
    aten.randn_like.default: aten.randn.default,
    aten.randint_like.default: aten.randint.default,
    aten.randint_like.low_dtype: aten.randint.low,
}
_MADE = frozenset(
    (
        aten.normal.float_float,
        aten.rand.default,
        aten.randint.default,
        aten.randint.low,
        aten.randn.default,
        aten.randperm.default,
    )
)


def draws_random_node(node: fx.Node) -> bool:
    """Whether this node draws random numbers."""
    target = node.target
    return isinstance(target, OpOverload) and _RANDOM in target.tags


def random_operators(graph: fx.Graph) -> tuple[str, ...]:
    """Names of the operators with which the forward draws random numbers, each once."""
    drawing = (node for node in graph.nodes if draws_random_node(node))
    return tuple(dict.fromkeys(map(_base, (n for n in drawing if not _draws_with_certainty(n)))))


def unkept_draws(graph: fx.Graph) -> tuple[str, ...]:
    """Those among them whose order no other implementation could keep."""
    drawing = (node for node in graph.nodes if draws_random_node(node) and not is_draw(node))
    return tuple(dict.fromkeys(map(_base, (n for n in drawing if not _draws_with_certainty(n)))))


def unused_draws(dead: Sequence[str]) -> tuple[str, ...]:
    """Draws among the operators without effect: the exporter drops them, the generator does not."""
    lost = (name for name in dead if name.removesuffix("_like") in DRAWS)
    return tuple(dict.fromkeys(f"{name}, which nothing uses" for name in lost))


def is_draw(node: fx.Node) -> bool:
    """Whether a node makes fresh numbers that a candidate can draw too."""
    target = node.target
    if not isinstance(target, OpOverload) or not (target in _MADE or target in _LIKE):
        return False
    if node.kwargs.get("generator") is not None:
        return False
    value = node.meta["val"]
    return isinstance(value, torch.Tensor) and value.is_contiguous()


def name_draw(node: fx.Node) -> None:
    """Say shape and type in the node itself, in place."""
    value = node.meta["val"]
    target = node.target
    assert isinstance(target, OpOverload)
    if target in _LIKE:
        node.target, node.args = _LIKE[target], (*node.args[1:], list(value.shape))
    node.kwargs = {"dtype": value.dtype}


def _base(node: fx.Node) -> str:
    return str(node.target).split(".")[1]


def _draws_with_certainty(node: fx.Node) -> bool:
    """Attention and recurrent layers carry the tag for their dropout, which is mostly zero.

    A randomised ReLU draws in training alone.
    """
    packet = getattr(node.target, "_overloadpacket", None)
    of_rrelu = (aten.rrelu_with_noise, aten.rrelu_with_noise_functional)
    word = "training" if packet in of_rrelu else "dropout_p"
    arguments = node.target._schema.arguments if isinstance(node.target, OpOverload) else []
    for place, argument in enumerate(arguments):
        if argument.name == word:  # of attention, whole or as a device's own operator
            return not (node.args[place] if len(node.args) > place else node.kwargs.get(word))
    if packet in (aten.lstm, aten.gru, aten.rnn_tanh, aten.rnn_relu):
        dropout, training = node.args[5], node.args[6]
        return not (dropout and training)
    return False


class Generators:
    """The state that the generators are set to before every call whose answer is compared.

    Of a task that draws nothing they are left alone.

    Attributes:
        seed: what they are set to; whoever draws inputs changes it.
    """

    def __init__(self, graph: Graph) -> None:
        self.types = tuple(node.out[0].dtype for node in graph.nodes if draws(node.op))
        self.seed = 0

    def fix(self) -> None:
        """Set PyTorch's own generators, of the host and of the devices."""
        if self.types:
            torch.manual_seed(self.seed)

    def as_drawn(self) -> DrawnAs:
        """While inside, whatever is drawn is drawn in the task's own types, and then widened."""
        return DrawnAs([getattr(torch, dtype.value) for dtype in self.types])


def state_of(device: str) -> tuple[bytes, ...]:
    """Where the generators stand: the host's, and on a GPU that of the device."""
    states = [torch.get_rng_state()]
    if device == "cuda":
        states.append(torch.cuda.get_rng_state())
    return tuple(bytes(state.numpy()) for state in states)


class DrawnAs(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Draws as a forward in other types does, one of `types` after the other."""

    def __init__(self, types: Sequence[torch.dtype]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._left = list(types)

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Run the operator; of a draw, in the type of the task's own draw at this place."""
        named = dict(kwargs or {})
        if not (func in _MADE or func in _LIKE) or not self._left:
            return func(*args, **named)
        dtype = self._left.pop(0)
        first = args[0] if args else None
        wanted = named.get("dtype") or _usual_type(func, first)
        drawn = func(*args, **{**named, "dtype": dtype})
        return drawn.to(wanted) if dtype.is_floating_point else drawn


def _usual_type(func: OpOverload, first: object) -> torch.dtype:
    """The type of a draw that names none."""
    if func in _LIKE and isinstance(first, torch.Tensor):
        return first.dtype
    return torch.get_default_dtype()
