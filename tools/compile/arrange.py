"""The text that a compiler really sees: the kernel with its tunables as macros."""

import re
from collections.abc import Sequence

from tools.nouns import Setting

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b[^\n]*$", re.MULTILINE)


def with_macros(kernel: str, settings: Sequence[Setting]) -> str:
    """The kernel with one `#define` a tunable after its last include.

    Not on the command line: there a tunable called N or T would rewrite the system's headers.
    A `#line` keeps the compiler's line numbers those of the kernel as written.
    """
    if not settings:
        return kernel
    macros = "".join(f"#define {item.name} {_literal(item.value)}\n" for item in settings)
    last = max((found.end() for found in _INCLUDE.finditer(kernel)), default=0)
    head, tail = kernel[:last], kernel[last:].removeprefix("\n")
    line = head.count("\n") + (2 if head else 1)
    return f"{head}{chr(10) if head else ''}{macros}#line {line}\n{tail}"


def _literal(value: int) -> str:
    return str(value) if value >= 0 else f"({value})"
