"""What was put into graphs that this process compiled, and why nothing was put into others."""

import logging

from kernelwright.tools.types.value import Value

log = logging.getLogger("kernelwright")

_KEPT = 1000


class Spliced(Value):
    """One class of equal regions of a graph, or a graph that was left to Inductor.

    Attributes:
        graph: which graph, counted from 1 in this process.
        words: the operators of the region; "" for a whole graph.
        places: in how many places of the graph the kernel stands; 0 where none does.
        source: the kernel in the library, as `softmax of 4096 x 1024 float32, run ...`.
        ratio: the baseline's time over the kernel's, as certified by itself.
        why: why it was left to Inductor; "" where a kernel stands.
    """

    graph: int
    words: str = ""
    places: int = 0
    source: str = ""
    ratio: float = 0.0
    why: str = ""


_found: list[Spliced] = []
_graphs = 0


def spliced() -> tuple[Spliced, ...]:
    """What `torch.compile(..., backend="kernelwright")` did in this process, in order."""
    return tuple(_found)


def next_graph() -> int:
    """The number of one more graph."""
    global _graphs
    _graphs += 1
    return _graphs


def tell(item: Spliced) -> None:
    """Keep what was done, and log it."""
    _found.append(item)
    del _found[:-_KEPT]
    if item.why:
        what = f"{item.words}: " if item.words else ""
        log.info("graph %d: %sleft to Inductor: %s", item.graph, what, item.why)
    else:
        log.info("graph %d: %s in %d places: %s", item.graph, item.words, item.places, item.source)
