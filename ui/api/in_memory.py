"""Optimises a module that lives in the caller's process: a script's, or a notebook's.

The worker never sees the caller's code. `torch.export` writes down what the module computes on
these inputs, with its weights; that is read behind the sandbox like any other file and searched.
What comes back runs the kernels on the caller's own module: its weights are read where they are at
every call, and any call that was not verified is the module's own.

Not covered: modules that `torch.export` cannot write down, and calls under `torch.compile`, which
are the module's own too.
"""

from __future__ import annotations

import copy
import hashlib
import importlib.util
import io
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import torch
from rich.console import Console
from torch import nn

from kernelwright.graphs.run_view import story as stories
from kernelwright.tools.runtime import home as data_home
from kernelwright.tools.tasks.graph.aten_graph import reads_values
from kernelwright.tools.tasks.loading.packing import (
    call_packing,
    class_of,
    flat_names,
    result_apart,
)
from kernelwright.tools.tasks.refusals import message
from kernelwright.tools.types import RefusedError
from kernelwright.tools.types.packing import CallPacking, Packing
from kernelwright.tools.types.run import Summary
from kernelwright.ui.complaints import Complaint, refused
from kernelwright.ui.terminal.cards import result_card

Inputs = torch.Tensor | Sequence[object] | Mapping[str, object]
_OWN = "__main__"
_FILE = '''"""{kind}, as torch.export wrote it down for kernelwright.optimize."""

import inspect
import io
from pathlib import Path

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily


class Model(torch.nn.Module):
    """The exported program of the module with flat inputs and outputs."""

    def __init__(self):
        super().__init__()
        saved = io.BytesIO(Path(__file__).with_name("model.pt2").read_bytes())
        with unset_fake_temporarily():
            program = torch.export.load(saved)
        # Newer releases check shapes in there, which whoever calls this does already.
        checks = "check_guards" in inspect.signature(program.module).parameters
        self.inner = program.module(**({{"check_guards": False}} if checks else {{}}))

    def forward(self, {names}):
        return self.inner({names})
'''


@dataclass(frozen=True)
class Written:
    """A module as a file: the folder, its file, the saved inputs, and how calls are packed."""

    file: Path
    inputs: Path
    call: CallPacking
    returns: Packing


class _Seen:
    """How the last result was packed; an object, as an export puts plain attributes back."""

    packing = Packing()


class Flat(nn.Module):
    """The caller's module with flat inputs and a flat result."""

    def __init__(self, model: nn.Module, call: CallPacking) -> None:
        super().__init__()
        self.inner = model
        self.seen = _Seen()
        names = [f"x{number}" for number in range(_leaf_count(call))]
        classes = {name: f"_class_{n}" for n, name in enumerate(call.classes)}
        given = call.printed(iter(names), classes.__getitem__)
        space: dict[str, object] = {of: class_of(name, _OWN) for name, of in classes.items()}
        self._called = eval(f"lambda inner, {', '.join(names)}: inner({given})", space)

    def forward(self, *flat: object) -> object:
        """The module's result, taken apart."""
        leaves, packing = result_apart(self._called(self.inner, *flat))
        self.seen.packing = packing
        return leaves[0] if packing.kind == "leaf" else tuple(leaves)


