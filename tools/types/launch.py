"""How a candidate's plan really launched its kernels."""

from kernelwright.tools.types.value import Value

Extents = tuple[int, int, int]


class LaunchShape(Value):
    """One configuration of a kernel in a call: extents in x, y, z, and dynamic shared memory.

    `grid` counts blocks, clusters or not. `launches` says how often a call launches it so. A C++
    kernel has no geometry; then all extents are 1.
    """

    kernel: str
    grid: Extents = (1, 1, 1)
    block: Extents = (1, 1, 1)
    cluster: Extents = (1, 1, 1)
    shared_bytes: int = 0
    launches: int = 1

    @property
    def blocks(self) -> int:
        """Blocks of one launch."""
        return self.grid[0] * self.grid[1] * self.grid[2]

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def cluster_blocks(self) -> int:
        """Blocks of a cluster."""
        return self.cluster[0] * self.cluster[1] * self.cluster[2]


def dynamic_bytes(kernel: str, launches: tuple[LaunchShape, ...]) -> int:
    """The most dynamic shared memory that a kernel was launched with."""
    return max((shape.shared_bytes for shape in launches if shape.kernel == kernel), default=0)
