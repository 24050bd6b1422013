"""A kernel of the library as an operator that a compiled graph can call.

The kernel is written down and loaded as an export is, in the user's own process: its reference is
the region's operators, its operator and loader are the export's. Only what the judge certified on
this machine is loaded so; what came out of somebody's file is not, before a search proved it.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import cast

import torch
from torch import fx, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.lower.nests.views import contiguous_strides
from kernelwright.tools.export import ExportRefusedError, render, traced
from kernelwright.tools.export.folder import reference
from kernelwright.tools.export.guards import MOST_ARGUMENTS, Material
from kernelwright.tools.languages import new_candidate
from kernelwright.tools.memory import Kept, TaskKey
from kernelwright.tools.tasks.graph.aten_graph import trace_graph
from kernelwright.tools.tasks.graph.convert import simplify, tensor_spec, to_graph
from kernelwright.tools.types import (
    Baselines,
    Evaluation,
    InputSpec,
    Task,
    TensorSpec,
    Verdict,
    Verification,
    WeightSpec,
)

Operator = Callable[..., object]


@dataclass(frozen=True)
class Loaded:
    """An operator, which takes the region's inputs, and then these of its weights."""

    operator: Operator
    weights: tuple[str, ...]
    in_list: bool = False

    def arguments(self, given: Sequence[fx.Node]) -> tuple[fx.Node | list[fx.Node], ...]:
        """These as the operator takes them: one by one, or where they are many as one list."""
        return ([*given],) if self.in_list else tuple(given)


def task_of(source: str) -> Task:
    """The file of a region as a task; nothing is computed, and no random numbers are drawn.

    Raises:
        RefusedError: it cannot be traced.
    """
    space: dict[str, object] = {"__name__": "kernelwright_region"}
    exec(compile(source, "<region>", "exec"), space)  # our own text, of operators and shapes
    with torch._guards.tracing(None), torch.random.fork_rng(devices=[]), FakeTensorMode() as mode:
        module = cast("nn.Module", cast("Callable[[], object]", space["Model"])()).eval()
        inputs = cast("list[torch.Tensor]", cast("Callable[[], object]", space["get_inputs"])())
        specs = [tensor_spec(value, with_strides=True) for value in inputs]
        weights = _weights(module)
        traced = trace_graph(module, inputs, mode)
    simplify(traced)
    names = [f"x{number}" for number in range(len(inputs))]
    graph = to_graph(traced, names)
    return Task(
        name="region",
        path="region.py",
        source=source,
        source_sha256=hashlib.sha256(source.encode()).hexdigest(),
        entry="Model",
        entry_kind="kernelbench",
        inputs=tuple(
            InputSpec(name=name, tensor=spec) for name, spec in zip(names, specs, strict=True)
        ),
        outputs=tuple(graph.node(name).out[0] for name in graph.outputs),
        weights=weights,
        graph=graph,
        bytes_moved=1,
        flops=0,
    )


def _weights(module: nn.Module) -> tuple[WeightSpec, ...]:
    named: list[tuple[str, torch.Tensor, bool]] = []
    named += [(name, value, False) for name, value in module.named_parameters()]
    named += [(name, value, True) for name, value in module.named_buffers()]
    return tuple(
        WeightSpec(name=name, tensor=tensor_spec(value, with_strides=True), is_buffer=is_buffer)
        for name, value, is_buffer in named
    )


def loaded(kept: Kept, task: Task, key: TaskKey, hardware: Hardware, home: Path) -> Loaded:
    """The operator of a kernel for a region's task, built on first use.

    Raises:
        ExportRefusedError: the kernel cannot be written down, or not be built here.
    """
    material = _material(kept, task, key, hardware)
    values = render.values(material)
    tensors = cast("list[object]", values["tensors"])
    names = tuple(item.name for item in task.weights)
    used = tuple(name for name in names if repr(name) in {_label(item) for item in tensors})
    module = _module(material, home)
    if module.kernels_for(0 if hardware.kind == "cuda" else -1) is None:
        raise ExportRefusedError("its kernels cannot be built here")
    specs = [item.tensor for item in task.inputs if item.tensor is not None]
    by_name = {item.name: item.tensor for item in task.weights}
    specs += [by_name[name] for name in used]
    return Loaded(
        operator=_registered(module, specs, task.outputs, hardware.kind),
        weights=used,
        in_list=len(specs) > MOST_ARGUMENTS,
    )


