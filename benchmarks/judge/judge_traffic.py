"""How many bytes the judge moves for every element of a large task, step by step.

Judging a tensor of gigabytes costs what its passes over memory cost. Every operator that torch
dispatches while a right answer is verified, looked at and held against answers without work is
counted with what it reads and writes; over a device's bandwidth that foretells seconds. It runs on
a CPU: an operator that converts inside counts once, as on a GPU, and what caches keep counts too.

    python benchmarks/judge/judge_traffic.py --rows 2048 --gb-s 4000 --elements 1.61e9
"""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kernelwright.tools.evaluate.process_setup import no_new_processes
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.verify.comparison import ResultComparator
from kernelwright.tools.evaluate.verify.inspection import Inspection
from kernelwright.tools.evaluate.verify.measured_precision import probed
from kernelwright.tools.evaluate.verify.memory import GuardedMemory, SpoiltMemory
from kernelwright.tools.evaluate.verify.reference_runtime import Draw, ReferenceRuntime
from kernelwright.tools.evaluate.verify.trials import Trials
from kernelwright.tools.hardware import detect
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Task, TracePolicy

COLUMNS = 4096
FORWARD = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x)

def get_inputs():
    return [torch.rand({rows}, {columns})]
"""
DRAWS = ("task", "large_offset", "heavy_tail", "extremes", "constant_rows", "normal", "tiny")
_MAKES_NOTHING = ("empty", "as_strided", "view", "reshape", "expand", "detach", "set_", "resize_")
_ONLY_WRITES = ("copy_", "fill_", "zero_", "normal_", "uniform_", "random_")


class Traffic(TorchDispatchMode):
    """Counts bytes read and written, by operator, while active."""

    def __init__(self) -> None:
        super().__init__()
        self.by_operator: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run the operator, and count it unless it makes nothing but a view."""
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        if not func.is_view and not name.startswith(_MAKES_NOTHING):
            read = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
            if name in _ONLY_WRITES or name.startswith("new_"):
                read = read[1:]
            written = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
            self.by_operator[name] += sum(map(_bytes, (*read, *written)))
        return result


def _bytes(tensor: Tensor) -> int:
    """Of the elements that lie apart in memory."""
    count = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= size if stride else 1
    return count * tensor.element_size()


class Tanh:
    """A candidate that is right, in one pass, in memory that the judge hands out."""

    def __init__(self, empty: Callable[..., Tensor]) -> None:
        self._empty = empty

    def prepare(self, weights: Mapping[str, Tensor]) -> None:
        """Nothing."""

    def __call__(
        self, arguments: Sequence[object], weights: Mapping[str, Tensor] | None = None, /
    ) -> tuple[Tensor, ...]:
        """The answer."""
        (x,) = arguments
        y = self._empty(tuple(x.shape), x.dtype, x.device)
        return (torch.tanh(x, out=y),)


def verified(runtime: ReferenceRuntime, count: Callable[[str, Callable[[], object]], None]) -> None:
    """Every draw of a certification, the digits, and the answers without work."""
    memory = GuardedMemory("cpu", runtime.rules.guard_bytes)
    trials = Trials(runtime, memory, Tanh(memory.empty), lambda words: None, keeps=True)
    comparator = ResultComparator(runtime)
    for number, name in enumerate(DRAWS):
        count(
            f"verify {name}",
            lambda number=number, name=name: trials.run(
                Draw(name, number), comparator, twice=number == 0, settle=lambda: None,
                weights=number or None, recycled=number % 2 == 1,
            ),
        )  # fmt: skip
    count("digits", lambda: probed(trials, runtime, 3, lambda: None, ranges=False))
    count("nulls", lambda: runtime.nulls)


def timed(runtime: ReferenceRuntime, count: Callable[[str, Callable[[], object]], None]) -> None:
    """What surrounds a sample of the clock, and one that is looked at."""
    spoilt = SpoiltMemory("cpu")
    inspection = Inspection(
        runtime, {}, lambda: None, 1, harsh=["large_offset"], spoil=spoilt.spoil
    )
    call, inputs = Tanh(spoilt.empty), runtime.draw(Draw("task", 9))
    watched = inspection.watching(call)

    def sample(of: Callable[[Sequence[object]], object], *, look: bool) -> None:
        inspection.before(of, inputs, look=look)
        of(inputs)
        inspection.after(inputs)

    sample(call, look=False)
    count("a sample", lambda: sample(call, look=False))
    count("a look", lambda: sample(watched, look=True))


def main() -> None:
    """Print a line for every step, and what a certification's verification comes to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2048, help=f"of {COLUMNS} elements each")
    parser.add_argument("--elements", type=float, default=1.61e9, help="to foretell seconds for")
    parser.add_argument("--gb-s", type=float, default=4000.0, help="bandwidth, likewise")
    asked = parser.parse_args()
    file = Path(tempfile.mkdtemp()) / "tanh.py"
    task = trace(FORWARD.format(rows=asked.rows, columns=COLUMNS), str(file), TracePolicy())
    assert isinstance(task, Task), task
    runtime = ReferenceRuntime(task, detect("cpu"), Rules.of("timing"), 0, no_new_processes)
    elements = asked.rows * COLUMNS
    # Steps as few as on a GPU: 48 of them in 6 GB.
    ReferenceRuntime.chunk_elements = property(lambda self: max(1, elements // 48))  # type: ignore[assignment]
    total = 0.0

    def count(step: str, work: Callable[[], object]) -> None:
        nonlocal total
        with Traffic() as traffic:
            work()
        moved = {name: size / elements for name, size in traffic.by_operator.most_common()}
        total += sum(moved.values()) * (step not in ("a sample", "a look"))
        seconds = sum(moved.values()) * asked.elements / (asked.gb_s * 1e9)
        most = " ".join(f"{name} {size:.0f}" for name, size in list(moved.items())[:8])
        print(f"{step:21s} {sum(moved.values()):7.1f} B/element {seconds:6.3f} s   {most}")

    verified(runtime, count)
    timed(runtime, count)
    print(f"all of verifying      {total:7.1f} B/element "
          f"{total * asked.elements / (asked.gb_s * 1e9):6.3f} s")  # fmt: skip


if __name__ == "__main__":
    main()