class Optimized(nn.Module):
    """The caller's module, with kernels where calls are like the verified ones.

    State dict and parameters are the module's own. `summary` says what the search found, and
    `counts` how often calls ran the kernels, or the module and why. In a notebook it shows its
    result card. A deep copy has weights of its own and shares kernels and counts; it cannot be
    pickled.
    """

    def __init__(
        self, model: nn.Module, kernels: ModuleType | None, written: Written, summary: Summary,
        home: Path | None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.model = model
        self.summary = summary
        self._home, self._call = home, written.call
        self._module = kernels
        self._fast = [_joined(kernels, Flat(model, written.call))] if kernels else []
        # What was exported keeps the mode that the module was in; nobody can read it there.
        self._reads_mode = kernels is not None and bool(kernels.reads_mode(model))
        self._modes = _modes(model)
        classes = {name: f"_class_{n}" for n, name in enumerate(written.returns.classes)}
        leaves = (f"flat[{number}]" for number in range(_leaves(written.returns)))
        made = written.returns.printed(leaves, classes.__getitem__)
        space: dict[str, object] = {of: class_of(name, _OWN) for name, of in classes.items()}
        self._packed = eval(f"lambda flat: {made}", space)

    @property
    def is_faster(self) -> bool:
        """Whether kernels were found that are shown to be faster."""
        return bool(self._fast)

    @property
    def counts(self) -> dict[str, int]:
        """How calls ended: "kernel", or "reference: " and why."""
        return dict(self._module.COUNTS) if self._module is not None else {}

    def forward(self, *args: object, **kwargs: object) -> object:
        """Run the kernels where this call is packed as the verified one, else the module."""
        if not self._fast or torch.compiler.is_compiling():
            return self.model(*args, **kwargs)
        try:
            leaves, call = call_packing(args, kwargs)
        except RefusedError:
            return self._own("arguments", args, kwargs)
        if call != self._call:
            return self._own("arguments", args, kwargs)
        if self._reads_mode and _modes(self.model) != self._modes:
            return self._own("training mode", args, kwargs)
        flat = self._fast[0](*leaves)
        return self._packed((flat,) if isinstance(flat, torch.Tensor) else flat)

    def _own(self, why: str, args: tuple[object, ...], kwargs: dict[str, object]) -> object:
        """The module's own result of a call that kernels were not verified for, counted."""
        assert self._module is not None
        self._module.COUNTS[f"reference: {why}"] += 1
        fast = self._fast[0]
        with fast._watch.during_reference(fast):  # type: ignore[operator, union-attr]
            return self.model(*args, **kwargs)

    def train(self, mode: bool = True) -> Optimized:
        """As the module's; what was changed behind its back is seen now."""
        for fast in self._fast:
            fast._watch.look(fast, again=True)  # type: ignore[operator, union-attr]
        return super().train(mode)

    def state_dict(self, *args: object, **kwargs: object) -> dict[str, object]:  # type: ignore[override]
        """The module's own."""
        return self.model.state_dict(*args, **kwargs)  # type: ignore[call-overload, no-any-return]

    def load_state_dict(self, *args: object, **kwargs: object) -> object:
        """Into the module."""
        return self.model.load_state_dict(*args, **kwargs)  # type: ignore[arg-type]

    def __deepcopy__(self, memo: dict[int, object]) -> Optimized:
        """Another over a copy of the module; kernels belong to the process."""
        made = type(self).__new__(type(self))
        memo |= {id(self): made, id(self._module): self._module}
        vars(made).update(copy.deepcopy(vars(self), memo))
        return made

    def __copy__(self) -> Optimized:
        """Another over the same module."""
        made = type(self).__new__(type(self))
        vars(made).update(vars(self))
        return made

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse to be pickled, with `torch.save` as well.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            "what kernelwright.optimize returned for a module in memory cannot be pickled, as its "
            "kernels belong to this process: save its state_dict(), or its `model`"
        )

    def __repr__(self) -> str:
        """The headline of the search."""
        return f"Optimized({stories.load(self.summary.run, self._home).view.headline})"

    def _repr_html_(self) -> str:
        """The result card."""
        console = Console(record=True, file=io.StringIO(), width=100, force_jupyter=False)
        console.print(result_card(stories.load(self.summary.run, self._home)))
        return console.export_html(
            inline_styles=True, code_format='<pre style="line-height:1.25">{code}</pre>'
        )


