"""A model whose forward cannot be traced as a whole: the submodules in it that can.

The whole runs for real, with hooks that write down what every submodule is called with. From the
root down, the largest submodules are parts that are called with tensors alone, in every call with
the same shapes, types and layouts, whatever the values are, and that can be traced. What is around
them stays as it is: it is the user's own code, which calls the parts.

A plan for such a model has a function for each part that it computes. `Host` has the model run with
these in the place of the submodules' own forwards, on the weights that the plan is given. A call
that is not like those that were seen runs the submodule's own forward.

Not covered: a forward that draws random numbers, writes into its inputs or updates its buffers;
parts that bake tensors in, and shared ones whose calls differ.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import fx, nn

from kernelwright.tools.tasks.graph.aten_graph import trace_outline
from kernelwright.tools.tasks.graph.convert import names_of, simplify, tensor_spec, to_graph
from kernelwright.tools.tasks.graph.random_draws import random_operators
from kernelwright.tools.tasks.graph.traced import Traced
from kernelwright.tools.tasks.loading.modules import check_outputs
from kernelwright.tools.tasks.loading.packing import leaves_of
from kernelwright.tools.tasks.refusals import user_line
from kernelwright.tools.types import (
    Graph,
    ListArg,
    Node,
    Ref,
    RefusedError,
    Scalar,
    TensorSpec,
    refuse,
)
from kernelwright.tools.types.task import Part, Untraced

WHOLE = "whole"
# Of a submodule's callers, and no fault of its own code.
_CALLED_OTHERWISE = (
    "it is called with more than plain tensors",
    "its calls differ in shape, type or layout",
)
_PLAIN = (bool, int, float, str)
Forward = Callable[..., object]


@dataclass
class Calls:
    """What a submodule was called with: the first call's tensors, and what all calls were like."""

    arguments: tuple[torch.Tensor, ...] | None = None
    likes: set[tuple[TensorSpec, ...] | None] = field(default_factory=set)
    count: int = 0


@contextmanager
def recorded(module: nn.Module, *, keep: bool) -> Iterator[dict[str, Calls]]:
    """The calls of every submodule by its path, while inside; with `keep` their first tensors."""
    seen: dict[str, Calls] = {}

    def hook(path: str) -> Callable[..., None]:
        def note(part: nn.Module, args: tuple[object, ...], named: dict[str, object]) -> None:
            calls = seen.setdefault(path, Calls())
            like = None if named else like_of(args)
            calls.likes.add(like)
            calls.count += 1
            if keep and like is not None and calls.arguments is None:
                tensors = (arg for arg in args if isinstance(arg, torch.Tensor))
                calls.arguments = tuple(tensor.detach().clone() for tensor in tensors)

        return note

    handles = [
        part.register_forward_pre_hook(hook(path), with_kwargs=True)
        for path, part in module.named_modules(remove_duplicate=True)
        if path
    ]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def like_of(arguments: Sequence[object]) -> tuple[TensorSpec, ...] | None:
    """Shapes, types and layouts of plain tensors; None where there is anything else.

    Also None where gradients are recorded, or something is on that a trace does not see.
    """
    if torch.is_grad_enabled() or torch._C._functorch.peek_interpreter_stack() is not None:
        return None
    if not arguments or not all(type(item) in (torch.Tensor, nn.Parameter) for item in arguments):
        return None
    tensors = [item for item in arguments if isinstance(item, torch.Tensor)]
    if any(torch.is_autocast_enabled(item.device.type) for item in tensors):
        return None
    try:
        return tuple(tensor_spec(item, with_strides=True) for item in tensors)
    except (RefusedError, RuntimeError):
        return None


def find_parts(
    module: nn.Module, draws: Sequence[Sequence[object]]
) -> tuple[tuple[Part, ...], tuple[Untraced, ...]]:
    """The parts of a module, and why the modules around them are none.

    Args:
        module: real, as it runs.
        draws: arguments of several calls with different values.
    """
    seen: dict[str, Calls] = {}
    for arguments in draws:
        with recorded(module, keep=not seen) as calls, torch.no_grad():
            module(*arguments)
        for path, found in calls.items():
            known = seen.setdefault(path, found)
            known.likes |= found.likes
    search = _Search(module, seen)
    search.below("", module)
    return tuple(search.parts), tuple(search.untraced)


