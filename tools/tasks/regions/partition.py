"""Cuts an outline into regions between the operators that stay with the library.

Every node has a depth: how many boundary operators lie on the longest way to it. A region is a
connected set of nodes of one depth. Depth never falls along an edge, so nothing that leaves a
region comes back into it, and regions can be put in an order.

Views alone compute nothing, so a region has none at its end and none by themselves. With
`joined`, a product of matrices, a convolution or attention begins a region instead of standing
between two: where kernels of ours compute those too, what follows can be fused with them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise

from kernelwright.tools.types.graph import DRAWS, Graph, Node, base, draws, refs, words
from kernelwright.tools.types.outline import Region

CONTRACTIONS = words(
    "addbmm addmm baddbmm bilinear bmm conv1d conv2d conv3d conv_transpose1d conv_transpose2d "
    "conv_transpose3d convolution convolution_backward einsum linear matmul mm "
    "scaled_dot_product_attention tensordot _scaled_dot_product_flash_attention_for_cpu "
    "_scaled_dot_product_flash_attention_for_cpu_backward _scaled_dot_product_flash_attention "
    "_scaled_dot_product_efficient_attention"
)
_RECURRENT = words("gru lstm rnn_relu rnn_tanh")
_SORTED = words(
    "_unique2 argsort bucketize histc bincount kthvalue median mode searchsorted sort topk "
    "unique_consecutive unique_dim masked_select nonzero masked_scatter renorm"
)
_VALUES = words("_local_scalar_dense item")
_TRANSFORMS = words(
    "_fft_c2c _fft_c2r _fft_r2c cholesky_inverse linalg_cholesky_ex linalg_inv_ex linalg_qr "
    "linalg_solve_ex linalg_solve_triangular triangular_solve _linalg_det _linalg_solve_ex "
    "_linalg_svd complex fft_fft polar view_as_complex view_as_real"
)
_VIEWS = words(
    "_unsafe_view alias chunk detach diagonal expand getitem movedim narrow permute reshape select "
    "slice split split_with_sizes squeeze t transpose unbind unfold unsqueeze view view_as"
)
_SOURCES = words("input weight constant")

_WHY_COMPLEX = "our kernels compute no transforms and no complex values"
WHY_CONTRACTION = "stays with the library, which is at its best there"
_REASONS: tuple[tuple[frozenset[str], str], ...] = (
    (CONTRACTIONS, WHY_CONTRACTION),
    (_RECURRENT, "a recurrent layer is one operator of the library's"),
    (_SORTED, "its results' order or size depends on values"),
    (_VALUES, "it takes a number out of a tensor"),
    (_TRANSFORMS, _WHY_COMPLEX),
    (DRAWS, "it draws random numbers, which are the generator's"),
)


def boundary(node: Node, nodes: dict[str, Node]) -> str:
    """Why no region may hold this node, for what it is or reads; "" where one may."""
    if node.op in _SOURCES:
        return ""
    name = base(node.op)
    found = next((why for names, why in _REASONS if name in names), "")
    if found:
        return found
    read = [spec for at in refs(node) for spec in nodes[at].out]
    if any(spec.dtype.is_complex for spec in (*read, *node.out)):
        return _WHY_COMPLEX
    return "" if node.op.startswith("aten.") or node.op == "getitem" else "it is not PyTorch's own"


def is_view(node: Node) -> bool:
    """Whether it only says how its argument is looked at."""
    return base(node.op) in _VIEWS


def find_regions(graph: Graph, *, joined: bool = False) -> tuple[Region, ...]:
    """The regions of an outline, in the order of their first nodes; times are not known here."""
    nodes = {node.name: node for node in graph.nodes}
    members = _members(graph, nodes, joined=joined)
    users = _users(graph)
    groups = (_without_last_views(group, nodes, users) for group in members)
    return tuple(
        _region(group, nodes, users, _kept(graph)) for group in groups if _computes(group, nodes)
    )


def boundaries(graph: Graph) -> int:
    """How many operators of a graph, an outline or not, stay with the library."""
    nodes = {node.name: node for node in graph.nodes}
    return sum(bool(boundary(node, nodes)) for node in graph.nodes)


def _members(graph: Graph, nodes: dict[str, Node], *, joined: bool) -> list[list[str]]:
    """Connected nodes of one depth, which every boundary operator raises by one."""
    depth: dict[str, int] = {}
    leader: dict[str, str] = {}
    for node in graph.nodes:
        sources = refs(node)
        stays = bool(boundary(node, nodes))
        depth[node.name] = max((depth[at] for at in sources), default=0) + stays
        if node.op in _SOURCES or (stays and not (joined and base(node.op) in CONTRACTIONS)):
            continue
        if node.op == "getitem" and sources[0] not in leader:
            continue
        leader[node.name] = node.name
        for at in sources:
            if at in leader and depth[at] == depth[node.name]:
                leader[_first(leader, at)] = _first(leader, node.name)
    found: dict[str, list[str]] = {}
    for name in leader:
        found.setdefault(_first(leader, name), []).append(name)
    return list(found.values())


def _first(leader: dict[str, str], name: str) -> str:
    while leader[name] != name:
        name = leader[name]
    return name


def _users(graph: Graph) -> dict[str, list[str]]:
    users: dict[str, list[str]] = {node.name: [] for node in graph.nodes}
    for node in graph.nodes:
        for at in dict.fromkeys(refs(node)):
            users[at].append(node.name)
    return users


def _without_last_views(
    group: list[str], nodes: dict[str, Node], users: dict[str, list[str]]
) -> list[str]:
    """Without views that only somebody outside looks through."""
    left = dict.fromkeys(group)
    for name in reversed(group):
        inside = any(user in left for user in users[name])
        tensor = nodes[name].op != "getitem" or is_view(nodes[refs(nodes[name])[0]])
        if is_view(nodes[name]) and tensor and not inside:
            del left[name]
    return list(left)


def _computes(group: list[str], nodes: dict[str, Node]) -> bool:
    """Whether it makes new values out of some that it is given."""
    inside = set(group)
    read = {at for name in group for at in refs(nodes[name])} - inside
    given = any(nodes[at].op not in ("weight", "constant") for at in read)
    return given and any(not is_view(nodes[name]) for name in group)


def _region(
    group: list[str], nodes: dict[str, Node], users: dict[str, list[str]], kept: set[str]
) -> Region:
    inside = set(group)
    read = dict.fromkeys(at for name in group for at in refs(nodes[name]) if at not in inside)
    weights = tuple(at for at in read if nodes[at].op in ("weight", "constant"))
    left = (name for name in group if name in kept or any(u not in inside for u in users[name]))
    return Region(
        nodes=tuple(group),
        inputs=tuple(at for at in read if at not in weights),
        weights=weights,
        outputs=tuple(left),
    )


def _kept(graph: Graph) -> set[str]:
    """What the forward returns, and what it writes into buffers."""
    return {*graph.outputs, *(mutation.node for mutation in graph.mutations)}


def in_order(graph: Graph, regions: Iterable[Region]) -> Iterator[Node | Region]:
    """Regions, and the nodes that are in none, each behind everything that it reads.

    What draws random numbers comes in the graph's order.
    """
    home = {name: region for region in regions for name in region.nodes}
    nodes = {node.name: node for node in graph.nodes}
    drawn = [node.name for node in graph.nodes if draws(node.op)]
    before = {name: [first] for first, name in pairwise(drawn)}
    done: set[str] = set()

    def unit(name: str) -> Node | Region:
        return home.get(name) or nodes[name]

    def needs(one: Node | Region) -> list[str]:
        if isinstance(one, Region):
            return [*one.inputs, *one.weights]
        return [*refs(one), *before.get(one.name, ())]

    for node in graph.nodes:
        waiting = [unit(node.name)]
        while waiting:
            one = waiting[-1]
            made = one.nodes if isinstance(one, Region) else (one.name,)
            missing = [unit(at) for at in needs(one) if at not in done]
            if made[0] in done or not missing:
                waiting.pop()
                if made[0] not in done:
                    done.update(made)
                    yield one
            else:
                waiting.extend(missing)
