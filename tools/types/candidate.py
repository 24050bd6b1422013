"""One implementation: device code plus a plan.

How a candidate's plan really launched its kernels.
"""

from typing import Annotated, Literal

from pydantic import StringConstraints

from kernelwright.tools.types.value import Value

# What the kernel source is written in, as in "cuda" or "cpp"; `tools.languages` knows which are
# there, so that a new one needs no line here.
LanguageName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,31}$")]


class Setting(Value):
    """One tunable and the value chosen for it."""

    name: str
    value: int


class Candidate(Value):
    """One implementation of a task.

    `kernel` declares its tunables (`// tune: THREADS in 128, 256`) and requirements
    (`// require: THREADS * VECTOR <= 4096`) in comments; `settings` are the values chosen, the
    first declared value standing in for any that is missing. `plan` is the host side in the
    subset of Python that `tools.candidates` validates. `id` is a hash of what runs:
    language, kernel, plan and settings. `strategy` names the version of the evolving prompt under
    which a model wrote it.
    """

    id: str
    language: LanguageName
    kernel: str
    plan: str
    settings: tuple[Setting, ...] = ()
    idea: str = ""
    parents: tuple[str, ...] = ()
    origin: Literal["playbook", "model", "person"] = "playbook"
    strategies: tuple[str, ...] = ()
    note: str = ""
    strategy: str = ""


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