class _Search:
    """Goes down the tree of modules; equal submodules are tried once."""

    def __init__(self, root: nn.Module, seen: Mapping[str, Calls]) -> None:
        self._seen, self._known = seen, dict[str, str]()
        self.parts: list[Part] = []
        self.untraced: list[Untraced] = []
        self._own_code = 0
        self._names = dict(root.named_modules(remove_duplicate=True))

    def below(self, path: str, module: nn.Module) -> None:
        for name, child in module.named_children():
            self._look(f"{path}.{name}" if path else name, child)

    def _look(self, path: str, module: nn.Module) -> None:
        calls = self._seen.get(path)
        if path not in self._names:
            return
        if calls is None:
            self.below(path, module)
            return
        why = self._why_not(module, calls)
        if not why:
            (like,) = calls.likes
            kind = type(module).__name__
            self.parts.append(Part(path=path, kind=kind, inputs=like or (), calls=calls.count))
            return
        before = self._own_code
        if why != _CALLED_OTHERWISE[1]:
            self.below(path, module)
        if why in _CALLED_OTHERWISE or self._own_code == before:
            # Its submodules are all right, so that it is this one's own code.
            self._own_code += why not in _CALLED_OTHERWISE
            self.untraced.append(Untraced(path=path, kind=type(module).__name__, why=why))

    def _why_not(self, module: nn.Module, calls: Calls) -> str:
        if None in calls.likes or calls.arguments is None:
            return _CALLED_OTHERWISE[0]
        if len(calls.likes) > 1:
            return _CALLED_OTHERWISE[1]
        sizes = [tuple(item.shape) for item in (*module.parameters(), *module.buffers())]
        flags = [_flags(part) for part in module.modules()]
        key = f"{type(module)} {module!r} {sorted(calls.likes, key=repr)} {sizes} {flags}"
        if key not in self._known:
            self._known[key] = _why_untraced(module, calls.arguments)
        return self._known[key]


def _flags(module: nn.Module) -> list[tuple[str, object]]:
    """Plain values that its code may branch on, which its text need not show."""
    return [(name, held) for name, held in vars(module).items() if isinstance(held, _PLAIN)]


def _why_untraced(module: nn.Module, arguments: Sequence[torch.Tensor]) -> str:
    try:
        with torch.no_grad():
            result = module(*(tensor.clone() for tensor in arguments))
        listed = result if type(result) is tuple else (result,)
        if not all(isinstance(item, torch.Tensor) for item in listed):
            raise refuse("It returns something other than a tensor or a tuple of them.")
        part_graph(module, arguments, "p_", ())
    except RefusedError as refused:
        said = refused.refusal.sentence.rstrip(".").removesuffix("; not supported")
        line = user_line(refused.__cause__)
        return f"{said} ({line})" if line and line not in said else said
    return ""


@dataclass(frozen=True)
class TracedPart:
    """A part's forward as torch has it, with the names of its nodes, and as typed nodes."""

    traced: Traced
    placeholders: list[fx.Node]
    names: dict[fx.Node, str]
    typed: Graph

    @property
    def graph(self) -> fx.Graph:
        """Torch's."""
        return self.traced.graph

    def given(
        self, arguments: Sequence[torch.Tensor], weights: Mapping[str, torch.Tensor]
    ) -> dict[fx.Node, object]:
        """The value of every placeholder; weights are by the part's own names."""
        by_name = dict(zip(self.traced.inputs, arguments, strict=True))
        names = self.traced.weights
        return {
            node: by_name[node.name] if node.name in by_name else weights[names[node.name]]
            for node in self.placeholders
            if node.name in by_name or node.name in names
        }

    def under(self, path: str) -> Graph:
        """The typed graph with weights by their names in the whole."""
        nodes = (
            node.model_copy(update={"target": f"{path}.{node.target}"})
            if node.op == "weight"
            else node
            for node in self.typed.nodes
        )
        return self.typed.model_copy(update={"nodes": tuple(nodes)})


