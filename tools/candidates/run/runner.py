"""Runs a plan: the one object that a judge or a timer calls.

Not safe for two threads at once: the current weights and the launchers' argument memory are
shared between calls. It can also note how a plan launches its kernels, while it really does: for
one call, not for timed ones, as every launch then goes through a note-taker (`launches`).
"""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf, nan
from types import TracebackType

import torch

from kernelwright.tools.candidates.arithmetic import DeviceError, LaunchRefused
from kernelwright.tools.candidates.kernel_source import KernelSource, complete_settings
from kernelwright.tools.candidates.plan import ADMITTED, validate_plan
from kernelwright.tools.candidates.plan.lifetimes import letting_go
from kernelwright.tools.candidates.plan.validate import parse_plan, weights_read
from kernelwright.tools.candidates.plan.vocabulary import PART, REFERENCE, TENSOR_MAP
from kernelwright.tools.candidates.run.arguments import (
    Allocator,
    Host,
    Loader,
    TorchAllocator,
    without_gradients,
)
from kernelwright.tools.candidates.run.guards import (
    BUILTINS,
    GUARDS,
    dtype_named,
    dtype_or_value,
    number,
    resolve,
    shape_of,
    shown,
    tensor,
)
from kernelwright.tools.candidates.run.launches import Notes
from kernelwright.tools.candidates.run.modes import MapOf, Operators
from kernelwright.tools.candidates.run.rewrite import (
    ALLOCATE,
    Folder,
    Rewriter,
    launcher_name,
    operator_name,
)
from kernelwright.tools.candidates.run.tensor_maps import TensorMaps
from kernelwright.tools.candidates.run.updates import Updates
from kernelwright.tools.types import Candidate
from kernelwright.tools.types.idea import LaunchShape

Around = Callable[[str, Callable[..., object]], Callable[..., object]]

_FILE = "<plan>"
# What Python raises when a plan does something impossible; all of it is the candidate's doing.
_PLAN_ERRORS = (
    ArithmeticError,
    AttributeError,
    IndexError,
    KeyError,
    NameError,
    NotImplementedError,
    TypeError,
    ValueError,
)


