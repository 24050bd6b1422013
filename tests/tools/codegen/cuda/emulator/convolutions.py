"""Convolutions as loops, for the emulator and for a device."""

from __future__ import annotations

from typing import Any


def convolution(build: Any, kind: str, step: int, gap: int, channels: int) -> Any:
    """A window of 3 x 2 over two images, padded by one, with a bias; in float32 as TF32."""
    outputs, height, width, down, across = 40, 13, 18, 3, 2
    rows = (height + 2 - gap * (down - 1) - 1) // step + 1
    columns = (width + 2 - gap * (across - 1) - 1) // step + 1
    b = build(
        {"n": 2, "o": outputs, "h": rows, "w": columns}, {"c": channels, "r": down, "s": across}
    )

    def place(output: str, tap: str) -> str:
        moved = b.op("mul", b.index(output), b.const(step, "int64"), dtype="int64")
        along = b.op("mul", b.index(tap), b.const(gap, "int64"), dtype="int64")
        start = b.op("add", moved, b.const(-1, "int64"), dtype="int64")
        return b.op("add", start, along, dtype="int64")

    inside = ""
    for at, size in ((place("h", "r"), height), (place("w", "s"), width)):
        for op, limit in (("ge", 0), ("lt", size)):
            holds = b.op(op, at, b.const(limit, "int64"), dtype="bool")
            inside = b.op("logical_and", inside, holds, dtype="bool") if inside else holds
    image = height * width
    steps = {"n": channels * image, "c": image, "h": width * step, "w": step, "r": width * gap}
    x = b.load("x", kind, offset=-width - 1, when=inside, **steps, s=gap)
    weight = b.load("k", kind, o=channels * down * across, c=down * across, r=across, s=1)
    as_kind = (
        {"op": "tf32", "dtype": "float32"} if kind == "float32" else {"op": "cast", "dtype": kind}
    )
    factors = (b.op(as_kind["op"], one, dtype=as_kind["dtype"]) for one in (x, weight))
    total = b.op("add", b.reduce("sum", b.op("mul", *factors)), b.load("bias", kind, o=1))
    made = {"n": outputs * rows * columns, "o": rows * columns, "h": columns, "w": 1}
    b.store("y", b.op("relu", total), kind, **made)
    return b
