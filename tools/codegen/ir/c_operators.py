"""Operators that every language of C's family writes alike.

Not here: logical operators (a GPU may branch over them, vectors of a CPU may not), division and
what the preludes have functions for.
"""

from collections.abc import Mapping

ARITHMETIC: Mapping[str, str] = {"add": "+", "sub": "-", "mul": "*"}
COMPARE: Mapping[str, str] = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
BITWISE: Mapping[str, str] = {"bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^"}
