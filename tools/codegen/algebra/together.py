"""What is computed of every part of a tensor, computed of the whole at once.

A loop over time takes one step after the other out of a tensor (`select`), computes something of
each, and concatenates what it gets. Products with one weight and elementwise operators give the
same for all steps at once, in one operator instead of one a step: `Together.all_of` finds them
behind the nodes that stand for the steps. `steps_together` does it for what is concatenated again.

The steps' dimension stays where it was in the tensor: a node of shape (rows, features) for every
step is (steps, rows, features) together, or (rows, steps, features) where steps were taken from
dimension 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from kernelwright.tools.codegen.algebra.sketch import Sketch, sizes
from kernelwright.tools.types import Arg, Graph, ListArg, Node, Ref, Scalar
from kernelwright.tools.types.graph import base, words

FEWEST = 4
_ELEMENTWISE = words(
    "tanh sigmoid relu gelu silu leaky_relu elu exp neg abs sqrt rsqrt clamp add sub rsub mul div"
)
# What lies one element after the other: what was given, and what these make.
_PACKED = words("input weight constant mm addmm cat clone")
# Nodes to look through for the step that a node is made of.
_FAR = 32


def steps_together(graph: Graph, node: Node) -> Graph | None:
    """The graph with what is concatenated over steps computed of all of them."""
    listed = node.args[0] if node.args else None
    if base(node.op) != "cat" or not isinstance(listed, ListArg) or len(listed.items) < FEWEST:
        return None
    names = [item.node for item in listed.items if isinstance(item, Ref)]
    sketch = Sketch(graph)
    dim = node.args[1].value if len(node.args) > 1 and isinstance(node.args[1], Scalar) else 0
    shape = sketch.node(names[0]).out[0].shape
    if len(shape) != 2 or dim not in (0, 1) or len(names) < len(listed.items):
        return None
    together = Together(sketch)
    time = together.time_of(names)
    made = together.found(names, time)
    if made is None:
        return None
    if time != dim:
        made = sketch.packed(sketch.permute(made, (1, 0, 2)))
    return sketch.finished(node.name, sketch.view(made, node.out[0].shape))


class Together:
    """Finds what nodes of one shape, a step each, are together."""

    def __init__(self, sketch: Sketch) -> None:
        self._sketch = sketch

    def time_of(self, names: Sequence[str]) -> int:
        """The dimension from which steps are taken: 1 if what they are made of says so, else 0."""
        pending, seen = [names[0]], 0
        while pending and seen < _FAR:
            node, seen = self._sketch.node(pending.pop()), seen + 1
            step = self._step(node)
            if step is not None:
                return step[1]
            if base(node.op) in _ELEMENTWISE | {"addmm", "mm"}:
                pending += [arg.node for arg in node.args if isinstance(arg, Ref)]
        return 0

    def _step(self, node: Node) -> tuple[Ref, int, int] | None:
        """(tensor, dimension, position) of a step that a node takes out of a tensor of three."""
        source, numbers = node.args[0] if node.args else None, node.args[1:]
        if not isinstance(source, Ref) or node.kwargs:
            return None
        if node.op == "getitem":
            parts, (at,) = self._sketch.node(source.node), numbers
            if base(parts.op) != "unbind" or not isinstance(parts.args[0], Ref):
                return None
            source, numbers = parts.args[0], (*(parts.args[1:] or (Scalar(value=0),)), at)
        elif base(node.op) != "select":
            return None
        shape = self._sketch.shape(source)
        values = [one.value for one in numbers if isinstance(one, Scalar)]
        if len(shape) != 3 or len(values) != 2:
            return None
        dim = int(values[0] or 0) % 3
        return source, dim, int(values[1] or 0) % shape[dim]

    def all_of(self, names: Sequence[str], dim: int) -> Ref:
        """The nodes together, concatenated where nothing else makes them."""
        made = self.found(names, dim)
        if made is not None:
            return made
        sketch = self._sketch
        shape = sketch.node(names[0]).out[0].shape
        one = (shape[0], 1, shape[1]) if dim else (1, *shape)
        whole = (shape[0], len(names), shape[1]) if dim else (len(names), *shape)
        if len(set(names)) == 1:
            seen = sketch.view(Ref(node=names[0]), one)
            return sketch.call("expand.default", (seen, sizes(whole)), whole)
        parts = tuple(sketch.view(Ref(node=name), one) for name in names)
        return sketch.call("cat.default", (ListArg(items=parts), Scalar(value=dim)), whole)

    def found(self, names: Sequence[str], dim: int) -> Ref | None:
        """The nodes together; None where they are not made alike of parts of one tensor."""
        nodes = [self._sketch.node(name) for name in names]
        first = nodes[0]
        alike = all((one.op, one.kwargs, len(one.args)) == _kind(first) for one in nodes)
        if not alike or len(first.out) != 1 or len(first.out[0].shape) != 2:
            return None
        name = base(first.op)
        if name in ("select", "getitem"):
            return self._parts(nodes, dim)
        if name in ("mm", "addmm"):
            return self._multiplied(nodes, dim)
        return self._elementwise(nodes, dim) if name in _ELEMENTWISE else None

    def _parts(self, nodes: Sequence[Node], dim: int) -> Ref | None:
        """A tensor, or a stretch of it, whose steps the nodes are from first to last or back."""
        steps = [self._step(node) for node in nodes]
        if steps[0] is None or any(step is None or step[:2] != steps[0][:2] for step in steps):
            return None
        source, taken, _ = steps[0]
        places = [step[2] for step in steps if step is not None]
        first, last = min(places), max(places) + 1
        if taken != dim or last - first != len(places) or len(set(places)) < len(places):
            return None
        whole = self._sketch.cut(source, dim, first, last)
        if base(self._sketch.node(whole.node).op) not in _PACKED:
            whole = self._sketch.packed(whole)
        if places == sorted(places):
            return whole
        if places != sorted(places, reverse=True):
            return None
        return self._sketch.call("flip.default", (whole, sizes((dim,))), self._sketch.shape(whole))

    def _multiplied(self, nodes: Sequence[Node], dim: int) -> Ref | None:
        *bias, x, weight = nodes[0].args
        if nodes[0].kwargs or not isinstance(weight, Ref):
            return None
        if any((list(node.args[:-2]), node.args[-1]) != (bias, weight) for node in nodes):
            return None
        names = [node.args[-2].node for node in nodes if isinstance(node.args[-2], Ref)]
        whole = self.found(names, dim) if isinstance(x, Ref) else None
        flat_bias = all(isinstance(one, Ref) and len(self._sketch.shape(one)) == 1 for one in bias)
        if whole is None or not flat_bias:
            return None
        sketch = self._sketch
        one, two, features = sketch.shape(whole)
        rows = sketch.view(whole, (one * two, features))
        given = next((one for one in bias if isinstance(one, Ref)), None)
        made = sketch.product(rows, weight, given)
        return sketch.view(made, (one, two, sketch.shape(weight)[1]))

    def _elementwise(self, nodes: Sequence[Node], dim: int) -> Ref | None:
        args: list[Arg] = []
        for place, arg in enumerate(nodes[0].args):
            given = [node.args[place] for node in nodes]
            if all(one == arg for one in given):
                if isinstance(arg, Ref) and len(self._sketch.shape(arg)) > 1:
                    return None  # it would have to be spread over the steps
                args.append(arg)
                continue
            names = [one.node for one in given if isinstance(one, Ref)]
            whole = self.found(names, dim) if len(names) == len(nodes) else None
            if whole is None or not self._is_whole(names[0], nodes[0]):
                return None
            args.append(whole)
        tensors = [
            arg for arg in args if isinstance(arg, Ref) and len(self._sketch.shape(arg)) == 3
        ]
        if not tensors:
            return None
        shape = self._sketch.shape(tensors[0])
        return self._sketch.like(nodes[0], args, nodes[0].kwargs, *shape)

    def _is_whole(self, name: str, made: Node) -> bool:
        """Whether a tensor has the shape and type of what is made of it: nothing is broadcast."""
        return self._sketch.node(name).out[0] == made.out[0]


def _kind(node: Node) -> tuple[str, tuple[tuple[str, Arg], ...], int]:
    return node.op, node.kwargs, len(node.args)
