"""Library operators for a plan: resolved once, by name, and only those that write nowhere."""

from collections.abc import Callable

import torch

from kernelwright.tools.candidates.errors import LaunchRefused
from kernelwright.tools.candidates.plan.operators import CREATORS

Operator = Callable[..., object]


def resolve(path: str, device: torch.device) -> Operator:
    """The operator of that path (`convolution`, `max.dim`).

    A bare name with a single functional overload is bound to it, which is cheaper to call.

    Raises:
        LaunchRefused: When this torch has none of that name, or it writes to its arguments.
    """
    name, _, overload = path.partition(".")
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        raise LaunchRefused(f"this torch has no aten.{name}")
    found = _overload(packet, overload, path) if overload else _cheapest(packet)
    if name in CREATORS:
        return _on_device(found, device)
    return found


def _overload(packet: Operator, overload: str, path: str) -> Operator:
    found = getattr(packet, overload, None)
    if found is None:
        raise LaunchRefused(f"this torch has no aten.{path}")
    if found._schema.is_mutable:
        raise LaunchRefused(f"aten.{path} writes to its arguments")
    operator: Operator = found
    return operator


def _cheapest(packet: Operator) -> Operator:
    names: list[str] = packet.overloads()  # type: ignore[attr-defined]
    functional = [
        found for found in (getattr(packet, name) for name in names) if not found._schema.is_mutable
    ]
    if len(functional) == 1:
        operator: Operator = functional[0]
        return operator
    # The packet picks by the arguments; the ones that write need `out`, which no plan can pass.
    return packet


def _on_device(operator: Operator, device: torch.device) -> Operator:
    def create(*args: object, **keywords: object) -> object:
        return operator(*args, **keywords, device=device)

    return create
