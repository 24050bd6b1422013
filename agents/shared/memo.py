"""What was worked out of a value once, kept as long as that value lives.

Every question to a model looks at all candidates of a run again, a thousand of them after a while,
and an archive hands out the same objects each time.
"""

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import ref

Key = TypeVar("Key")
Result = TypeVar("Result")


class ByIdentity(Generic[Key, Result]):
    """Remembers the results of a function for as long as the value lives that it was given.

    By identity, as hashing a frozen value with thousands of samples costs more than most of what is
    worked out of it. Not for values that are made anew at every reading.

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
