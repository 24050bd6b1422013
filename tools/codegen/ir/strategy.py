"""A way to spread work over a machine, and what an emitter prints under it."""

from __future__ import annotations

from typing import Literal

from kernelwright.tools.types import Value


class Strategy(Value):
    """One way to spread a loop over a machine, in words, with its predicted traffic.

    `memory`, `compute` and `parallel` are short labels of what it does (for the archive and the
    critic); `bytes_read_factor` multiplies the loop's reads (2.0 when a row is read twice from
    memory), `efficiency` is the share of peak bandwidth expected before the ledger knows better.
    `rewrite` names a rewrite to apply to the loop first ("" for none).
    """

    name: str
    title: str
    mechanism: str
    reason: str
    category: Literal["memory", "latency", "parallelism", "arithmetic", "fusion", "algebra"]
    metric: str
    memory: str
    compute: str
    parallel: str
    bytes_read_factor: float = 1.0
    efficiency: float = 0.8
    launches: int = 1
    rewrite: str = ""


class Emitted(Value):
    """What an emitter prints for one loop under one strategy.

    `source` holds device code with its `// tune:` and `// require:` lines; every tunable and
    every function carries the prefix it was given, so several can share one file. `plan` holds
    the plan's lines that allocate its temporaries and launch it, without indentation; outputs
    are allocated by whoever puts the plan together, under their buffers' names, and allocations
    may be moved behind launches that do not take them.
    """

    source: str
    plan: tuple[str, ...]
