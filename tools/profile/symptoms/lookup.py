"""Finds readings by name: of a whole call, or of each kernel that takes a telling part of it."""

from collections.abc import Iterator

from kernelwright.tools.profile.symptoms.thresholds import TELLING_TIME_SHARE
from kernelwright.tools.types import Evidence


class Readings:
    """Evidence about one candidate, by name."""

    def __init__(self, evidence: tuple[Evidence, ...]) -> None:
        self._evidence = {item.name: item for item in evidence if item.value is not None}
        self.kernels = tuple(
            dict.fromkeys(name.rpartition(".")[0] for name in self._evidence if "." in name)
        )

    def named(self, name: str) -> Evidence | None:
        """The reading of that whole name."""
        return self._evidence.get(name)

    def value(self, name: str) -> float | None:
        """Its value."""
        found = self.named(name)
        return found.value if found is not None else None

    def of(self, kernel: str, reading: str) -> float | None:
        """The value of a kernel's reading."""
        return self.value(f"{kernel}.{reading}")

    def each(self, reading: str) -> Iterator[tuple[str, Evidence, float]]:
        """Kernel, evidence and value, of every kernel that matters, the longest one first."""
        found = [
            (kernel, item, item.value)
            for kernel in self.kernels
            if (item := self.named(f"{kernel}.{reading}")) is not None
            and item.value is not None
            and self._share(kernel) >= TELLING_TIME_SHARE
        ]
        yield from sorted(found, key=lambda row: -self._share(row[0]))

    def _share(self, kernel: str) -> float:
        """Of a call's time; where it was not measured, the kernel may matter."""
        share = self.of(kernel, "time_share")
        return 1.0 if share is None else share
