"""Suites: many task files searched one after the other, and what they amount to together.

`run_suite` yields one `Outcome` a file, whatever became of it; `Figures` sums outcomes up, and
`contrast` holds two result files against each other.
"""

from kernelwright.graphs.suite.figures import Contrast, Figures, Pace, contrast, figures, pace
from kernelwright.graphs.suite.outcome import (
    Against,
    Outcome,
    Terms,
    append,
    read,
    task_files,
    torn,
)
from kernelwright.graphs.suite.runner import Ground, run_suite

__all__ = [
    "Against",
    "Contrast",
    "Figures",
    "Ground",
    "Outcome",
    "Pace",
    "Terms",
    "append",
    "contrast",
    "figures",
    "pace",
    "read",
    "run_suite",
    "task_files",
    "torn",
]
