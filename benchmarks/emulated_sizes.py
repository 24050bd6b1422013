"""The text of a KernelBench-style file with its module-level sizes made small.

Integers that stand in assignments at module level are scaled alike: each is halved until it is no
larger than a cap, so that channels stay multiples of groups, and then made odd where that is asked.
Nothing else is touched. A file whose meaning breaks at a size says so when it is traced.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Literal

Kind = Literal["even", "odd", "one"]
# What comes first in a tensor is repeated work: few of it show every mistake.
_ROWS = ("batch", "rows")
_MOST_ROWS = 4


def resized(source: str, cap: int, kind: Kind) -> str:
    """The file's text with sizes of at most `cap`.

    Args:
        source: the file's text.
        cap: the largest size; what is smaller stays as it is.
        kind: "even" halves only, "odd" takes one off what was halved, "one" has batches of one.
    """
    places = sorted(_places(ast.parse(source)), key=lambda at: (at[0].lineno, at[0].col_offset))
    lines = source.splitlines(keepends=True)
    for constant, name in reversed(places):
        text = lines[constant.lineno - 1].encode()
        new = str(_smaller(int(str(constant.value)), name, cap, kind)).encode()
        end = constant.end_col_offset or 0
        lines[constant.lineno - 1] = (text[: constant.col_offset] + new + text[end:]).decode()
    return "".join(lines)


def typed(source: str, dtype: str, *, transposed: bool = False) -> str:
    """The file with one more class, `Typed`: the model and its inputs in another type or layout."""
    kinds = {"float16", "bfloat16", "float64"}
    convert = f".to(torch.{dtype})" if dtype in kinds else ""
    turned = ".transpose(-1, -2).contiguous().transpose(-1, -2)" if transposed else ""
    return f"""{source}

import torch as _torch
_plain_inputs = get_inputs
class Typed(Model):
    def __init__(self, *args):
        super().__init__(*args)
        {f"self.to(_torch.{dtype})" if convert else "pass"}
def _turned(x):
    return x{turned} if x.dim() > 1 else x
def get_inputs():
    return [
        _turned(x){convert.replace("torch", "_torch")}
        if isinstance(x, _torch.Tensor) and x.is_floating_point() else x
        for x in _plain_inputs()
    ]
"""


def _places(tree: ast.Module) -> Iterator[tuple[ast.Constant, str]]:
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            name = " ".join(t.id for t in statement.targets if isinstance(t, ast.Name))
            for node in ast.walk(statement.value):
                if isinstance(node, ast.Constant) and type(node.value) is int:
                    yield node, name


def _smaller(value: int, name: str, cap: int, kind: Kind) -> int:
    rows = any(word in name for word in _ROWS)
    if rows and kind == "one":
        return 1
    most = min(cap, _MOST_ROWS) if rows else cap
    small = value
    while small > most:
        small //= 2
    return small - 1 if kind == "odd" and small < value and small % 2 == 0 and small > 2 else small
