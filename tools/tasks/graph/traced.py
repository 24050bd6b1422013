"""The value that both ways of tracing end in, and what neither of them accepts of a forward."""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import fx
from torch.utils import _pytree as pytree

from kernelwright.tools.types import RefusedError, refuse

Structure = Literal["tensor", "tuple", "list"]


@dataclass(frozen=True)
class Traced:
    """A functional graph and what its placeholders and results stand for.

    `inputs` has the placeholder of every tensor argument in order; `weights` maps placeholders
    to state-dict names, `constants` maps placeholders or attributes to baked-in values.
    """

    graph: fx.Graph
    inputs: tuple[str, ...]
    weights: dict[str, str]
    outputs: list[fx.Node]
    structure: Structure
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    mutations: dict[str, fx.Node] = field(default_factory=dict)


def output_tensor(position: int, node: object) -> fx.Node:
    """The node of a returned tensor; RefusedError when what is returned is no tensor."""
    if isinstance(node, fx.Node) and isinstance(node.meta.get("val"), torch.Tensor):
        return node
    raise refuse(f"The forward must return tensors, but output {position + 1} is none.")


def input_changed(name: str) -> RefusedError:
    """The refusal for a forward that writes into its argument."""
    return refuse(
        f"The forward changes its input {name!r} in place, which a replacement must not do; "
        "copy the input first."
    )


def buffer_made(name: str) -> RefusedError:
    """The refusal for a forward that registers a buffer when it is first called."""
    return refuse(
        f"The forward registers its buffer {name!r} when it is first called, so that the module "
        "has other weights afterwards; register it in __init__, or call the model once in a "
        "function that --build names."
    )


def structure_of(spec: pytree.TreeSpec) -> Structure:
    """How the outputs are packed; RefusedError for dicts and classes."""
    for part in _parts(spec):
        named = part.type is namedtuple or (
            isinstance(part.type, type) and issubclass(part.type, tuple)
        )
        if part.type not in (None, list) and not named:
            kind = getattr(part.type, "__name__", str(part.type))
            raise refuse(
                f"The forward returns a {kind}; only tensors, tuples and lists are supported."
            )
    if spec.type is None:
        return "tensor"
    return "list" if spec.type is list else "tuple"


def _parts(spec: pytree.TreeSpec) -> list[pytree.TreeSpec]:
    return [spec, *(p for child in spec.children() for p in _parts(child))]
