"""Verified kernels inside `torch.compile(model, backend="kernelwright")`.

Nothing is searched and nothing is judged here: what the user's library has certified on this device
for the very operators, shapes and layouts of a graph's regions is put in their place, and Inductor
compiles all else.
"""

from kernelwright.tools.dynamo.report import Spliced, spliced

__all__ = ["Spliced", "spliced"]
