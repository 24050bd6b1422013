"""The plan: the host side of a candidate, in a subset of Python checked by allow-list.

A plan reads shapes, allocates, takes views, launches and calls admitted library operators. It
cannot import, catch, loop without bound, keep state or see anything outside its arguments.
"""

from kernelwright.tools.candidates.plan.validate import Plan, library_calls, validate_plan
from kernelwright.tools.candidates.plan.vocabulary import ADMITTED

__all__ = ["ADMITTED", "Plan", "library_calls", "validate_plan"]
