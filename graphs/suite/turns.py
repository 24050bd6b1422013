"""Gives out the files of a suite, in one process or among several.

Several processes mark what they take by files that are created exclusively, which is atomic among
processes and needs nobody who answers: a process that ends at any moment keeps the others from
nothing but the file that it had begun.
"""

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol


class Turns(Protocol):
    """Gives out files."""

    def begin(self) -> Path | None:
        """The next file to do, which is this process's from now on; None when there is none."""
        ...

    def ahead(self) -> Path | None:
        """The file that is likely to be begun next, to be read beforehand; None when none is."""
        ...


class InOrder:
    """One file after the other, for one process."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._left = deque(files)

    def begin(self) -> Path | None:
        """The next one."""
        return self._left.popleft() if self._left else None

    def ahead(self) -> Path | None:
        """The one after it."""
        return self._left[0] if self._left else None


class Shared:
    """Each file for the process that comes first.

    Who reads a file ahead sets it aside, so that no other one reads it too. It is no promise: when
    nothing else is left a process begins what another one has set aside and not begun, which may
    be busy with a slow file, or dead.

    Args:
        files: All files of the suite, the same in every process.
        marks: A folder for the marks, empty at first.
    """

    def __init__(self, files: Sequence[Path], marks: Path) -> None:
        self._files, self._marks = tuple(files), marks
        self._aside: tuple[int, ...] = ()

    def begin(self) -> Path | None:
        """What this process has set aside, else what nobody has, else what another one has."""
        everything = range(len(self._files))
        free = [number for number in everything if not self._is_marked(number, "aside")]
        wanted, self._aside = (*self._aside, *free, *everything), ()
        number = next((number for number in wanted if self._mark(number, "begun")), None)
        return None if number is None else self._files[number]

    def ahead(self) -> Path | None:
        """Set the next one aside that nobody has begun or set aside."""
        for number, path in enumerate(self._files):
            if not self._is_marked(number, "begun") and self._mark(number, "aside"):
                self._aside = (number,)
                return path
        return None

    def _is_marked(self, number: int, how: str) -> bool:
        return self._place(number, how).exists()

    def _mark(self, number: int, how: str) -> bool:
        """Whether this process is the one that marks it."""
        try:
            self._place(number, how).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _place(self, number: int, how: str) -> Path:
        return self._marks / f"{number}.{how}"
