"""Problems that reduce, scan or only map: sums, losses, running sums, an activation."""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from strategies.calls import called
from strategies.loops import Problem, Writer, rowwise


def swish() -> Problem:
    """A swish, elementwise."""
    w = Writer({"n": 4096, "c": 393216}, {})
    x = w.load("x", n=393216, c=1)
    w.store("y", w.op("mul", x, w.op("sigmoid", x)), n=393216, c=1)
    return Problem(
        "swish",
        w.program("swish"),
        rowwise(4096, 393216, "y", F.silu),
        lambda d: d["x"] * torch.sigmoid(d["x"]),
    )


def relu() -> Problem:
    """The least that a kernel can do: the library is at the floor."""
    return called("relu", torch.relu, (4096, 393216))


def middle(name: str, kind: str, dtype: str, call: Callable) -> Problem:
    """A reduction over the middle dimension, whose rows have an odd length."""
    n, r, c = 128, 4096, 4095
    w = Writer({"n": n, "c": c}, {"r": r})
    x = w.load("x", n=r * c, r=c, c=1)
    w.store("y", w.reduce(kind, x, dtype), dtype, n=c, c=1)
    return Problem(
        name,
        w.program(name),
        rowwise(n, r * c, "y", lambda x: call(x.view(-1, r, c), 1)),
        lambda d: call(d["x"].view(n, r, c), 1),
    )


def channel_moments() -> Problem:
    """Means and sums of squared distances of channels that lie last."""
    channels, n = 64, 128 * 126 * 126
    w = Writer({"c": channels}, {"n": n})
    mean = w.reduce("moments", w.load("x", n=channels, c=1))
    w.store("mean", mean, c=1)
    w.store("squares", f"{mean}_m2", c=1)

    def truth(data):
        x = data["x"].view(n, channels)
        columns = [x[:, at].double() for at in range(channels)]
        yield "mean", 0, torch.stack([one.mean() for one in columns])
        yield "squares", 0, torch.stack([one.var(unbiased=False) * n for one in columns])

    return Problem(
        "channel_moments",
        w.program("channel_moments"),
        truth,
        lambda d: torch.var_mean(d["x"].view(n, channels), 0),
    )


def total(rows: int = 1 << 30) -> Problem:
    """The sum of everything."""
    w = Writer({}, {"n": rows})
    w.store("y", w.reduce("sum", w.load("x", n=1)))
    return Problem(
        "sum_all",
        w.program("sum_all"),
        rowwise(1, rows, "y", lambda x: x.sum(-1)),
        lambda d: d["x"].sum(),
    )


def cumulative_sum() -> Problem:
    """Running sums of square rows."""
    n = 32768
    w = Writer({"n": n}, {"c": n})
    w.store("y", w.scan("sum", w.load("x", n=n, c=1)), n=n, c=1)
    return Problem(
        "cumsum",
        w.program("cumsum"),
        rowwise(n, n, "y", lambda x: x.cumsum(-1)),
        lambda d: d["x"].view(n, n).cumsum(-1),
    )


def exclusive_sum() -> Problem:
    """Running sums of what lies before each element, as lowering makes them of a `cat`."""
    n = 32768
    w = Writer({"n": n}, {"c": n})
    inside = w.op("ge", w.index("c"), w.const(1, "int64"), dtype="bool")
    x = w.load("x", size=n * n, offset=-1, when=inside, n=n, c=1)
    w.store("y", w.scan("sum", w.op("where", inside, x, w.const(0.0))), n=n, c=1)

    def exclusive(x):
        return torch.cat((torch.zeros_like(x[:, :1]), x[:, :-1].cumsum(-1)), 1)

    return Problem(
        "cumsum_exclusive",
        w.program("cumsum_exclusive"),
        rowwise(n, n, "y", exclusive),
        lambda d: exclusive(d["x"].view(n, n)),
    )


def huber() -> Problem:
    """The mean Huber loss of two matrices."""
    n = 32768
    w = Writer({}, {"n": n, "c": n})
    gap = w.op("sub", w.load("x", n=n, c=1), w.load("t", n=n, c=1))
    size = w.op("abs", gap)
    near = w.op("lt", size, w.const(1.0), dtype="bool")
    inside = w.op("mul", w.op("square", gap), w.const(0.5))
    loss = w.op("where", near, inside, w.op("sub", size, w.const(0.5)))
    w.store("y", w.op("div", w.reduce("sum", loss), w.const(float(n * n))))

    def truth(data):
        x, t = data["x"].view(n, n), data["t"].view(n, n)
        parts = [
            F.smooth_l1_loss(x[i : i + 4096].double(), t[i : i + 4096].double(), reduction="sum")
            for i in range(0, n, 4096)
        ]
        yield "y", 0, torch.stack(parts).sum().reshape(1) / (n * n)

    return Problem("huber", w.program("huber"), truth, lambda d: F.smooth_l1_loss(d["x"], d["t"]))


def cross_entropy() -> Problem:
    """Cross-entropy of rows, not reduced."""
    n, c = 32768, 4096
    w = Writer({"n": n}, {"c": c})
    x = w.load("x", n=c, c=1)
    target = w.load("t", "int64", n=1)
    top = w.reduce("max", x)
    total_ = w.reduce("sum", w.op("exp", w.op("sub", x, top)))
    chosen = w.load("x", n=c, **{target: 1})
    w.store("y", w.op("sub", w.op("add", top, w.op("log", total_)), chosen), n=1)

    def truth(data):
        x = data["x"].view(n, c).double()
        yield "y", 0, F.cross_entropy(x, data["t"], reduction="none")

    return Problem(
        "cross_entropy",
        w.program("cross_entropy"),
        truth,
        lambda d: F.cross_entropy(d["x"].view(n, c), d["t"], reduction="none"),
        {"t": c},
    )
