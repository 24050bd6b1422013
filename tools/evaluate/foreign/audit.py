"""Who did the work: what the guest's dispatcher saw, held against what the file says.

The guest reports about itself, so its word can only count against it: a file that presents
kernels of its own while the library does the work is caught by its own report; one that lies to
look better is measured by the clock like any other.
"""

from torch import Tensor

from kernelwright.tools.evaluate.foreign.messages import Arrange, Call, Go
from kernelwright.tools.evaluate.foreign.places import place_of, slots_of
from kernelwright.tools.evaluate.foreign.reading import Reading
from kernelwright.tools.evaluate.foreign.seat import Seat
from kernelwright.tools.evaluate.profiling.coverage import label as share_label
from kernelwright.tools.evaluate.seeds import fresh_seed
from kernelwright.tools.evaluate.verify.bench import Bench, Draw
from kernelwright.tools.types import Task
from kernelwright.tools.types.value import Value

_RUNS = 5
_REPORTED = "reported by the guest"


class Findings(Value):
    """The audit's numbers: the share of time outside library operators, and which ran."""

    share: float | None = None
    operators: tuple[str, ...] = ()

    def method(self, read: Reading) -> str:
        """How the result came about, in a few words."""
        listed = ", ".join(self.operators[:4]) or "library operators"
        if read.compiles:
            return f"compiled by PyTorch ({read.compiles}): a baseline, not a kernel"
        if read.graphs and not read.own:
            return f"CUDA graph of library operators ({listed}): a baseline, not a kernel"
        if not read.own:
            return f"library rearrangement ({listed})" if self.share is not None else ""
        if self.share is None:
            return ""
        return f"{share_label(self.share, set(self.operators))}, {_REPORTED}"

    def pretence(self, read: Reading, task: Task) -> str:
        """Why the file is not what it presents itself as, or an empty word."""
        if not read.own or self.share is None:
            return ""
        listed = ", ".join(self.operators[:4])
        wanted = {node.op.split(".")[1] for node in task.graph.nodes if node.op.count(".") == 2}
        done = {name.lstrip("_") for name in self.operators}
        if read.falls_back and (self.share < 0.5 or wanted & done) and self.operators:
            return (
                f"its kernels failed and an except clause fell back to PyTorch: {listed} took "
                f"{1 - self.share:.0%} of the time"
            )
        return ""


def audited(bench: Bench, seat: Seat, limit_s: float, seed: int) -> Findings:
    """Let the guest watch its own dispatcher over a few calls on fresh values."""
    arguments = bench.draw(Draw("task", fresh_seed(seed, "audit")))
    placed = [
        seat.memory.place(a, f"audit {i}") if isinstance(a, Tensor) else a
        for i, a in enumerate(arguments)
    ]
    outputs = seat.outputs(bench)
    order = Arrange(
        arguments=(slots_of(seat.arena, placed),),
        outputs=(tuple(place_of(seat.arena, output) for output in outputs),),
    )
    seat.link.ask(order, limit_s)
    shares, operators = [], set()
    for _ in range(_RUNS):
        done = seat.link.ask(Go(calls=(Call(arguments=0, outputs=0),), way="audit"), limit_s)
        shares.append(1.0 - done.library_ms / max(done.own_ms, 1e-6))
        operators |= set(done.operators)
    seat.memory.forget("input audit")
    seat.memory.forget("allocation")
    share = min(1.0, max(0.0, sorted(shares)[_RUNS // 2]))
    return Findings(share=share, operators=tuple(sorted(operators)))
