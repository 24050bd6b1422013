"""The reference in float64: what an output should be.

Evaluated on the device at once where it fits; else in chunks along the first dimension, where
the result shows that rows do not depend on each other; else on the host. Where nothing fits the
task cannot be verified here, and that is said.

`Altered` runs the reference's forward with something done to single operators: rounded, or a term
left out. Operators are seen as tracing breaks them down, so a layer norm shows its mean, its
deviations and its scale. Used on the float64 copy of a reference, never on what is compared with
it. Not covered: what stays one operator (products, convolutions, attention) is altered at its end.

`small_steps` keeps comparing on one thread, as dividing small steps costs more than it brings:
comparing works through tensors in chunks that fit a cache, and on a machine with few cores that
also does other work, every step shared among threads would wait for the one that is not scheduled.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from math import sqrt

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.verify.memory import available_bytes, scores_bytes, truth_bytes
from kernelwright.tools.tasks import Reference
from kernelwright.tools.tasks.aten_graph import decompositions
from kernelwright.tools.tasks.reference import doubled
from kernelwright.tools.types import DType, Task
from kernelwright.tools.types.graph import words

_FEW = 4


@contextmanager
def small_steps() -> Iterator[None]:
    """One thread inside, where there are few anyway; for everything but references and kernels."""
    usual = torch.get_num_threads()
    if usual > _FEW:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(usual)


# These round nothing: they select, move, compare or make values.
_EXACT = words(
    "abs amax amin arange argmax argmin as_strided bernoulli cat clamp clamp_max clamp_min clone "
    "constant_pad_nd contiguous copy cummax cummin detach diagonal embedding empty empty_like "
    "empty_strided expand eye fill flip full full_like gather index index_put index_select "
    "lift_fresh masked_fill max max_pool2d_with_indices max_pool3d_with_indices maximum min "
    "minimum neg new_empty new_full new_ones new_zeros normal ones ones_like permute rand "
    "rand_like randint randint_like randn randn_like randperm relu repeat roll "
    "round scalar_tensor scatter select_scatter sign slice_scatter sort split stack topk tril "
    "triu where zero zeros zeros_like _to_copy _local_scalar_dense"
)
_SUMS = words("sum mean cumsum var var_mean")
_SLACK, _MOST_STEPS = 1.5, 32.0


class Altered(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While active, every operator that is not broken down further goes through `alter`."""

    def __torch_dispatch__(
        self,
        func: OpOverload,
        types: Sequence[type],
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        """Run the operator, in smaller ones where it has them, and alter what it gives."""
        smaller = _table().get(func)
        if smaller is not None:
            with self:
                return smaller(*args, **(kwargs or {}))
        return self.alter(func, args, kwargs or {})

    def alter(
        self, func: OpOverload, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> object:
        """What to give instead of the operator's result."""
        raise NotImplementedError


class Rounded(Altered):
    """Every result is off by at most as much as a kernel in the task's type may be.

    An operator on elements by one rounding; a sum by as many as adding up in a plain order costs
    on average, the root of its length and half again (equal terms are all rounded the same way),
    but by 32 at most: a long sum is no excuse for leaving part of it out.

    Args:
        seed: of the noise.
        unit: half the distance between neighbours of 1 in the type.
    """

    def __init__(self, seed: int, unit: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._seed = seed
        self._unit = unit
        self._sources: dict[torch.device, torch.Generator] = {}

    def alter(
        self, func: OpOverload, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> object:
        """The result, with noise of the size of its rounding."""
        result = func(*args, **kwargs)
        name = plain_name(func)
        if func.is_view or name in _EXACT:
            return result
        made = result if isinstance(result, (tuple, list)) else (result,)
        parts = [part for part in map(_real, made) if part is not None]
        sums = name in _SUMS and parts and not any(_is_complex(part) for part in made)
        sizes = _spreads(func, args, kwargs, parts) if sums else [part.abs() for part in parts]
        for part, size in zip(parts, sizes, strict=True):
            noise = self._noise(part).mul_(size).mul_(self._unit)
            part.add_(torch.where(torch.isfinite(noise), noise, 0.0))
        return result

    def _noise(self, like: Tensor) -> Tensor:
        """1 or -1, at random: a size drawn as well would be a matter of luck again."""
        device = like.device
        if device not in self._sources:
            self._sources[device] = torch.Generator(device).manual_seed(self._seed)
        source = self._sources[device]
        drawn = torch.rand(like.shape, generator=source, device=device, dtype=like.dtype)
        return drawn.sub_(0.5).sign_()


def _is_complex(value: object) -> bool:
    return isinstance(value, Tensor) and value.is_complex()


def _real(value: object) -> Tensor | None:
    """A tensor of fractions to add noise to, of a complex one both parts; None for others."""
    if not isinstance(value, Tensor):
        return None
    if value.is_complex() and not value.is_conj():
        return torch.view_as_real(value)
    return value if value.is_floating_point() else None


def _spreads(
    func: OpOverload,
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    results: Sequence[Tensor],
) -> list[Tensor]:
    """The sizes of sums' roundings, in roundings: of the sum and of its terms' root of squares."""
    terms = args[0]
    assert isinstance(terms, Tensor)
    name = plain_name(func)
    running = name == "cumsum" and isinstance(args[1], int)
    count = terms.shape[args[1]] if running else terms.numel() / max(1, results[0].numel())  # type: ignore[call-overload]
    steps = min(_SLACK * sqrt(count), _MOST_STEPS)
    if name in ("var", "var_mean"):
        return _of_variance(args, kwargs, results, steps, steps / sqrt(max(count, 1)))
    if name == "mean":
        return [results[0].abs() * steps]
    squares = func(terms.detach() ** 2, *args[1:], **kwargs)
    return [torch.hypot(results[0], squares.sqrt()) * steps]


def _of_variance(
    args: tuple[object, ...],
    kwargs: Mapping[str, object],
    results: Sequence[Tensor],
    steps: float,
    each: float,
) -> list[Tensor]:
    """Deviations are from a mean that is rounded itself, in one pass once for every term."""
    dims = args[1] if len(args) > 1 else kwargs.get("dim")
    keep = kwargs.get("keepdim", False)
    mean = results[1] if len(results) > 1 else torch.mean(args[0], dims, keepdim=keep)  # type: ignore[call-overload]
    variance = results[0]
    spread = variance * steps + 2 * variance.clamp_min(0).sqrt() * mean.abs() * each
    return [spread, torch.hypot(mean, variance.sqrt()) * steps][: len(results)]


def plain_name(func: OpOverload) -> str:
    """As in the lists above, for the operator in place as well."""
    name = str(func.overloadpacket.__name__)
    return name if name.startswith("_") or not name.endswith("_") else name.rstrip("_")


@cache
def _table() -> Mapping[OpOverload, Callable[..., object]]:
    return decompositions()


# Times the truth itself: parts of it take half of the room there is, and something is left over.
_ROOM_FOR_WHOLE = 3

Argument = Tensor | bool | int | float | str | None


class UnverifiableError(Exception):
    """The truth does not fit into any memory at hand."""


class Truth:
    """Evaluates the float64 reference of one task on one device."""

    def __init__(self, task: Task, reference: Reference, device: str, rules: Rules) -> None:
        self._task = task
        self._reference = reference
        self._device = device
        self._rules = rules
        self._double: Reference | None = None
        self.note = ""

    def forget(self) -> None:
        """The reference's weights have changed: its float64 copy is made anew."""
        self._double = None

    def outputs(
        self, arguments: Sequence[Argument], own: Sequence[Tensor]
    ) -> tuple[tuple[Tensor, ...], Mapping[str, Tensor]]:
        """Every output in float64 (integers as they are), and the buffers after the forward.

        Args:
            arguments: of the forward, in the task's own types.
            own: PyTorch's outputs in the task's types, which chunks have to agree with.

        Raises:
            UnverifiableError: when the device, the host and chunks are all too small.
        """
        if self._double is None:
            self._double = self._reference.double()
        needed = truth_bytes(self._task)
        room = available_bytes(self._device, self._rules.memory_fraction)
        if needed <= room:
            try:
                return self._whole(self._double, [_double(a) for a in arguments])
            except torch.OutOfMemoryError:
                torch.cuda.empty_cache()
        if self._reference.generators.types:
            # Parts, and the host, would draw other numbers.
            raise UnverifiableError(_short_of(needed))
        room = available_bytes(self._device, self._rules.memory_fraction)
        parts = self._chunks(self._double, arguments, own, needed, room)
        if parts is not None:
            return parts, {}
        return self._on_host(arguments, needed)

    def rounded(
        self, arguments: Sequence[Argument], seed: int, steps: float = 1.0
    ) -> tuple[tuple[Tensor, ...], Mapping[str, Tensor]] | None:
        """The truth again, with every operator's result off by its rounding in the task's type.

        None where it does not fit at once.

        Args:
            arguments: of the forward.
            seed: of the noise.
            steps: how many roundings.
        """
        if self._double is None:
            self._double = self._reference.double()
        room = available_bytes(self._device, self._rules.memory_fraction)
        if 2 * truth_bytes(self._task) > room:
            return None
        doubles = [_double(a) for a in arguments]
        try:
            with self._attention(room), Rounded(seed, steps * self._unit):
                return self._whole(self._double, doubles)
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            return None

    def _attention(self, room: int) -> AbstractContextManager[object]:
        """Attention in single steps, else its scores would be exact; whole where they do not fit.

        Scores, powers, their shares and the noise are there at once.
        """
        scores = 4 * scores_bytes(self._task)
        fits = 2 * truth_bytes(self._task) + scores <= room
        return sdpa_kernel(SDPBackend.MATH) if scores and fits else nullcontext()

    @property
    def _unit(self) -> float:
        """Of the type that kernels compute in: half precision is added up in single."""
        wide = any(spec.dtype is DType.FLOAT64 for spec in self._task.outputs)
        return torch.finfo(torch.float64 if wide else torch.float32).eps / 2

    def _whole(
        self, reference: Reference, arguments: Sequence[Argument]
    ) -> tuple[tuple[Tensor, ...], Mapping[str, Tensor]]:
        before = reference.snapshot()
        try:
            live = reference.weights()
            lasting = [*live.values(), *(a for a in arguments if isinstance(a, Tensor))]
            taken = {tensor.untyped_storage().data_ptr() for tensor in lasting}
            outputs = tuple(_apart(t, taken) for t in reference.forward(arguments))
            names = {mutation.target for mutation in self._task.graph.mutations}
            return outputs, {name: live[name].clone() for name in names}
        finally:
            reference.restore(before)

    def _chunks(
        self,
        reference: Reference,
        arguments: Sequence[Argument],
        own: Sequence[Tensor],
        needed: int,
        room: int,
    ) -> tuple[Tensor, ...] | None:
        """The truth in parts, or None where the task does not come apart.

        It is put together on the device where it leaves the parts enough room: from the host every
        comparison would fetch it again.
        """
        rows = _rows(own)
        if rows is None or rows < 2 or self._task.graph.mutations:
            return None
        step = max(1, rows // (2 * max(2, needed // max(room, 1) + 1)))
        size = sum(output.numel() for output in own) * torch.float64.itemsize
        device = self._device if _ROOM_FOR_WHOLE * size <= room else "cpu"
        results: list[Tensor] = []
        for start in range(0, rows, step):
            part = [_double(_slice(a, start, step, rows)) for a in arguments]
            for index, value in enumerate(reference.forward(part)):
                expected = own[index][start : start + step]
                if not _agrees(value, expected, self._rules.chunk_agreement):
                    return None
                if start == 0:
                    shape = own[index].shape
                    results.append(torch.empty(shape, dtype=value.dtype, device=device))
                results[index][start : start + step] = value
        self.note = f"truth in {-(-rows // step)} chunks along the first dimension"
        return tuple(results)

    def _on_host(
        self, arguments: Sequence[Argument], needed: int
    ) -> tuple[tuple[Tensor, ...], Mapping[str, Tensor]]:
        if self._device == "cpu" or needed > available_bytes("cpu", self._rules.memory_fraction):
            raise UnverifiableError(_short_of(needed))
        self.note = "truth evaluated on the host"
        module = doubled(copy.deepcopy(self._reference.module).to("cpu"))
        host = Reference(module, self._task, "cpu", dtype=torch.float64)
        return self._whole(host, [_double(_host(a)) for a in arguments])


def _short_of(needed: int) -> str:
    return (
        f"the float64 truth of this task takes {needed / 2**30:.1f} GiB, which neither "
        "the device nor the host has to spare"
    )


def _apart(output: Tensor, taken: AbstractSet[int]) -> Tensor:
    """The output in memory of its own: what is written to weights and inputs leaves it alone."""
    return output.clone() if output.untyped_storage().data_ptr() in taken else output


def _double(argument: Argument) -> Argument:
    if isinstance(argument, Tensor) and argument.is_floating_point():
        return argument.double()
    return argument


def _host(argument: Argument) -> Argument:
    return argument.cpu() if isinstance(argument, Tensor) else argument


def _rows(outputs: Sequence[Tensor]) -> int | None:
    """The common first dimension of all outputs."""
    sizes = {output.shape[0] if output.dim() else -1 for output in outputs}
    return sizes.pop() if len(sizes) == 1 and -1 not in sizes else None


def _slice(argument: Argument, start: int, step: int, rows: int) -> Argument:
    """A tensor over the same rows is cut; anything else is passed whole."""
    if isinstance(argument, Tensor) and argument.dim() and argument.shape[0] == rows:
        return argument[start : start + step]
    return argument


def _agrees(truth: Tensor, own: Tensor, tolerance: float) -> bool:
    """Whether a chunk's truth is PyTorch's result up to rounding: rows are then independent."""
    if truth.shape != own.shape:
        return False
    if not own.dtype.is_floating_point:
        return float((truth == own).double().mean()) > 1.0 - tolerance
    slack = max(tolerance, 8.0 * torch.finfo(own.dtype).eps)
    usable = torch.isfinite(own)
    difference = torch.where(usable, truth - own, 0.0)
    return bool(difference.norm() <= slack * torch.where(usable, truth, 0.0).norm() + 1e-30)
