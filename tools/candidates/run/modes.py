"""Two more ways to call a plan: as the replay of a CUDA graph, and inside torch.compile.

The judge imports this file, and an export holds a copy: it uses nothing of Kernelwright's. In a
graph of torch's a launch is an operator that says which tensors it writes; the library operators
around it are then torch.compile's to fuse. A graph is of the layouts that it was made of.
Not covered: plans that branch on values, and arguments whose elements share memory.
"""

import hashlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")
Tensors = Sequence[torch.Tensor]


class MapOf:
    """What a plan's `tensor_map(...)` is while it is traced: the tensor, and the other words."""

    def __init__(self, tensor: torch.Tensor, *words: object, **named: object) -> None:
        self.tensor, self.words, self.named = tensor, words, named

    def described(self) -> tuple[object, ...]:
        """All but the tensor."""
        return ("map", self.words, tuple(sorted(self.named.items())))


# Operators by what they launch. One that is made again under its name finds graphs around it that
# were compiled before; so they stay, with the library that registered them.
_KNOWN: dict[str, Callable[..., None]] = {}
_LIBRARIES: list[object] = []
# A schema of torch's has at most 64 arguments: what takes more than this takes them in two lists.
_MOST_ARGUMENTS = 48


class Operators:
    """Makes launches operators of torch's, one for each kernel with its fixed arguments.

    Args:
        owner: Tells these kernels from others, and from the same on another device.
        device: The kernels' kind of device, `cpu` or `cuda`.
        make_map: Makes a tensor map that a kernel takes; None where there are none.
    """

    def __init__(
        self, owner: str, device: str, make_map: Callable[..., object] | None = None
    ) -> None:
        self._owner, self._key, self._make_map = owner, device.upper(), make_map
        self._library = torch.library.Library("kernelwright_launch", "FRAGMENT")  # type: ignore[no-untyped-call]
        _LIBRARIES.append(self._library)

    def launcher(
        self, kernel: str, launch: Callable[..., None], written: Sequence[bool]
    ) -> Callable[..., None]:
        """What stands for a kernel's launcher while a plan is traced.

        Args:
            kernel: Its name.
            launch: Takes the kernel's arguments and the launch's geometry.
            written: Which of the arguments the kernel may write to.
        """

        def recorded(arguments: Sequence[object], *geometry: object) -> None:
            fixed = [_without_tensor(value) for value in arguments]
            tensors, which = _each_once(arguments)
            content = repr((self._owner, self._key, kernel, fixed, which, geometry))
            if content not in _KNOWN:
                run = partial(self._launched, launch, list(arguments), which, geometry)
                name = f"{kernel}_{hashlib.sha256(content.encode()).hexdigest()[:12]}"
                flags = [
                    any(
                        is_written for at, is_written in zip(which, written, strict=True) if at == n
                    )
                    for n in range(len(tensors))
                ]
                _KNOWN[content] = self._registered(name, run, flags)
            _KNOWN[content](*tensors)

        return recorded

    def _launched(
        self,
        launch: Callable[..., None],
        arguments: Sequence[object],
        which: Sequence[int | None],
        geometry: Sequence[object],
        *tensors: torch.Tensor,
    ) -> None:
        """Launch with these tensors where those stood that the plan was traced with."""
        given = iter([tensors[at] for at in which if at is not None])
        launch([self._placed(value, given) for value in arguments], *geometry)

    def _placed(self, value: object, given: Iterator[torch.Tensor]) -> object:
        if isinstance(value, MapOf) and self._make_map is not None:
            return self._make_map(next(given), *value.words, **value.named)
        return next(given) if isinstance(value, torch.Tensor) else value

    def _registered(
        self, name: str, run: Callable[..., None], written: Sequence[bool]
    ) -> Callable[..., None]:
        space = torch.ops.kernelwright_launch
        while hasattr(space, name):
            name += "_"  # the same kernels were loaded before
        in_lists = len(written) > _MOST_ARGUMENTS
        library: Any = self._library
        library.define(f"{name}({_schema(written)}) -> ()", tags=(torch.Tag.pt2_compliant_tag,))
        library.impl(name, partial(_from_lists, run, written) if in_lists else run, self._key)
        torch.library.register_fake(f"kernelwright_launch::{name}", _nothing, lib=library)
        found: Callable[..., None] = getattr(space, name).default
        return partial(_to_lists, found, written) if in_lists else found


def _schema(written: Sequence[bool]) -> str:
    """The arguments of a launch's operator: tensors, or those read and those written as lists."""
    if len(written) > _MOST_ARGUMENTS:
        return "Tensor[] read, Tensor(a!)[] written"
    return ", ".join(
        f"Tensor(a{at}!) t{at}" if is_written else f"Tensor t{at}"
        for at, is_written in enumerate(written)
    )


def _to_lists(operator: Callable[..., None], written: Sequence[bool], *given: torch.Tensor) -> None:
    flagged = list(zip(given, written, strict=True))
    operator([t for t, flag in flagged if not flag], [t for t, flag in flagged if flag])


