"""Tasks: from a user's file to a reference to beat, as a value.

A file is executed here, traced to an ATen graph, measured in bytes and FLOPs, and later rebuilt
as the `Reference` that candidates are compared with. All of it runs in worker processes; this
package imports torch (and the user's file) only when one of its functions is called.

`sources` finds the file that a person means, `loading` executes it and makes its module and inputs,
`graph` traces that, and `tracing` goes all the way to a `Task`. From a model, `parts`, `outline`
and `regions` are what of it can be optimised by itself; `gradients` is its backward.
What is not covered: limits on time and memory (the worker's), and judging candidates.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from kernelwright.tools.tasks.inputs.variations import DISTRIBUTIONS, PROBES, SHORTENED, applicable
from kernelwright.tools.tasks.refusals import read_source

if TYPE_CHECKING:
    from kernelwright.tools.tasks.inputs.draws import draw
    from kernelwright.tools.tasks.reference import Reference
    from kernelwright.tools.tasks.tracing import import_exporter, rehearse, trace

__all__ = [
    "DISTRIBUTIONS",
    "PROBES",
    "SHORTENED",
    "Reference",
    "applicable",
    "draw",
    "import_exporter",
    "read_source",
    "rehearse",
    "trace",
]

_NEEDS_TORCH = {
    "Reference": "kernelwright.tools.tasks.reference",
    "draw": "kernelwright.tools.tasks.inputs.draws",
    "import_exporter": "kernelwright.tools.tasks.tracing",
    "rehearse": "kernelwright.tools.tasks.tracing",
    "trace": "kernelwright.tools.tasks.tracing",
}


def __getattr__(name: str) -> object:
    """Import what needs torch on first use, so that importing this package stays light."""
    if name not in _NEEDS_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_NEEDS_TORCH[name]), name)
