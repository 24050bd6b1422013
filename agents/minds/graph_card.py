"""A traced graph as lines a person can read: one operation a line, shapes and types behind it.

`y = add(x, w["bias"])  # float32[64, 128]`. Names are the trace's; views and calls stay in the
trace's order. Graphs of thousands of nodes are cut in the middle, as their ends say most.
"""

from tools.nouns import Arg, DTypeArg, Graph, ListArg, Node, Ref, Scalar, TensorSpec

_QUIET = frozenset({"input", "weight", "constant"})


def graph_lines(graph: Graph, limit: int) -> tuple[str, ...]:
    """At most `limit` lines, and one that says how many were left out."""
    named = {node.name: _leaf(node) for node in graph.nodes if node.op in _QUIET}
    lines = [_line(node, named) for node in graph.nodes if node.op not in _QUIET]
    lines += [f"{item.target} <- {named.get(item.node, item.node)}" for item in graph.mutations]
    lines.append(f"return {', '.join(named.get(name, name) for name in graph.outputs)}")
    if len(lines) <= limit:
        return tuple(lines)
    head = limit * 2 // 3
    left_out = f"... {len(lines) - limit} operations left out ..."
    return (*lines[:head], left_out, *lines[len(lines) - (limit - head) :])


def shown_spec(spec: TensorSpec) -> str:
    """Type, shape, and strides where they are not the contiguous ones."""
    strides = f" strides {list(spec.strides)}" if spec.strides is not None else ""
    return f"{spec.dtype.value}{list(spec.shape)}{strides}"


def _line(node: Node, named: dict[str, str]) -> str:
    made = " and ".join(shown_spec(spec) for spec in node.out)
    args = [_shown(arg, named) for arg in node.args]
    args += [f"{name}={_shown(arg, named)}" for name, arg in node.kwargs]
    return f"{node.name} = {_operator(node.op)}({', '.join(args)})  # {made}"


def _operator(op: str) -> str:
    """`aten.add.Tensor` as `add`: overloads tell a person nothing that the arguments do not."""
    return op.removeprefix("aten.").split(".")[0]


def _leaf(node: Node) -> str:
    return f'w["{node.target}"]' if node.op == "weight" and node.target else node.name


def _shown(arg: Arg, named: dict[str, str]) -> str:
    match arg:
        case Ref(node=node):
            return named.get(node, node)
        case Scalar(value=value):
            return repr(value)
        case DTypeArg(value=dtype):
            return dtype.value
        case ListArg(items=items):
            return f"[{', '.join(_shown(item, named) for item in items)}]"
