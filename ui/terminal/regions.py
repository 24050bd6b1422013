"""A model's regions as a table: share, time, what there is to gain, and what is left alone."""

from rich.table import Table
from rich.text import Text

from kernelwright.graphs.run_view.events import milliseconds
from kernelwright.tools.types.outline import ModelRegions

# Rows shorter than this share of the whole are counted, not shown.
LEAST_SHARE = 0.01


def regions_table(found: ModelRegions) -> Table:
    """Classes of equal regions by their time, then what stays PyTorch's and why."""
    table = Table(title="where the time goes", title_justify="left", box=None, padding=(0, 2))
    for name in ("region", "stands", "share", "PyTorch", "operators"):
        right = name in ("share", "PyTorch")
        table.add_column(name, justify="right" if right else "left", no_wrap=name != "operators")
    small = [item for item in found.classes if item.share < LEAST_SHARE]
    for item in sorted(found.classes, key=lambda one: -one.time_ms):
        if item not in small:
            took = milliseconds(item.time_ms)
            count = times_words(len(item.regions))
            table.add_row(item.name, count, f"{item.share:.0%}", took, Text(item.words))
    for kind in found.left:
        if kind.share >= LEAST_SHARE:
            took, words = milliseconds(kind.time_ms), f"{kind.words}: {kind.why}"
            count = times_words(kind.calls)
            table.add_row("-", count, f"{kind.share:.0%}", took, Text(words, "dim"))
    if small:
        words, share = (
            f"{len(small)} more, each below {LEAST_SHARE:.0%}",
            sum(s.share for s in small),
        )
        table.add_row("", "", f"{share:.0%}", "", Text(words, "dim"))
    return table


def times_words(count: int) -> str:
    """`23 times`, `once`."""
    return "once" if count == 1 else f"{count} times"