def _from_lists(
    run: Callable[..., None], written: Sequence[bool], read: Tensors, changed: Tensors
) -> None:
    given = {False: iter(read), True: iter(changed)}
    run(*[next(given[flag]) for flag in written])


def _tensor(value: object) -> torch.Tensor | None:
    if isinstance(value, MapOf):
        return value.tensor
    return value if isinstance(value, torch.Tensor) else None


def _each_once(arguments: Sequence[object]) -> tuple[list[torch.Tensor], list[int | None]]:
    """The tensors, each once, and which of them stands at each argument.

    A kernel may take the pointer and a map of one tensor: as two arguments of an operator one of
    them would be copied before it is written to.
    """
    found: list[torch.Tensor] = []
    which: list[int | None] = []
    for value in arguments:
        tensor = _tensor(value)
        at = next((n for n, one in enumerate(found) if one is tensor), len(found))
        found += [tensor] if tensor is not None and at == len(found) else []
        which.append(at if tensor is not None else None)
    return found, which


def _without_tensor(value: object) -> object:
    if isinstance(value, MapOf):
        return value.described()
    return "tensor" if isinstance(value, torch.Tensor) else value


def _nothing(*tensors: object) -> None:
    """A launch without its work, for tensors without memory."""


def traced(
    function: Callable[..., Sequence[torch.Tensor]], given: Sequence[torch.Tensor]
) -> torch.fx.GraphModule:
    """The graph of a function of tensors, whose launches are operators; nothing is run."""
    from torch.fx.experimental.proxy_tensor import make_fx  # takes a second to import

    with torch.no_grad():
        made: torch.fx.GraphModule = make_fx(function, tracing_mode="fake")(*given)
        return made


def captured(call: Callable[[], Result]) -> Callable[[], Result]:
    """The call as a replay of a CUDA graph, without the host's cost of each launch.

    Raises:
        RuntimeError: the call cannot be captured (it synchronises, or moves data to the host).
    """
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    mark = torch.zeros(1, device="cuda")
    recorded = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(recorded):
            kept = call()
    except Exception:
        _after_a_failed_capture(recorded, mark)
        raise

    def replay() -> Result:
        recorded.replay()
        return kept

    return replay


def _after_a_failed_capture(recorded: torch.cuda.CUDAGraph, mark: torch.Tensor) -> None:
    """End what PyTorch (2.11 to 2.13) leaves begun: who draws a number next would be refused.

    Its allocator still records memory for the graph, its generator believes to be captured; the one
    is told to stop, the other stops with a capture that succeeds.
    """
    # Another version may have stopped it by itself, or call this otherwise.
    with suppress(RuntimeError, AttributeError, TypeError):
        torch._C._cuda_endAllocateToPool(mark.device.index, recorded.pool())
    with suppress(RuntimeError), torch.cuda.graph(torch.cuda.CUDAGraph()):
        mark.add_(1)


class Replayed:
    """A call as the replay of one graph: arguments are copied in, results are copied out.

    Args:
        call: Takes arguments like those given; what else it reads stays where it is.
        given: Arguments of the layout that it is made for.
        capture: See `captured`.

    Raises:
        RuntimeError: it cannot be captured.
    """

    def __init__(
        self,
        call: Callable[[Sequence[object]], Sequence[torch.Tensor]],
        given: Sequence[object],
        capture: Callable[[Callable[[], Tensors]], Callable[[], Tensors]] = captured,
    ) -> None:
        own = [_copy(value) if isinstance(value, torch.Tensor) else value for value in given]
        self._tensors = [value for value in own if isinstance(value, torch.Tensor)]
        self._replay = capture(lambda: call(own))

    def __call__(self, given: Sequence[object]) -> tuple[torch.Tensor, ...]:
        """The results for these arguments, in memory of their own."""
        new = [value for value in given if isinstance(value, torch.Tensor)]
        torch._foreach_copy_(self._tensors, new)
        return tuple(value.clone() for value in self._replay())


def layout_of(given: Sequence[object]) -> tuple[object, ...]:
    """What a graph is made for: how tensors lie, and the plain values themselves, kept in it."""
    return tuple(
        (value.shape, value.stride(), value.dtype)
        if isinstance(value, torch.Tensor)
        else (type(value), value)
        for value in given
    )


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """The same values, laid out in the same way."""
    like = torch.empty_strided(
        tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )
    return like.copy_(tensor)


# What an export's plan is called by. There launches take their geometry first, then arguments.

_MOST_WAYS = 8


class Launches:
    """A plan's kernels, which take tensors in the place of their addresses.

    Args:
        kernels: The loaded ones, as attributes.
        written: For every kernel, which of its arguments it may write to.
        geometry: How many numbers of a launch come before the kernel's arguments.
        operators: Where a tracer is to see each launch: makes them operators.
    """

    def __init__(
        self,
        kernels: object,
        written: dict[str, tuple[bool, ...]],
        geometry: int,
        operators: Operators | None = None,
    ) -> None:
        self.device: torch.device = kernels.device  # type: ignore[attr-defined]
        self.tensor_map = getattr(kernels, "tensor_map", None) if operators is None else MapOf
        for name, flags in written.items():
            launch = partial(_by_address, getattr(kernels, name))
            if operators is not None:
                recorded = operators.launcher(name, partial(_geometry_first, launch), flags)
                launch = partial(_arguments_first, recorded, geometry)
            setattr(self, name, launch)