def part_graph(
    module: nn.Module, arguments: Sequence[torch.Tensor], prefix: str, whole: Collection[str]
) -> TracedPart:
    """A part's forward, the operators of these names kept whole; all names have the prefix.

    Raises:
        RefusedError: it cannot be traced, or does more than to compute tensors from tensors.
    """
    traced, placeholders = trace_outline(module, arguments, whole)
    if traced.mutations:
        raise refuse("It updates its buffers.")
    if random_operators(traced.graph):
        raise refuse("It draws random numbers.")
    simplify(traced)
    inputs = [f"{prefix}x{number}" for number in range(len(arguments))]
    names = {
        node: name if name in inputs or name.startswith(prefix) else f"{prefix}{name}"
        for node, name in names_of(traced, inputs).items()
    }
    typed = to_graph(traced, inputs, with_strides=True, names=names)
    if any(node.op == "constant" for node in typed.nodes):
        raise refuse("It bakes tensors in; register them as buffers.")
    return TracedPart(traced, placeholders, names, typed)


def whole_graph(names: Sequence[str], inputs: Sequence[torch.Tensor], outputs: object) -> Graph:
    """A graph of one call, which is the model's own forward."""
    leaves = [leaf for leaf in leaves_of(outputs) if isinstance(leaf, torch.Tensor)]
    nodes = [
        Node(name=name, op="input", out=(tensor_spec(tensor, with_strides=True),))
        for name, tensor in zip(names, inputs, strict=True)
    ]
    made = tuple(tensor_spec(leaf) for leaf in leaves)
    args = (ListArg(items=tuple(Ref(node=name) for name in names)),)
    nodes.append(Node(name=WHOLE, op="module", args=args, out=made))
    picked = [
        Node(name=f"{WHOLE}_{at}", op="getitem", args=(Ref(node=WHOLE), Scalar(value=at)), out=(s,))
        for at, s in enumerate(made)
    ]
    single = isinstance(outputs, torch.Tensor)
    ends = (WHOLE,) if single else tuple(node.name for node in picked)
    return Graph(
        nodes=(*nodes, *(() if single else picked)),
        inputs=tuple(names),
        outputs=ends,
        output_structure="tensor" if single else "tuple",
    )


def run_unseen(module: nn.Module, arguments: Sequence[object]) -> object:
    """The result of a call that leaves nothing behind.

    Raises:
        RefusedError: it draws random numbers, changes its inputs or updates its buffers.
    """
    tensors = [item for item in arguments if isinstance(item, torch.Tensor)]
    watched = [*tensors, *module.buffers(), *module.parameters()]
    before = [item._version for item in watched]
    state = torch.get_rng_state()
    with torch.no_grad():
        result = module(*arguments)
    if not torch.equal(state, torch.get_rng_state()):
        raise refuse("The forward draws random numbers.")
    if before != [item._version for item in watched]:
        raise refuse("The forward changes its inputs or its buffers.")
    check_outputs(result)
    return result


class Host:
    """A model as a plan runs it: with other forwards for some of its parts.

    Args:
        module: the reference; it is copied, and stays as it is.
        parts: of the task.
    """

    def __init__(self, module: nn.Module, parts: Sequence[Part]) -> None:
        self._module, self._parts = module, parts
        self._copy: nn.Module | None = None
        self._made_of: tuple[object, object] = (None, None)

    def __call__(
        self,
        arguments: Sequence[object],
        weights: Mapping[str, torch.Tensor],
        forwards: Mapping[int, Forward],
    ) -> object:
        """The model's result as flat tensors.

        Args:
            arguments: of the whole.
            weights: by name; what they hold is read anew in every call.
            forwards: of parts, by their place among the task's.
        """
        weights_before, forwards_before = self._made_of
        if self._copy is None or weights_before is not weights or forwards_before is not forwards:
            self._copy, self._made_of = self._made(weights, forwards), (weights, forwards)
        result = self._copy(*arguments)
        leaves = leaves_of(result)
        return leaves[0] if isinstance(result, torch.Tensor) else tuple(leaves)

    def _made(
        self, weights: Mapping[str, torch.Tensor], forwards: Mapping[int, Forward]
    ) -> nn.Module:
        made = copy.deepcopy(self._module)
        named = (*made.named_parameters(), *made.named_buffers())
        for name, tensor in named:
            if name in weights:
                tensor.data = weights[name].detach()
        for number, forward in forwards.items():
            part = made.get_submodule(self._parts[number].path)
            part.forward = _either(part.forward, forward, self._parts[number].inputs)
        return made


def _either(own: Forward, ours: Forward, like: tuple[TensorSpec, ...]) -> Forward:
    """Ours for calls like those that were seen, else the submodule's own."""

    def forward(*arguments: object, **named: object) -> object:
        if not named and like_of(arguments) == like:
            return ours(*arguments)
        return own(*arguments, **named)

    return forward
