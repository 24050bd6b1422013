"""What was worked out of a value is kept for as long as the value lives.

By identity, as hashing a frozen value with thousands of samples costs more than most of what is
worked out of it. Not for values that are made anew at every reading.
"""

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import ref

Key = TypeVar("Key")
Result = TypeVar("Result")


class ByIdentity(Generic[Key, Result]):
    """Remembers the results of a function.

    Args:
        work_out: The function; its result must depend on nothing but its argument.
    """

    def __init__(self, work_out: Callable[[Key], Result]) -> None:
        self._work_out = work_out
        self._known: dict[int, tuple[ref[Key], Result]] = {}

    def of(self, key: Key) -> Result:
        """The result for this very object."""
        name = id(key)
        held = self._known.get(name)
        if held is not None and held[0]() is key:
            return held[1]
        result = self._work_out(key)
        self._known[name] = ref(key, lambda _: self._known.pop(name, None)), result
        return result