class PlanRunner:
    """A candidate loaded on a device: `runner(args, weights)` gives the outputs.

    Args:
        candidate: Its plan is validated again here.
        source: What its kernel exports and declares.
        load: Gives the functions of its built object.
        device: As torch names it ("cuda:0", "cpu").
        allocator: Where the plan's memory comes from; torch's own when None.
        operators: Library operators admitted.
        host: Runs the model with the plan's parts in it; None where a task has none.

    Raises:
        ContractError: When kernel or plan break the contract.
        LaunchRefused: When the object lacks a function.
        DeviceError: When the device cannot load the object.
    """

    def __init__(
        self,
        candidate: Candidate,
        source: KernelSource,
        load: Loader,
        device: str | torch.device,
        allocator: Allocator | None = None,
        *,
        operators: frozenset[str] = ADMITTED,
        host: Host | None = None,
    ):
        self.source = source
        self.plan = validate_plan(candidate.plan, self.source, operators)
        self.device = _indexed(torch.device(device))
        self._allocator, self._host = allocator or TorchAllocator(), host
        settings = complete_settings(self.source, candidate.settings)
        self._namespace: dict[str, object] = {"__slice": slice, **GUARDS}
        self._namespace["__builtins__"] = dict(BUILTINS)
        constants: dict[str, object] = {"inf": inf, "nan": nan}
        constants |= {item.name: item.value for item in settings}
        self._namespace |= constants
        self._namespace |= self._helpers()
        self._launchers = load(self.source, self.device)
        self._namespace |= {launcher_name(name): call for name, call in self._launchers.items()}
        self._namespace |= {
            operator_name(path): resolve(path, self.device) for path in self.plan.operators
        }
        self._compile(constants)
        self._weights: Mapping[str, torch.Tensor] = {}

    def prepare(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Run the plan's `prepare`, where it has one; the caller times it as set-up.

        Raises:
            LaunchRefused: When it cannot be carried out.
        """
        if self._prepare is None:
            return
        self._prepared_from = self._versions(weights)
        prepared = self._run(self._prepare, (weights,), weights)
        assert isinstance(prepared, dict)
        for name, value in prepared.items():
            if not isinstance(value, torch.Tensor):
                raise LaunchRefused(f"prepare returns {shown(value)} as {name!r}, not a tensor")
        self._namespace["prepared"] = prepared

    def watch(self, around: Callable[[Callable[[], None]], None]) -> None:
        """From now on every launch is made by `around`, which is given it to carry out."""
        for function in self.source.functions:
            word = launcher_name(function.name)
            launch = self._namespace[word]
            assert callable(launch)
            self._namespace[word] = _watched(launch, around)

    def prepare_again(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Prepare anew from other weights, into the same memory (a graph may have captured it)."""
        if self._prepare is None:
            return
        before = self._namespace["prepared"]
        self.prepare(weights)
        after = self._namespace["prepared"]
        assert isinstance(before, dict)
        assert isinstance(after, dict)
        alike = before.keys() == after.keys() and all(
            before[name].shape == value.shape
            and before[name].dtype == value.dtype
            and before[name].stride() == value.stride()
            for name, value in after.items()
        )
        if alike:
            homes = {weight.untyped_storage().data_ptr() for weight in weights.values()}
            for name, value in after.items():
                if value.untyped_storage().data_ptr() in homes:
                    before[name] = value  # a view of a weight, which may be another one now
                elif before[name].data_ptr() != value.data_ptr():
                    before[name].copy_(value)
            self._namespace["prepared"] = before

    def kept(self, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """What the plan prepared of these weights, as it is now; views of them are left out."""
        self.keep_up(weights)
        prepared = self._namespace.get("prepared", {})
        assert isinstance(prepared, dict)
        homes = {weight.untyped_storage().data_ptr() for weight in weights.values()}
        return {n: t for n, t in prepared.items() if t.untyped_storage().data_ptr() not in homes}

    def keep_up(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Prepare again, if weights changed since; every call begins with it."""
        if self._prepared_from and self._prepared_from != self._versions(weights):
            self.prepare_again(weights)

    def _versions(self, weights: Mapping[str, torch.Tensor]) -> list[int]:
        """Where the weights that `prepare` reads lie, and how often they were written to."""
        read = [weights[name] for name in self._read_once if name in weights]
        return [number for weight in read for number in (weight.data_ptr(), weight._version)]

    def __call__(
        self, args: Sequence[object], weights: Mapping[str, torch.Tensor]
    ) -> tuple[torch.Tensor, ...]:
        """Run the plan's `forward`; first `prepare` again, if weights changed since it ran.

        Args:
            args: The task's inputs in order, tensors and plain scalars.
            weights: Parameters and buffers by state-dict name; buffers may be updated.

        Returns:
            The outputs; on a GPU the work is queued, not finished.

        Raises:
            LaunchRefused: When the plan cannot be carried out.
            DeviceError: When the device reports an error of earlier work.
        """
        # An export looks as well, so the look is part of every call that is timed.
        self.keep_up(weights)
        result = self._run(self._forward, args, weights)
        if isinstance(result, torch.Tensor):
            return (result,)
        if not isinstance(result, tuple | list) or not result:
            raise LaunchRefused(f"forward returns {shown(result)}, not a tensor or a tuple of them")
        for value in result:
            if not isinstance(value, torch.Tensor):
                raise LaunchRefused(f"forward returns {shown(value)} among its outputs")
        return tuple(result)

    def observe(self, around: Around) -> None:
        """Put something around every launch and library operator, such as a clock.

        Args:
            around: Gets a kernel's name, or an operator's with `aten_` before it, and the call.
        """
        places = {launcher_name(item.name): item.name for item in self.source.functions}
        places |= {operator_name(path): f"aten_{path}" for path in self.plan.operators}
        for place, name in places.items():
            call = self._namespace[place]
            assert callable(call)
            self._namespace[place] = around(name, call)

    @property
    def prepared(self) -> dict[str, torch.Tensor]:
        """What `prepare` returned; empty where the plan has none."""
        found = self._namespace.get("prepared", {})
        assert isinstance(found, dict)
        return found

    @contextmanager
    def traceable(
        self, operators: Operators, prepared: Mapping[str, torch.Tensor]
    ) -> Iterator[None]:
        """Inside, launches are operators and memory is torch's, so that a tracer sees both.

        Args:
            operators: Makes them.
            prepared: What the plan finds in the place of what it prepared.
        """
        usual, allocator = dict(self._namespace), self._allocator
        made_from, self._prepared_from = self._prepared_from, []  # a tracer's weights lie nowhere
        self._allocator = TorchAllocator()
        self._namespace |= {
            launcher_name(name): operators.launcher(name, call, self.source.written[name])
            for name, call in self._launchers.items()
        }
        self._namespace |= {
            ALLOCATE: partial(self._allocator.empty, device=self.device),
            TENSOR_MAP: MapOf,
            "prepared": prepared,
        }
        try:
            yield
        finally:
            self._namespace |= usual
            self._allocator = allocator
            self._prepared_from = made_from

    def launches(
        self, args: Sequence[object], weights: Mapping[str, torch.Tensor]
    ) -> tuple[LaunchShape, ...]:
        """Run the plan's `forward` once more and say how it launched its kernels.

        Raises:
            LaunchRefused: When the plan cannot be carried out.
            DeviceError: When the device reports an error of earlier work.
        """
        notes = Notes(geometry=self.source.has_grid)
        plain = self._launchers
        try:
            self._namespace |= {launcher_name(n): notes.taking(n, c) for n, c in plain.items()}
            self._run(self._forward, args, weights)
        finally:
            self._namespace |= {launcher_name(name): call for name, call in plain.items()}
        return notes.shapes

    def _run(
        self,
        function: Callable[..., object],
        args: Sequence[object],
        weights: Mapping[str, torch.Tensor],
    ) -> object:
        self._weights = self._namespace["weights"] = weights
        try:
            if not self.plan.updates:
                return without_gradients(function, args)
            return without_gradients(self._updating, (function, args))
        except LaunchRefused as refused:
            raise LaunchRefused(refused.words, _plan_line(refused.__traceback__)) from None
        except _PLAN_ERRORS as error:
            raise LaunchRefused(_words(error), _plan_line(error.__traceback__)) from None
        except RuntimeError as error:
            if _is_device_error(error):
                raise
            raise LaunchRefused(_words(error), _plan_line(error.__traceback__)) from None

    def _updating(self, function: Callable[..., object], args: Sequence[object]) -> object:
        self._updates = Updates(self._weights)
        self._namespace["weights"] = self._updates.seen
        result = function(*args)
        self._updates.write()
        return result

    def _compile(self, constants: Mapping[str, object]) -> None:
        tree = parse_plan(self.plan.text)
        tunables = frozenset(item.name for item in self.source.tunables)
        functions = [item for item in tree.body if isinstance(item, ast.FunctionDef)]
        folder = Folder(constants)
        rewritten = (Rewriter(letting_go(item), tunables).visit(item) for item in functions)
        tree.body = [folder.visit(item) for item in rewritten]
        self._namespace |= folder.held
        ast.fix_missing_locations(tree)
        # The validator admitted every node, and the namespace has no builtins that it could name.
        exec(compile(tree, _FILE, "exec"), self._namespace)
        forward, prepare = self._namespace["forward"], self._namespace.get("prepare")
        assert callable(forward)
        names = [item.name for item in functions if item.name.startswith(PART)]
        self._parts = {int(n.removeprefix(PART)): self._callable(n) for n in names}
        self._forward: Callable[..., object] = forward
        self._prepare: Callable[..., object] | None = prepare if callable(prepare) else None
        self._read_once = weights_read(self.plan.text).get("prepare", ())
        self._prepared_from = list[int]()

    def _callable(self, name: str) -> Callable[..., object]:
        found = self._namespace[name]
        assert callable(found)
        return found

    def _reference(self, *args: object) -> object:
        """The model's own forward, with the plan's parts in it."""
        if self._host is None:
            raise LaunchRefused("reference(...) is for models that are traced in parts")
        return self._host(args, self._weights, self._parts)

    def _helpers(self) -> dict[str, Callable[..., object]]:
        return {
            "empty": self._empty,
            ALLOCATE: partial(self._allocator.empty, device=self.device),
            "zeros": lambda shape, dtype="float32": self._empty(shape, dtype).zero_(),
            "full": self._full,
            "empty_like": self._empty_like,
            "zeros_like": lambda x, dtype=None: self._empty_like(x, dtype).zero_(),
            "full_like": lambda x, value, dtype=None: self._empty_like(x, dtype).fill_(
                number(value)
            ),
            "update": self._update,
            REFERENCE: self._reference,
            TENSOR_MAP: TensorMaps(),
        }

    def _empty(self, shape: object, dtype: object = "float32") -> torch.Tensor:
        named = dtype if isinstance(dtype, torch.dtype) else dtype_named(dtype)
        return self._allocator.empty(shape_of(shape), named, self.device)

    def _empty_like(self, like: object, dtype: object = None) -> torch.Tensor:
        """Contiguous whatever the other tensor's strides are, so that kernels can rely on it."""
        model = tensor(like)
        named = model.dtype if dtype is None else dtype_or_value(dtype)
        return self._empty(model.shape, named)

    def _full(self, shape: object, value: object, dtype: object = "float32") -> torch.Tensor:
        return self._empty(shape, dtype).fill_(number(value))

    def _update(self, name: str, value: object) -> None:
        self._updates.take(name, value)


def _watched(
    launch: Callable[..., None], around: Callable[[Callable[[], None]], None]
) -> Callable[..., None]:
    def launched(*args: object) -> None:
        around(lambda: launch(*args))

    return launched


def _indexed(device: torch.device) -> torch.device:
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _plan_line(traceback: TracebackType | None) -> int:
    """The line of the plan that an error passed through last; 0 when it passed through none."""
    line = 0
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == _FILE:
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line


def _words(error: Exception) -> str:
    first = str(error).strip().split("\n", 1)[0]
    if isinstance(error, KeyError):
        return f"there is no {error} here"
    return f"{type(error).__name__}: {first}"


def _is_device_error(error: RuntimeError) -> bool:
    """Out of memory and errors of the device are not the plan's words to explain."""
    if isinstance(error, DeviceError | torch.OutOfMemoryError) or device_lost(error):
        return True
    return "can't allocate memory" in str(error)


def device_lost(error: RuntimeError) -> bool:
    """Whether the device itself reports that something went wrong on it, out of memory aside."""
    if isinstance(error, torch.OutOfMemoryError):
        return False
    return isinstance(error, torch.AcceleratorError) or "CUDA error" in str(error)
