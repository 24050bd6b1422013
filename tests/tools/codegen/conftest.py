"""A lowered module against PyTorch, by the interpreter beside this; what compiled tests share."""

import hashlib
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelwright.tools.codegen.ir import PlanLine, Program
from kernelwright.tools.codegen.lower import Lowering, lower
from kernelwright.tools.tasks.graph.convert import constants_of
from kernelwright.tools.types import Arg, DType, Graph, ListArg, Node, Ref, Scalar, TensorSpec

from .interpreter import Interpreted, Tensors, interpreted
from .quick_tracing import graph_of


@pytest.fixture
def interpret() -> Callable[[Program, Sequence[torch.Tensor], Tensors], Interpreted]:
    return interpreted


class Checked:
    """A lowered module, and the answer to whether its program computes what PyTorch does."""

    def __init__(
        self, module: torch.nn.Module, inputs: Sequence[torch.Tensor], products: bool
    ) -> None:
        self.graph = graph_of(module, inputs)
        self.program = lower(self.graph, lowering=Lowering(products=products))
        weights = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        weights |= constants_of(self.graph, "cpu")
        weights = {name: tensor.detach().clone() for name, tensor in weights.items()}
        self.results, self.updates = interpreted(self.program, inputs, weights)
        with torch.no_grad():
            expected = module(*inputs)
        self.expected = expected if isinstance(expected, tuple) else (expected,)
        self.after = dict(module.named_buffers())
        self._compare()

    def _compare(self) -> None:
        for mine, theirs in zip(self.results, self.expected, strict=True):
            assert mine.dtype == theirs.dtype
            assert mine.shape == theirs.shape
            _close(mine, theirs)
        for name, value in self.updates.items():
            _close(value, self.after[name])

    @property
    def families(self) -> list[str]:
        return [loop.family for loop in self.program.loops]

    @property
    def library(self) -> list[str]:
        lines = [step for step in self.program.steps if isinstance(step, PlanLine)]
        return [line.operator for line in lines if line.operator.startswith("aten")]


def _close(mine: torch.Tensor, theirs: torch.Tensor) -> None:
    if not theirs.dtype.is_floating_point:
        torch.testing.assert_close(mine, theirs)
        return
    half = theirs.dtype in (torch.float16, torch.bfloat16)
    tolerance = 3e-2 if half else 2e-4
    torch.testing.assert_close(mine, theirs, rtol=tolerance, atol=tolerance / 4, equal_nan=True)


class Recorder:
    """Runs ATen operators at once and records them as a Graph: quicker than tracing."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.inputs: dict[str, torch.Tensor] = {}
        self.values: dict[str, torch.Tensor] = {}

    def input(self, tensor: torch.Tensor) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs[name] = self.values[name] = tensor
        self.nodes.append(Node(name=name, op="input", out=(_spec(tensor),)))
        return name

    def call(self, op: str, *args: object) -> str:
        """`op` as `add.Tensor`; names of earlier results stand for tensors."""
        packet, overload = op.split(".")
        operator = getattr(getattr(torch.ops.aten, packet), overload)
        value = operator(*(self._real(arg) for arg in args))
        name = f"n{len(self.nodes)}"
        self.values[name] = value
        node = Node(
            name=name,
            op=f"aten.{op}",
            args=tuple(self._recorded(arg) for arg in args),
            out=(_spec(value),),
        )
        self.nodes.append(node)
        return name

    def graph(self, *outputs: str) -> Graph:
        return Graph(nodes=tuple(self.nodes), inputs=tuple(self.inputs), outputs=outputs)

    def check(self, *outputs: str) -> Program:
        """Lowers, interprets and compares with what running gave."""
        program = lower(self.graph(*outputs))
        results, _ = interpreted(program, list(self.inputs.values()), {})
        for mine, name in zip(results, outputs, strict=True):
            assert mine.shape == self.values[name].shape
            torch.testing.assert_close(mine, self.values[name], equal_nan=True)
        return program

    def _real(self, arg: object) -> object:
        if isinstance(arg, list):
            return [self._real(item) for item in arg]
        return self.values[arg] if isinstance(arg, str) else arg

    def _recorded(self, arg: object) -> Arg:
        if isinstance(arg, list):
            return ListArg(items=tuple(self._recorded(item) for item in arg))
        if isinstance(arg, str):
            return Ref(node=arg)
        assert arg is None or isinstance(arg, (bool, int, float))
        return Scalar(value=arg)


def _spec(value: torch.Tensor) -> TensorSpec:
    dtype = DType(str(value.dtype).removeprefix("torch."))
    return TensorSpec(shape=tuple(value.shape), dtype=dtype)


@pytest.fixture
def recorder() -> Callable[[], Recorder]:
    return Recorder


class _Function(torch.nn.Module):
    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> object:
        return self.function(*args)


def _one_of_each(found: Sequence[Any], kind: Callable[[Any], object]) -> list[Any]:
    """The first of every kind."""
    return list({kind(one): one for one in reversed(found)}.values())


def _all(found: Sequence[Any], kind: Callable[[Any], object]) -> list[Any]:
    return list(found)


KEPT = {"one of each": _one_of_each, "all": _all}


@pytest.fixture(
    scope="session",
    params=["one of each", pytest.param("all", marks=pytest.mark.exhaustive)],
)
def kept(request: pytest.FixtureRequest) -> Callable[[Sequence[Any], Callable[[Any], object]], Any]:
    """`kept(found, kind)`: what of many kernels is compiled and played; all by `make test-all`."""
    return KEPT[request.param]


@pytest.fixture(scope="session", params=[pytest.param("all", marks=pytest.mark.exhaustive)])
def swept(
    request: pytest.FixtureRequest,
) -> Callable[[Sequence[Any], Callable[[Any], object]], Any]:
    """`swept(found, kind)` is all that was found: what uses it is a sweep, for `make test-all`."""
    return KEPT[request.param]


@pytest.fixture
def check() -> Callable[..., Checked]:
    """`check(module_or_function, *inputs)` lowers, interprets and compares with PyTorch.

    With `products`, products of matrices are loops too.
    """

    def checked(
        module: Callable[..., object], *inputs: torch.Tensor, products: bool = False
    ) -> Checked:
        if not isinstance(module, torch.nn.Module):
            module = _Function(module)
        return Checked(module, inputs, products)

    return checked


@pytest.fixture(scope="session")
def precompiled(
    made_once: Callable[[str, Callable[[Path], str]], str],
) -> Callable[[Sequence[str], Path], Path]:
    """`precompiled(command, header)` is a folder for the front of the command's include path.

    Headers are a second or two of every compilation; here they are read once a session, as all of
    its processes share the folder.
    """

    def made(command: Sequence[str], header: Path) -> Path:
        key = hashlib.sha256("\n".join([*command, str(header)]).encode()).hexdigest()

        def compiled(folder: Path) -> str:
            output = str(folder / f"{header.name}.gch")
            subprocess.run([*command, "-x", "c++-header", str(header), "-o", output], check=True)
            return str(folder)

        return Path(made_once(f"{header.stem}-{key[:16]}", compiled))

    return made
