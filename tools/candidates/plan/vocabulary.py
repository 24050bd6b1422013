"""Every word a plan may use. What is not listed here cannot be written."""

import ast
from collections.abc import Mapping

from kernelwright.tools.types import DType

DTYPES = frozenset(item.value for item in DType)

# Helper -> (least, most) number of arguments, keywords included.
HELPERS: Mapping[str, tuple[int, int]] = {
    "empty": (1, 2),
    "empty_like": (1, 2),
    "zeros": (1, 2),
    "zeros_like": (1, 2),
    "full": (2, 3),
    "full_like": (2, 3),
    "ceil_div": (2, 2),
    "min": (2, 16),
    "max": (2, 16),
    "int": (1, 1),
    "float": (1, 1),
    "abs": (1, 1),
    "len": (1, 1),
    "prod": (1, 1),
}
KEYWORDS: Mapping[str, frozenset[str]] = {
    "empty": frozenset({"dtype"}),
    "empty_like": frozenset({"dtype"}),
    "zeros": frozenset({"dtype"}),
    "zeros_like": frozenset({"dtype"}),
    "full": frozenset({"value", "dtype"}),
    "full_like": frozenset({"value", "dtype"}),
}
CONSTANTS = frozenset({"inf", "nan"})
# Helpers whose result is a number whatever they are given.
NUMERIC_HELPERS = frozenset({"ceil_div", "min", "max", "int", "float", "abs", "len", "prod"})
RESERVED = frozenset(
    {*HELPERS, *CONSTANTS, "launch", "update", "range", "aten", "weights", "prepared"}
)

# Reading a tensor without calling anything.
PROPERTIES = frozenset({"shape", "dtype", "ndim", "T", "mT"})
NUMERIC_METHODS = frozenset({"numel", "dim", "element_size", "storage_offset", "is_contiguous"})
# Views, and the few copies that only rearrange. `as_strided` is not among them: it could reach
# past the tensor into memory that the judge guards.
METHODS = NUMERIC_METHODS | frozenset(
    {
        "chunk",
        "contiguous",
        "diagonal",
        "expand",
        "expand_as",
        "flatten",
        "flip",
        "movedim",
        "narrow",
        "permute",
        "reshape",
        "select",
        "size",
        "split",
        "squeeze",
        "stride",
        "swapaxes",
        "t",
        "to",
        "transpose",
        "unbind",
        "unflatten",
        "unfold",
        "unsqueeze",
        "view",
        "view_as",
    }
)

GRID_LAUNCH = frozenset({"grid", "block", "args", "shared", "cluster"})
PLAIN_LAUNCH = frozenset({"args"})
# Where things are and how they are laid out is the judge's to say, and `out` would write to a
# tensor that a kernel or the judge owns.
FORBIDDEN_KEYWORDS = frozenset({"out", "device", "layout", "pin_memory", "generator"})

STATEMENTS: tuple[type[ast.stmt], ...] = (
    ast.Assign,
    ast.AugAssign,
    ast.Expr,
    ast.For,
    ast.If,
    ast.Pass,
    ast.Return,
)
EXPRESSIONS: tuple[type[ast.expr], ...] = (
    ast.Attribute,
    ast.BinOp,
    ast.BoolOp,
    ast.Call,
    ast.Compare,
    ast.Constant,
    ast.IfExp,
    ast.List,
    ast.Name,
    ast.Slice,
    ast.Starred,
    ast.Subscript,
    ast.Tuple,
    ast.UnaryOp,
)
OPERATORS: tuple[type[ast.AST], ...] = (
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.FloorDiv,
    ast.Mod,
    ast.Pow,
    ast.LShift,
    ast.RShift,
    ast.BitAnd,
    ast.BitOr,
    ast.BitXor,
    ast.UAdd,
    ast.USub,
    ast.Not,
    ast.Invert,
    ast.And,
    ast.Or,
    ast.Eq,
    ast.NotEq,
    ast.Lt,
    ast.LtE,
    ast.Gt,
    ast.GtE,
)