def written(model: nn.Module, inputs: Inputs, home: Path | None) -> Written:
    """Write a module and its inputs into a folder of ours that is named for their content.

    Raises:
        Complaint: They are not what they should be, or torch cannot export them.
    """
    if not isinstance(model, nn.Module):
        raise Complaint(f"a file or an nn.Module can be optimised, not a {type(model).__name__}")
    try:
        arguments, named = _arguments(inputs)
        leaves, call = call_packing(arguments, named)
        names = flat_names(model, call)
    except RefusedError as said:
        raise refused(said.refusal) from None
    if not any(isinstance(leaf, torch.Tensor) for leaf in leaves):
        raise Complaint("no input is a tensor, so there is nothing to compute on")
    leaves = [_host(leaf) for leaf in leaves]
    flat = Flat(copy.deepcopy(model).to("cpu"), call)
    program = _exported(flat, leaves)
    kind = re.sub(r"\W+", "_", type(model).__name__)
    text = _FILE.format(kind=kind, names=", ".join(names))
    return _kept(program, leaves, text, kind.lower(), home, call, flat.seen.packing)


def _exported(flat: Flat, leaves: list[object]) -> bytes:
    try:
        with torch.no_grad():
            program = torch.export.export(flat, tuple(leaves), strict=False)
        saved = io.BytesIO()
        torch.export.save(program, saved)
    except RefusedError as said:
        raise refused(said.refusal) from None
    except Exception as error:  # whatever a forward raises, or torch has no words for
        words = reads_values(error)
        why = f"it {words}" if words else f"{type(error).__name__}: {message(error)}"
        raise Complaint(f"torch.export cannot write the model down: {why}") from error
    return saved.getvalue()


def _kept(
    program: bytes, leaves: list[object], text: str, name: str, home: Path | None,
    call: CallPacking, returns: Packing,
) -> Written:  # fmt: skip
    inputs = io.BytesIO()
    torch.save({"args": leaves, "kwargs": {}}, inputs)
    digest = hashlib.sha256(program + inputs.getvalue() + text.encode()).hexdigest()[:24]
    folder = (home or data_home()).absolute() / "models" / digest
    folder.mkdir(parents=True, exist_ok=True)
    for path, content in (
        (folder / "model.pt2", program),
        (folder / "inputs.pt", inputs.getvalue()),
        (folder / f"{name}.py", text.encode()),
    ):
        path.write_bytes(content)
    return Written(folder / f"{name}.py", folder / "inputs.pt", call, returns)


def load_export(folder: Path) -> ModuleType:
    """An export's module.py, as a module of its own."""
    name = f"kernelwright_export_{hashlib.sha256(str(folder).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(name, folder / "module.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _modes(model: nn.Module) -> list[bool]:
    """Which parts of a module are in training mode."""
    return [part.training for part in model.modules()]


def _joined(kernels: ModuleType, flat: Flat) -> nn.Module:
    """The drop-in over the caller's module: that is where it finds weights, and falls back to."""
    fast: nn.Module = kernels.Model()
    for name, buffer in list(fast._modules["inner"].named_buffers()):  # type: ignore[union-attr]
        if "." not in name:  # constants that the export took out of the forward
            flat.register_buffer(name, buffer, persistent=False)
    fast._modules["inner"] = flat
    # What was exported has none of the module's attributes and hooks: it is held against itself.
    fast._watch = kernels.watch.Watch(fast)
    return fast


def _arguments(inputs: Inputs) -> tuple[Sequence[object], dict[str, object]]:
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    if isinstance(inputs, Mapping):
        return (), {str(key): value for key, value in inputs.items()}
    if isinstance(inputs, (list, tuple)):
        return inputs, {}
    raise Complaint(
        "inputs must be a tensor, a list of arguments, or a dictionary of named ones, not a "
        f"{type(inputs).__name__}"
    )


def _host(leaf: object) -> object:
    return leaf.detach().to("cpu") if isinstance(leaf, torch.Tensor) else leaf


def _leaves(packing: Packing) -> int:
    return (packing.kind == "leaf") + sum(map(_leaves, packing.items))


def _leaf_count(call: CallPacking) -> int:
    return sum(map(_leaves, (*call.positional, *call.named)))
