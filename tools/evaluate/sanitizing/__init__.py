"""Finalists watched while they run: accesses out of bounds, races, undefined behaviour.

On a GPU by compute-sanitizer, on a CPU by a build with the compiler's own sanitizers. Always after
everything was timed, never for every candidate; where a tool does not work, that is said.
"""

from tools.evaluate.sanitizing.device import sanitized
from tools.evaluate.sanitizing.host import sanitized_here

__all__ = ["sanitized", "sanitized_here"]
