"""A training run as a folder: its settings, a line for each step, its last checkpoint, its adapter.

A step's line is written before its checkpoint. A run that is killed goes on from the checkpoint,
and lines behind that are taken out, so that every step stands there once. What a step draws follows
from the seed and the step's number alone, so a resumed run draws what an unbroken one would have.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import ValidationError

from kernelwright.tools.learning.training.adapter import save_adapter, trained
from kernelwright.tools.learning.training.policy import Policy
from kernelwright.tools.types import Value

if TYPE_CHECKING:
    import torch

SETTINGS, STEPS, CHECKPOINT, ADAPTER = "settings.json", "steps.jsonl", "checkpoint.pt", "adapter"
_WARM_UP, _LEAST = 0.05, 0.1
# Padded tokens of one pass with gradients: a model of half a billion weights keeps about 2 MB for
# each, and a vocabulary of 150,000 takes as much again, so that they fit a GPU of 80 GB.
_TOKENS_AT_ONCE = 12_288
StepT = TypeVar("StepT", bound=Value)


class OtherRunError(ValueError):
    """The folder holds a run under other settings; the message says which."""


class Course:
    """The folder of a training run.

    Args:
        folder: Made when it is not there.
        settings: Of the run; `steps` may differ from an earlier session's, nothing else may.

    Raises:
        OtherRunError: The folder's run has other settings.
    """

    def __init__(self, folder: Path, settings: Value) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / SETTINGS
        if path.is_file():
            _same(path, settings)
        path.write_text(settings.model_dump_json(indent=1), encoding="utf-8")

    @property
    def adapter(self) -> Path:
        """Where the trained adapter lies in the end."""
        return self.folder / ADAPTER

    def resumed(self, policy: Policy, optimizer: torch.optim.Optimizer) -> int:
        """Load the last checkpoint, if there is one; answers how many steps are done."""
        import torch

        path = self.folder / CHECKPOINT
        if not path.is_file():
            (self.folder / STEPS).unlink(missing_ok=True)
            return 0
        kept = torch.load(path, map_location=policy.device, weights_only=True)
        weights = dict(trained(policy))
        with torch.no_grad():
            for name, value in kept["weights"].items():
                weights[name].copy_(value)
        optimizer.load_state_dict(kept["optimizer"])
        done = int(kept["step"])
        self._cut(done)
        return done

    def _cut(self, done: int) -> None:
        path = self.folder / STEPS
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        path.write_text("".join(f"{line}\n" for line in lines[:done]), encoding="utf-8")

    def tell(self, step: Value) -> None:
        """Write a step's line."""
        with (self.folder / STEPS).open("a", encoding="utf-8") as file:
            file.write(step.model_dump_json() + "\n")

    def steps(self, kind: type[StepT]) -> list[StepT]:
        """The lines of all steps so far."""
        path = self.folder / STEPS
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        return [kind.model_validate_json(line) for line in lines]

    def keep(self, policy: Policy, optimizer: torch.optim.Optimizer, done: int) -> None:
        """Write a checkpoint after so many steps, in place of the one before."""
        import torch

        weights = {name: weight.detach() for name, weight in trained(policy)}
        draft = self.folder / f".{CHECKPOINT}.part"
        torch.save({"step": done, "weights": weights, "optimizer": optimizer.state_dict()}, draft)
        draft.replace(self.folder / CHECKPOINT)

    def finish(self, policy: Policy) -> None:
        """Write the adapter."""
        save_adapter(policy, self.adapter)


def _same(path: Path, settings: Value) -> None:
    try:
        known = type(settings).model_validate_json(path.read_text(encoding="utf-8"))
    except ValidationError:
        raise OtherRunError(f"{path.parent} holds a training of another kind") from None
    fields = type(settings).model_fields
    changed = [
        name
        for name in fields
        if name != "steps" and getattr(known, name) != getattr(settings, name)
    ]
    if changed:
        listed = ", ".join(f"{name} {getattr(known, name)}" for name in changed)
        raise OtherRunError(f"{path.parent} holds a training with {listed}; name another folder")


def together(lengths: Sequence[int], most: int) -> Iterator[list[int]]:
    """Places of sequences that go through a model at once, those of like length together.

    Args:
        lengths: Tokens of each.
        most: Sequences at once; long ones are fewer, as memory counts padded tokens.
    """
    part: list[int] = []
    for at in sorted(range(len(lengths)), key=lambda at: lengths[at]):
        if part and (len(part) == most or (len(part) + 1) * lengths[at] > _TOKENS_AT_ONCE):
            yield part
            part = []
        part.append(at)
    if part:
        yield part


def rate_at(step: int, steps: int, rate: float) -> float:
    """The learning rate of a step: warmed up, then falling by a cosine to a tenth."""
    warm = max(1, int(_WARM_UP * steps))
    if step < warm:
        return rate * (step + 1) / warm
    share = (step - warm) / max(1, steps - warm)
    return rate * (_LEAST + (1 - _LEAST) * 0.5 * (1 + math.cos(math.pi * share)))


def optimizer_of(policy: Policy) -> torch.optim.Optimizer:
    """Adam over what is trained; `rate_at` sets its rate."""
    import torch

    return torch.optim.AdamW([weight for _, weight in trained(policy)], lr=0.0, weight_decay=0.0)


def stepped(policy: Policy, optimizer: torch.optim.Optimizer, rate: float) -> float:
    """Carry the gradients out, clipped to a norm of 1; answers the norm they had.

    Gradients that are no numbers change nothing: one such step would be the end of the weights.
    """
    import torch

    norm = torch.nn.utils.clip_grad_norm_([weight for _, weight in trained(policy)], 1.0)
    for group in optimizer.param_groups:
        group["lr"] = rate
    if torch.isfinite(norm):
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return float(norm)
