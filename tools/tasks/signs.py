"""Which inputs reach an operator that is undefined for some values (logarithm, root, arcsine).

A small sign analysis over the graph: what is known to be non-negative whatever the inputs are
(an exponential, a square, a variance, sums of those) may safely reach a logarithm. It errs on
the safe side: what it does not know, it takes for possibly negative.
"""

from __future__ import annotations

from functools import lru_cache

from kernelwright.tools.types import Arg, Graph, ListArg, Node, Ref, Scalar
from kernelwright.tools.types.operators import base, refs, words

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
