"""Every executor by its name: adding one is a folder and a line here.

A line says which package or module holds the executor's kind; it is imported when it is asked for,
so that a command line knows the names without waiting for what evaluates.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernelwright.tools.evaluate.executors.base.kind import ExecutorKind

DEFAULT = "local"
EXECUTORS = {
    "local": "kernelwright.tools.evaluate.executors.local",
    "batch": "kernelwright.tools.evaluate.executors.batch",
    "ray": "kernelwright.tools.evaluate.executors.cluster",
}


def executor_kind(name: str) -> "ExecutorKind":
    """The kind of that name.

    Raises:
        ValueError: When there is none; the message lists those there are.
    """
    from kernelwright.tools.evaluate.executors.base.kind import ExecutorKind

    if name not in EXECUTORS:
        raise ValueError(f"executor {name!r} is not one of {', '.join(map(repr, EXECUTORS))}")
    kind: object = import_module(EXECUTORS[name]).KIND
    if not isinstance(kind, ExecutorKind):
        raise TypeError(f"KIND of {EXECUTORS[name]} is no ExecutorKind")
    return kind