def _label(item: object) -> str:
    return str(getattr(item, "label", ""))


def _material(kept: Kept, task: Task, key: TaskKey, hardware: Hardware) -> Material:
    plan = kept.plan_for(key)
    if plan is None:
        raise ExportRefusedError("its plan reads other weights")
    candidate = new_candidate(kept.language, kept.kernel, plan, settings=kept.settings)
    found = Verification(verdict=Verdict.CORRECT, reason="")
    return Material(
        task=task,
        candidate=candidate,
        evaluation=Evaluation(candidate=candidate.id, verification=found),
        baselines=Baselines(items=()),
        hardware=hardware,
        forced=True,
    )


def _module(material: Material, home: Path) -> ModuleType:
    """The export's module.py, from a folder that is named for what is in it."""
    files = {
        "module.py": render.module(material),
        "reference.py": reference(material.task),
        traced.WATCH: traced.watch(),
        render.kernel_file(material): render.kernel(material),
    }
    if header := render.header_file(material):
        files[header] = render.header(material)
    text = "\x1f".join(f"{name}\x1e{content}" for name, content in sorted(files.items()))
    digest = hashlib.sha256(text.encode()).hexdigest()[:24]
    folder = home / "spliced" / digest
    if not folder.is_dir():
        _write(folder, files)
    return _imported(f"kernelwright_spliced_{digest}", folder / "module.py")


def _write(folder: Path, files: dict[str, str]) -> None:
    """All of it or nothing, as another process may be writing the same."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    for name, content in files.items():
        (scratch / name).write_text(content, encoding="utf-8")
    with contextlib.suppress(OSError):  # the other one was first
        os.rename(scratch, folder)
    shutil.rmtree(scratch, ignore_errors=True)


def _imported(name: str, path: Path) -> ModuleType:
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


_LIBRARY = torch.library.Library("kernelwright_spliced", "FRAGMENT")  # type: ignore[no-untyped-call]


def _registered(
    module: ModuleType, given: list[TensorSpec], made: tuple[TensorSpec, ...], kind: str
) -> Operator:
    """The export's operator behind one that lays its arguments out as they were verified."""
    name = f"run_{module.__name__.rpartition('_')[2]}"
    space = torch.ops.kernelwright_spliced
    if hasattr(space, name):
        return cast("Operator", getattr(space, name).default)
    layouts = [(spec.shape, spec.strides or contiguous_strides(spec.shape)) for spec in given]

    def run(*tensors: torch.Tensor) -> object:
        fitting = [
            tensor if tensor.stride() == strides else _laid_out(tensor, shape, strides)
            for tensor, (shape, strides) in zip(tensors, layouts, strict=True)
        ]
        return module._operator(*fitting)

    def fake(*tensors: torch.Tensor) -> object:
        return module._fake(*tensors)

    results = "Tensor" if len(made) == 1 else f"({', '.join('Tensor' for _ in made)})"
    in_list = len(given) > MOST_ARGUMENTS
    arguments = ", ".join(f"Tensor t{number}" for number in range(len(given)))
    arguments = "Tensor[] tensors" if in_list else arguments
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)
    _LIBRARY.define(f"{name}({arguments}) -> {results}", tags=tags)  # type: ignore[no-untyped-call]
    taken = (lambda tensors: run(*tensors), lambda tensors: fake(*tensors))
    run_it, fake_it = taken if in_list else (run, fake)
    _LIBRARY.impl(name, run_it, kind.upper())  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"kernelwright_spliced::{name}", fake_it, lib=_LIBRARY)
    return cast("Operator", getattr(space, name).default)


def _laid_out(
    tensor: torch.Tensor, shape: tuple[int, ...], strides: tuple[int, ...]
) -> torch.Tensor:
    made = torch.empty_strided(shape, strides, dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor)
