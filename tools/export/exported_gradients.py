"""Verifies and times the gradients of this export; `verify.py` calls it.

Where the export can run its kernels under autograd, gradients by every way that module.py offers
are compared with those of the reference in float64, by the same bound as results. A whole training
step, forward and backward, is timed beside the reference's; it is no part of the exit status.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch


def check(verify: SimpleNamespace, pair: Any) -> bool:
    """Compare gradients; says each, and whether all were right.

    Args:
        verify: what verify.py has.
        pair: the exported module and its reference.
    """
    fine = True
    for choice in pair.exported._CHOICES:
        if choice == "reference":
            continue
        pair.exported.GRADIENTS = choice
        for seed, words in ((1, "own inputs"), (2, "another seed")):
            ratio, wrong = _worst(verify, pair, pair.inputs(seed, lambda x: x), choice)
            verdict = f"  WRONG: {wrong}" if wrong else ""
            name = f"gradients {choice!r}, {words}"
            verify.say(f"  {name:<36} error {ratio:.2f} times the reference's{verdict}")
            fine = fine and not wrong
    return fine


def _worst(verify: SimpleNamespace, pair: Any, inputs: list[Any], choice: str) -> tuple[float, str]:
    """How many times the reference's own error the gradients' is, and what went wrong."""
    exported, reference = pair.exported, pair.reference
    pair.module.load_state_dict(reference.state_dict())
    kernels = exported.backward.COUNTS if choice == "own" else exported.COUNTS
    before = sum(kernels[name] for name in ("kernel", "kernel (recorded)"))
    mine = _gradients(verify, exported, pair.module, inputs)
    if sum(kernels[name] for name in ("kernel", "kernel (recorded)")) == before:
        return float("inf"), f"the kernels did not run ({dict(kernels)})"
    theirs = _gradients(verify, exported, reference, inputs)
    doubles = [*map(verify.doubled, inputs)]
    exact = _gradients(verify, exported, verify.in_doubles(reference), doubles)
    worst = 0.0
    for name, value in exact.items():
        if (name in mine) != (name in theirs):
            return float("inf"), f"{name} has a gradient on one side only"
        if name not in mine:
            continue
        least = verify.ROUNDING[mine[name].dtype] / 2
        allowed = max(verify.error(theirs[name], value), least)
        worst = max(worst, max(verify.error(mine[name], value), least) / allowed)
    return worst, "" if worst <= verify.BOUND else "its error is too large"


def _gradients(
    verify: SimpleNamespace, exported: Any, module: Any, inputs: list[Any]
) -> dict[str, torch.Tensor]:
    """The gradients of one call, by what they belong to."""
    names, step = _step(verify, exported, module, inputs)
    found = zip(names, step(), strict=True)
    return {name: _as_real(value) for name, value in found if value is not None}


def _as_real(value: torch.Tensor) -> torch.Tensor:
    """Both parts of complex numbers beside each other."""
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value


def _step(
    verify: SimpleNamespace, exported: Any, module: Any, inputs: list[Any]
) -> tuple[list[str], Callable[[], Any]]:
    """A forward and its backward as a call, for gradients of the same values on every side."""
    given = [
        x.detach().requires_grad_() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
        for x in inputs
    ]
    leaves = {f"input {n}": x for n, x in enumerate(given) if getattr(x, "requires_grad", False)}
    leaves |= {name: p for name, p in module.named_parameters() if p.requires_grad}
    upstream: list[torch.Tensor] = []

    def step() -> Any:
        with torch.enable_grad():
            results = verify.flat(verify.run(exported, module, given))
            results = [value for value in results if value.requires_grad]
            if not upstream:
                torch.manual_seed(0)
                # Drawn in float32 for all, so that each side has the same ones.
                drawn = [torch.randn(value.shape) for value in results]
                upstream.extend(d.to(v) for d, v in zip(drawn, results, strict=True))
            return torch.autograd.grad(results, [*leaves.values()], upstream, allow_unused=True)

    return list(leaves), step


def time_steps(verify: SimpleNamespace, pair: Any, seconds: float) -> None:
    """Time a whole training step beside the reference's, by every way."""
    inputs = pair.inputs(1, lambda x: x)
    clock = verify.Clock(pair.device, queued=False)
    for choice in pair.exported._CHOICES:
        pair.exported.GRADIENTS = choice
        mine = _step(verify, pair.exported, pair.module, inputs)[1]
        theirs = _step(verify, pair.exported, pair.reference, inputs)[1]
        if choice != "reference":
            ratios = verify.compare(mine, theirs, clock, seconds)
            verify.judged(f"eager, GRADIENTS {choice!r}", ratios)
