"""A whole forward: its buffers, and loops and plan lines in order.

Also a way to spread work over a machine, and what an emitter prints under it.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import Field

from kernelwright.tools.codegen.ir.library_attention import AttentionSizes
from kernelwright.tools.codegen.ir.loops import Loop
from kernelwright.tools.codegen.ir.scores import ScoreFunction
from kernelwright.tools.types import DType, Value

# What a plan calls of the library, and what only kernels compute.
_CALLS = ("aten.", "kernelwright.")


class Strategy(Value):
    """One way to spread a loop over a machine, in words, with its predicted traffic.

    `memory`, `compute` and `parallel` are short labels of what it does (for the archive and the
    critic); `bytes_read_factor` multiplies the loop's reads (2.0 when a row is read twice from
    memory), `efficiency` is the share of peak bandwidth expected before the ledger knows better.
    `rewrite` names a rewrite to apply to the loop first ("" for none). With `rounds_factors` the
    factors of float32 products are rounded to fewer bits, as TF32's are: the judge accepts that
    where PyTorch's own product is no more exact.
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
    rounds_factors: bool = False


class Emitted(Value):
    """What an emitter prints for one loop under one strategy.

    `source` holds device code with its `// tune:` and `// require:` lines; every tunable and
    every function carries the prefix it was given, so several can share one file. `plan` holds
    the plan's lines that allocate its temporaries and launch it, without indentation; outputs
    are allocated by whoever puts the plan together, under their buffers' names, and allocations
    may be moved behind launches that do not take them. `prepare` are lines of the plan's `prepare`:
    they read the loop's `preparable` weights alone and make the tensors `prepared`, which lines of
    `plan` take.
    """

    source: str
    plan: tuple[str, ...]
    prepare: tuple[str, ...] = ()
    prepared: tuple[str, ...] = ()


class Buffer(Value):
    """A tensor the plan holds: an input, a weight, a temporary or an output."""

    name: str
    shape: tuple[int, ...]
    dtype: DType
    role: Literal["input", "weight", "temporary", "output"]


class PlanLine(Value):
    """A line of the plan that is no kernel: a view, a library call, an allocation.

    `text` is plan source that assigns `makes` (several names for a tuple) from `uses`.
    `cost_bytes` and `cost_flops` let the roofline count it. `tensor_share` is the share of the
    tensor cores' fp16 rate that the library reaches, where it uses them; None for the plain rate.
    `attention` says what attention is asked for, whose time operations do not tell.
    `dependent_steps` counts steps that wait for each other, whatever they compute.
    `turned_bytes` are those of the tensors that the library copies into a layout of its own first,
    or back, in `turned_launches` kernels beside the call's.
    `scores` is what attention makes of its scores, where no library computes that: the text is then
    no plan's, and a family of kernels has to take the line.
    """

    text: str
    makes: tuple[str, ...]
    uses: tuple[str, ...]
    operator: str = ""
    cost_bytes: int = 0
    cost_flops: int = 0
    tensor_share: float | None = None
    attention: AttentionSizes | None = None
    dependent_steps: int = 0
    turned_bytes: int = 0
    turned_launches: int = 0
    scores: ScoreFunction | None = None
    # Names are given by the form that a program is of; the line itself is the same in every form.
    name: str = Field(default="", exclude=True)


class LibraryCall(Value):
    """A library call as a family of kernels sees it, with the tensors it reads and makes.

    Its arguments, views of `operands` among them, stand in the text of `line`.
    """

    line: PlanLine
    operands: tuple[Buffer, ...]
    results: tuple[Buffer, ...]

    @property
    def name(self) -> str:
        """What choices call it."""
        return self.line.name or self.line.makes[0]

    @property
    def family(self) -> str:
        """What a person would call it: the operator, without namespace and overload."""
        return self.line.operator.split(".")[1]


ProgramNode: TypeAlias = Loop | LibraryCall


class Program(Value):
    """A whole forward: steps in order. `parameters` are the plan's arguments, in order.

    `buffers` names everything that a Loop or a PlanLine reads or writes. Buffers with role
    "temporary" or "output" that a Loop stores to are allocated by the plan in the lines of the
    first such loop, before the launch that takes them.
    `weights` maps plan variables to state-dict names; `returns` are the buffers returned.
    `views` gives, for a returned buffer whose returned shape differs from how it was stored,
    the plan expression to return instead.
    """

    parameters: tuple[str, ...]
    weights: tuple[tuple[str, str], ...]
    buffers: tuple[Buffer, ...]
    steps: tuple[Loop | PlanLine, ...]
    returns: tuple[str, ...]
    views: tuple[tuple[str, str], ...] = ()
    output_structure: Literal["tensor", "tuple", "list"] = "tensor"

    @property
    def loops(self) -> tuple[Loop, ...]:
        """The steps that are kernels."""
        return tuple(step for step in self.steps if isinstance(step, Loop))

    @property
    def prepared(self) -> tuple[Loop, ...]:
        """The loops that are run in the plan's `prepare`, once for a weight, and in no call."""
        return tuple(loop for loop in self.loops if loop.is_prepared)

    @property
    def nodes(self) -> tuple[ProgramNode, ...]:
        """The steps that a family of kernels may take, in order: loops and library calls."""
        found = (self.node(step) for step in self.steps)
        return tuple(node for node in found if node is not None)

    def node(self, step: Loop | PlanLine) -> ProgramNode | None:
        """A step as a node; None for a line that only hands tensors on."""
        if isinstance(step, Loop):
            return step
        if not step.operator.startswith(_CALLS) or not step.makes:
            return None
        return LibraryCall(
            line=step,
            operands=tuple(map(self.buffer, step.uses)),
            results=tuple(map(self.buffer, step.makes)),
        )

    def buffer(self, name: str) -> Buffer:
        """The buffer of that name; KeyError when there is none."""
        for buffer in self.buffers:
            if buffer.name == name:
                return buffer
        raise KeyError(name)