def _by_address(kernel: Callable[..., None], *given: object) -> None:
    kernel(*[value.data_ptr() if isinstance(value, torch.Tensor) else value for value in given])


def _geometry_first(
    launch: Callable[..., None], arguments: Sequence[object], *geometry: object
) -> None:
    launch(*geometry, *arguments)


def _arguments_first(launch: Callable[..., None], geometry: int, *given: object) -> None:
    launch(given[geometry:], *given[:geometry])


Named = dict[str, torch.Tensor]
Way = Callable[[Sequence[object], Named, Named], Sequence[torch.Tensor]]


class Ways:
    """Calls a printed plan in its mode; what cannot be made is called eagerly, after a warning.

    Not for several threads at once where the mode is `graph`.

    Args:
        plan: The printed plan: kernels, weights, what was prepared, new buffers, inputs.
        kernels: The loaded kernels.
        written: See `Launches`.
        geometry: See `Launches`.
        owner: See `Operators`.
    """

    def __init__(
        self,
        plan: Callable[..., object],
        kernels: object,
        written: dict[str, tuple[bool, ...]],
        geometry: int,
        owner: str,
    ) -> None:
        self.launches = Launches(kernels, written, geometry)
        device = self.launches.device.type
        self._operators = Operators(
            f"{owner} {self.launches.device}", device, getattr(kernels, "tensor_map", None)
        )
        self._seen = Launches(kernels, written, geometry, self._operators)
        self._plan, self._is_single = plan, True
        self._made: dict[object, tuple[Way, list[str], object]] = {}

    def __call__(
        self,
        mode: str,
        given: Sequence[object],
        weights: Named,
        prepared: Named | None,
    ) -> tuple[object, Named]:
        """What the plan returns, and the new values of the buffers that it updates."""
        ready = prepared or {}
        key: tuple[object, ...] = (mode, layout_of(given))
        if mode == "graph":  # which reads weights where they were
            key = (*key, id(prepared), *(value.data_ptr() for value in weights.values()))
        if key not in self._made:
            while len(self._made) >= _MOST_WAYS:
                self._made.pop(next(iter(self._made)))
            names: list[str] = []
            # What was prepared is held: nothing else may come to lie where it does.
            self._made[key] = self._way(mode, names, given, weights, ready), names, prepared
        way, names, _ = self._made[key]
        flat = tuple(way(given, weights, ready))
        results = flat[: len(flat) - len(names)]
        updates = dict(zip(names, flat[len(results) :], strict=True))
        return (results[0] if self._is_single else results), updates

    def _way(
        self,
        mode: str,
        names: list[str],
        given: Sequence[object],
        weights: Named,
        prepared: Named,
    ) -> Way:
        try:
            if mode == "graph":
                call = partial(self._flat, self.launches, names)
                replay = Replayed(lambda own: call(own, weights, prepared), given)
                return lambda given, weights, prepared: replay(given)
            return self._compiled(names, given, weights, prepared)
        except Exception as error:  # torch.compile raises nearly every class there is
            warnings.warn(f"the kernels are called eagerly: {error}", stacklevel=4)
            return partial(self._flat, self.launches, names)

    def _compiled(
        self,
        names: list[str],
        given: Sequence[object],
        weights: Named,
        prepared: Named,
    ) -> Way:
        def flat_of(
            given: Sequence[object],
            weights: Named,
            prepared: Named,
        ) -> list[torch.Tensor]:
            inputs = [value for value in given if isinstance(value, torch.Tensor)]
            return [*inputs, *weights.values(), *prepared.values()]

        def forward(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            at = iter(tensors)
            inputs = [next(at) if isinstance(value, torch.Tensor) else value for value in given]
            named = {name: next(at) for name in weights}
            ready = {name: next(at) for name in prepared}
            return self._flat(self._seen, names, inputs, named, ready)

        flat = [tensor.detach() for tensor in flat_of(given, weights, prepared)]
        made: Callable[..., Tensors] = torch._inductor.compile(traced(forward, flat), [*flat])
        return lambda given, weights, prepared: made(*flat_of(given, weights, prepared))

    def _flat(
        self,
        launches: Launches,
        names: list[str],
        given: Sequence[object],
        weights: Named,
        prepared: Named,
    ) -> tuple[torch.Tensor, ...]:
        """The results, then the new values of buffers, whose names are kept."""
        updates: Named = {}
        result = self._plan(launches, dict(weights), prepared, updates, *given)
        names[:], self._is_single = updates, isinstance(result, torch.Tensor)
        results = (result,) if isinstance(result, torch.Tensor) else tuple(result)  # type: ignore[arg-type]
        return (*results, *updates.values())
