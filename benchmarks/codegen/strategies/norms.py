"""Problems that normalise: a reduction of a row, then a pass that writes along it."""

import torch
import torch.nn.functional as F

from strategies.calls import called
from strategies.loops import Problem, Writer, rowwise


def softmax(rows: int = 4096, columns: int = 393216) -> Problem:
    """Softmax of rows, in three passes as traced."""
    w = Writer({"n": rows}, {"c": columns})
    x = w.load("x", n=columns, c=1)
    e = w.op("exp", w.op("sub", x, w.reduce("max", x)))
    w.store("y", w.op("div", e, w.reduce("sum", e)), n=columns, c=1)
    return Problem(
        f"softmax_{rows}x{columns}",
        w.program("softmax"),
        rowwise(rows, columns, "y", lambda x: torch.softmax(x, -1)),
        lambda d: torch.softmax(d["x"].view(rows, columns), -1),
    )


def _normalised(w: Writer, x: str, count: int) -> str:
    mean = w.reduce("moments", x)
    variance = w.op("div", f"{mean}_m2", w.const(float(count)))
    return w.op("mul", w.op("sub", x, mean), w.op("rsqrt", w.op("add", variance, w.const(1e-5))))


def layer_norm(rows: int = 16, columns: int = 4194304) -> Problem:
    """Layer norm of rows."""
    w = Writer({"n": rows}, {"c": columns})
    y = _normalised(w, w.load("x", n=columns, c=1), columns)
    y = w.op("fma", y, w.load("w", c=1), w.load("b", c=1))
    w.store("y", y, n=columns, c=1)

    def call(x, weight, bias):
        return F.layer_norm(x, (columns,), weight.double(), bias.double())

    return Problem(
        f"layer_norm_{rows}x{columns}",
        w.program("layer_norm"),
        rowwise(rows, columns, "y", call, "w", "b"),
        lambda d: F.layer_norm(d["x"].view(rows, columns), (columns,), d["w"], d["b"]),
    )


def group_norm(name: str, n: int, g: int, c: int, s: int) -> Problem:
    """Group norm of `n` images with `g` groups of `c` channels of `s` pixels."""
    w = Writer({"n": n, "g": g}, {"c": c, "s": s})
    steps = {"n": g * c * s, "g": c * s, "c": s, "s": 1}
    y = _normalised(w, w.load("x", **steps), c * s)
    w.store("y", w.op("fma", y, w.load("w", g=c, c=1), w.load("b", g=c, c=1)), **steps)

    def call(x, weight, bias):
        return F.group_norm(x.view(-1, g * c, s), g, weight.double(), bias.double())

    return Problem(
        name,
        w.program("group_norm"),
        rowwise(n, g * c * s, "y", call, "w", "b"),
        lambda d: F.group_norm(d["x"].view(n, g * c, s), g, d["w"], d["b"]),
    )


def instance_norm() -> Problem:
    """Instance norm without weights."""
    rows, columns = 112 * 64, 512 * 512
    w = Writer({"n": rows}, {"s": columns})
    w.store("y", _normalised(w, w.load("x", n=columns, s=1), columns), n=columns, s=1)
    return Problem(
        "instance_norm",
        w.program("instance_norm"),
        rowwise(rows, columns, "y", lambda x: F.layer_norm(x, (columns,))),
        lambda d: F.instance_norm(d["x"].view(112, 64, 512, 512)),
    )


def batch_norm() -> Problem:
    """Batch norm over (N, HW), training statistics."""
    n, c, s = 64, 64, 512 * 512
    w = Writer({"c": c}, {"n": n, "s": s})
    steps = {"n": c * s, "c": s, "s": 1}
    y = _normalised(w, w.load("x", **steps), n * s)
    w.store("y", w.op("fma", y, w.load("w", c=1), w.load("b", c=1)), **steps)

    def truth(data):
        x = data["x"].view(n, c, s)
        for at in range(c):
            one = x[:, at].double()
            y = (one - one.mean()) / (one.var(unbiased=False) + 1e-5).sqrt()
            y = y * data["w"][at].double() + data["b"][at].double()
            for row in range(0, n, 16):
                yield "y", (row * c + at) * s, y[row]

    def eager(d):
        return F.batch_norm(d["x"].view(n, c, s), None, None, d["w"], d["b"], True)

    return Problem("batch_norm", w.program("batch_norm"), truth, eager)


def rms_norm() -> Problem:
    """RMS norm over dimension 1 of NCHW."""
    n, c, s = 112, 64, 512 * 512
    w = Writer({"n": n, "s": s}, {"c": c})
    steps = {"n": c * s, "c": s, "s": 1}
    x = w.load("x", **steps)
    mean = w.op("div", w.reduce("sum", w.op("square", x)), w.const(float(c)))
    root = w.op("sqrt", w.op("add", mean, w.const(1e-5)))
    w.store("y", w.op("div", x, root), **steps)

    def call(x):
        x = x.view(-1, c, s)
        return x / (x.square().mean(1, keepdim=True) + 1e-5).sqrt()

    return Problem(
        "rms_norm_dim1",
        w.program("rms_norm"),
        rowwise(n, c * s, "y", call),
        lambda d: (lambda x: x / torch.sqrt(torch.mean(x**2, 1, keepdim=True) + 1e-5))(
            d["x"].view(n, c, s)
        ),
    )


def l1_norm() -> Problem:
    """Rows of an odd length over the mean of their sizes: no vector is aligned."""
    return called("l1_norm", lambda x: x / x.abs().mean(1, keepdim=True), (32768, 65535))


def frobenius_norm() -> Problem:
    """Everything over the root of the sum of its squares: one row that fits nowhere."""
    return called(
        "frobenius_norm",
        lambda x: x / torch.linalg.vector_norm(x),
        (112, 64, 512, 512),
        apart=False,
    )
