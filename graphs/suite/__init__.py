"""Suites: many task files searched one after the other, and what they amount to together.

`run_suite` yields one `Outcome` a file, whatever became of it; `Figures` sums outcomes up, and
`contrast` holds two result files against each other.
"""

from graphs.suite.contrast import Contrast, contrast
from graphs.suite.figures import Figures, figures
from graphs.suite.files import task_files
from graphs.suite.one import Ground
from graphs.suite.outcome import Against, Outcome, Terms
from graphs.suite.pace import Pace, pace
from graphs.suite.results import append, read, torn
from graphs.suite.runner import run_suite

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
