from __future__ import annotations

import operator
import textwrap
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest
import torch

from kernelwright.tools.tasks import trace
from kernelwright.tools.types import (
    Arg,
    DTypeArg,
    Graph,
    ListArg,
    Ref,
    Refusal,
    Scalar,
    Task,
    TracePolicy,
)

HEADER = "import torch\nimport torch.nn as nn\nimport torch.nn.functional as F\n"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a module file."""

    def writer(text: str, name: str = "model.py") -> Path:
        path = tmp_path / name
        path.write_text(HEADER + textwrap.dedent(text))
        return path

    return writer


@pytest.fixture
def attempt(write: Callable[..., Path]) -> Callable[..., Task | Refusal]:
    """Trace a text."""

    def tracer(text: str, **policy: object) -> Task | Refusal:
        path = write(text)
        return trace(path.read_text(), str(path), TracePolicy.model_validate(policy))

    return tracer


@pytest.fixture
def traced(attempt: Callable[..., Task | Refusal]) -> Callable[..., Task]:
    """Trace a text that is a good task."""

    def tracer(text: str, **policy: object) -> Task:
        task = attempt(text, **policy)
        assert isinstance(task, Task), task
        return task

    return tracer


def _model(forward: str, inputs: str = "[torch.randn(8, 32)]", init: str = "pass") -> str:
    text = "class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
    text += textwrap.indent(textwrap.dedent(init).strip(), " " * 8) + "\n"
    text += textwrap.indent(textwrap.dedent(forward).strip(), " " * 4) + "\n"
    return text + f"def get_inputs():\n    return {inputs}\n"


@pytest.fixture
def model(traced: Callable[..., Task]) -> Callable[..., Task]:
    """Trace a Model given as a forward, its inputs and what its constructor does."""
    return lambda *said, **more: traced(_model(*said, **more))


@pytest.fixture(scope="module")
def traced_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Task]:
    """The same for all tests of a file, once for each text: a task is a value."""

    @cache
    def tracer(*said: str, **more: str) -> Task:
        path = tmp_path_factory.mktemp("traced") / "model.py"
        path.write_text(HEADER + _model(*said, **more))
        task = trace(path.read_text(), str(path), TracePolicy())
        assert isinstance(task, Task), task
        return task

    return tracer


@pytest.fixture
def sentence(attempt: Callable[..., Task | Refusal]) -> Callable[..., str]:
    """The sentence with which a text is refused."""

    def refused(text: str, **policy: object) -> str:
        refusal = attempt(text, **policy)
        assert isinstance(refusal, Refusal), refusal
        assert "\n" not in refusal.sentence
        assert "Traceback" not in refusal.sentence
        return refusal.sentence

    return refused


@pytest.fixture
def run_graph() -> Callable[..., tuple[list[torch.Tensor], dict[str, torch.Tensor]]]:
    """Interpret a typed graph with torch: what proves that it says what the module does."""
    return _run_graph


def _run_graph(
    graph: Graph, args: Sequence[object], weights: dict[str, torch.Tensor]
) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    values: dict[str, object] = dict(zip(graph.inputs, tensors, strict=True))
    for node in graph.nodes:
        if node.op in ("weight", "constant"):
            values[node.name] = weights[str(node.target)]
        elif node.op != "input":
            given = [_value(arg, values) for arg in node.args]
            named = {key: _value(arg, values) for key, arg in node.kwargs}
            values[node.name] = _function(node.op)(*given, **named)
    mutated = {mutation.target: values[mutation.node] for mutation in graph.mutations}
    return [values[name] for name in graph.outputs], mutated  # type: ignore[misc, return-value]


def _function(op: str) -> Callable[..., object]:
    if op == "getitem":
        return operator.getitem
    found: object = torch.ops
    for part in op.split("."):
        found = getattr(found, part)
    return found  # type: ignore[return-value]


def _value(arg: Arg, values: dict[str, object]) -> object:
    if isinstance(arg, Ref):
        return values[arg.node]
    if isinstance(arg, DTypeArg):
        return getattr(torch, arg.value)
    if isinstance(arg, ListArg):
        return [_value(item, values) for item in arg.items]
    assert isinstance(arg, Scalar)
    formats = ("contiguous_format", "preserve_format", "channels_last")
    return getattr(torch, arg.value) if arg.value in formats else arg.value
