"""A file's text as what a backward is traced of."""

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from kernelwright.tools.tasks import trace
from kernelwright.tools.tasks.reference import Reference
from kernelwright.tools.types import Task, TracePolicy


@pytest.fixture
def built() -> Callable[..., SimpleNamespace]:
    """Its task, the module and the arguments of one call."""

    def build(text: str, entry: str = "Model") -> SimpleNamespace:
        task = trace(text, "model.py", TracePolicy(entry=entry))
        assert isinstance(task, Task), task
        names: dict[str, Callable[[], list[object]]] = {}
        exec(text, names)
        reference = Reference.build(task, "cpu")
        return SimpleNamespace(task=task, reference=reference, arguments=names["get_inputs"]())

    return build
