"""How a plan launches its kernels: noted while it really does, for one call."""

from collections import Counter
from collections.abc import Sequence

from kernelwright.tools.candidates.run.arguments import Extent, Launcher
from kernelwright.tools.types.idea import Extents, LaunchShape


class Notes:
    """What one call launched; without `geometry` (a language may have none) only how often."""

    def __init__(self, *, geometry: bool) -> None:
        self._geometry = geometry
        self._seen: Counter[LaunchShape] = Counter()

    def taking(self, kernel: str, launcher: Launcher) -> Launcher:
        """A launcher that notes each launch once it was accepted."""

        def launch(
            arguments: Sequence[object],
            grid: Extent = 1,
            block: Extent = 1,
            shared: int = 0,
            cluster: Extent = 1,
        ) -> None:
            launcher(arguments, grid, block, shared, cluster)
            shape = LaunchShape(kernel=kernel)
            if self._geometry:
                shape = LaunchShape(
                    kernel=kernel,
                    grid=_extents(grid),
                    block=_extents(block),
                    cluster=_extents(cluster),
                    shared_bytes=shared,
                )
            self._seen[shape] += 1

        return launch

    @property
    def shapes(self) -> tuple[LaunchShape, ...]:
        """Every configuration once, in the order of first launches."""
        return tuple(
            shape.model_copy(update={"launches": count}) for shape, count in self._seen.items()
        )


def _extents(value: Extent) -> Extents:
    x, y, z = (*(value if isinstance(value, tuple | list) else (value,)), 1, 1)[:3]
    return x, y, z
