"""Holds the file of a backward beside autograd's own: the same gradients, and what each takes.

Times are taken in turns on the same tensors, so that they can be compared with each other.
Not covered: how exact gradients and buffers' new values are, which the judge holds against float64.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch

from kernelwright.tools.types import refuse
from kernelwright.tools.types.backward import Backward, BackwardRead

Tensors = dict[BackwardRead, torch.Tensor]
Forward = Callable[[Tensors], tuple[torch.Tensor, ...]]

_RUNS, _MOST_S = 20, 4.0


def timed(
    forward: Forward, given: Tensors, wanted: Sequence[BackwardRead], found: Backward
) -> Backward:
    """A backward with what PyTorch takes, each the least of several calls, taken in turns.

    Args:
        forward: of the module, on the tensors that it reads.
        given: every tensor that either file reads, gradients of results among them.
        wanted: what the gradients are of, in the order of `found.gives`.
        found: the backward, as it was written.

    Raises:
        RefusedError: its gradients are not autograd's own.
    """
    file = _loaded(found.source)
    given = {**given, **_kept(found, given)}
    arguments = [given[read] for read in found.reads]
    leaves = {read: given[read].detach().requires_grad_() for read in wanted}
    gradients = [held for read, held in given.items() if read.kind == "gradient"]
    tensors = {read: held for read, held in given.items() if read.kind in ("input", "weight")}

    def recorded() -> tuple[torch.Tensor, ...]:
        with torch.enable_grad():
            return forward({**tensors, **leaves})

    def step(times: float = 1.0) -> tuple[torch.Tensor | None, ...]:
        # Of several results one may depend on nothing that has a gradient.
        pairs = [(y, g) for y, g in zip(recorded(), gradients, strict=True) if y.requires_grad]
        results = [y for y, _ in pairs]
        upstream = [g if times == 1.0 else g * times for _, g in pairs]
        return torch.autograd.grad(results, list(leaves.values()), upstream, allow_unused=True)

    with torch.no_grad():
        check_alike(file(*arguments), step, found, wanted)
        if found.forward and found.updates:
            check_updates(forward, tensors, given, found)
    calls: dict[str, Callable[[], object]] = {
        "eager_forward_ms": lambda: forward(tensors),
        "forward_ms": recorded,
        "step_ms": step,
        "eager_backward_ms": lambda: file(*arguments),
    }
    if found.forward:
        own, read = _loaded(found.forward), [given[read] for read in found.forward_reads]
        calls["eager_step_forward_ms"] = lambda: own(*read)
    times: dict[str, list[float]] = {name: [] for name in calls}
    began = time.perf_counter()
    with torch.no_grad():
        while not times["step_ms"] or (
            len(times["step_ms"]) < _RUNS and time.perf_counter() - began < _MOST_S
        ):
            for name, call in calls.items():
                times[name].append(_ms(call, gradients[0]))
    # The first call of each warms up, unless it was all that there was time for.
    return found.model_copy(update={name: min(took[1:] or took) for name, took in times.items()})


# Of the largest of a tensor's gradients, beyond which two ways of computing it are not the same. A
# function with a backward of its own is off by as much as the gradient.
_MOST_APART = 0.1
# A gradient that is zero but for roundings (a key's bias: a softmax takes it away again) is another
# one by whatever way. What it is worth shows where all that it is made of is a little larger.
_LARGER = 1 + 2.0**-7
_ROUNDINGS = 10.0


def check_alike(
    made: torch.Tensor | tuple[torch.Tensor, ...],
    step: Callable[[float], Sequence[torch.Tensor | None]],
    found: Backward,
    wanted: Sequence[BackwardRead],
) -> None:
    """Refuse gradients that are not autograd's own.

    What is differentiated is the exported forward, in which a custom autograd function is its
    operators, whatever its backward does.
    """
    results = made if isinstance(made, tuple) else (made,)
    by_autograd = step(1.0)
    apart = [
        (at, (results[gives.place] - right).abs().max(), right.abs().max())
        for at, (gives, right) in enumerate(zip(found.gives, by_autograd, strict=True))
        if gives.place is not None and right is not None
    ]
    doubtful = [(at, gap, most) for at, gap, most in apart if bool(gap > _MOST_APART * most)]
    larger = step(_LARGER) if doubtful else ()
    for at, gap, most in doubtful:
        one, other = by_autograd[at], larger[at]
        assert one is not None
        assert other is not None
        roundings = (other / _LARGER - one).abs().max()
        if bool(gap > _MOST_APART * most + _ROUNDINGS * roundings):
            raise refuse(
                f"The gradient of {wanted[at].name!r} is not what autograd computes, as where a "
                "custom autograd function has a backward of its own."
            )


def check_updates(forward: Forward, tensors: Tensors, given: Tensors, found: Backward) -> None:
    """Refuse new values of buffers that are not what the module's forward writes."""
    buffers = [BackwardRead(kind="weight", name=name) for name in found.updates]
    written = {read: tensors[read].clone() for read in buffers}
    results = len(forward({**tensors, **written}))
    made = _loaded(found.forward)(*(given[read] for read in found.forward_reads))
    for read, value in zip(buffers, made[results : results + len(buffers)], strict=True):
        before, right = tensors[read].double(), written[read].double()
        moved = (right - before).abs().max() + torch.finfo(torch.float32).eps * right.abs().max()
        if bool(((value.double() - right).abs() > _MOST_APART * moved).any()):
            raise refuse(f"What the forward writes into {read.name!r} is not what was traced.")


def _kept(found: Backward, given: Tensors) -> Tensors:
    """What the step's own forward keeps."""
    if not found.forward:
        return {}
    with torch.no_grad():
        made = _loaded(found.forward)(*(given[read] for read in found.forward_reads))
    kept = made[len(made) - found.kept :]
    return {BackwardRead(kind="kept", name=str(at)): value for at, value in enumerate(kept)}


def _loaded(source: str) -> torch.nn.Module:
    names: dict[str, type[torch.nn.Module]] = {}
    exec(compile(source, "<backward>", "exec"), names)
    return names["Model"]()


def _ms(call: Callable[[], object], tensor: torch.Tensor) -> float:
    _wait(tensor)
    start = time.perf_counter()
    kept = call()
    _wait(tensor)
    took_ms = (time.perf_counter() - start) * 1e3
    del kept  # freeing a result is no part of the call
    return took_ms


def _wait(tensor: torch.Tensor) -> None:
    if tensor.is_cuda:
        torch.cuda.synchronize()
