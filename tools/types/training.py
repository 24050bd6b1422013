"""A training step's time beside the reference's; it stands apart from the forward's claims."""

from __future__ import annotations

from kernelwright.tools.types.value import Value

# What autograd spends between the kernels is not in their times: a step of 0.6 ms that promised
# 1.14x by them took longer as a whole.
_LEAST_SPEEDUP = 1.5


class TrainingSummary(Value):
    """What a search for a backward came to; times in milliseconds, None where there is none.

    `reference_forward_ms` and `reference_step_ms` are PyTorch's forward under autograd, and with
    its backward. `forward_ms` and `backward_ms` are what the kernels take by the ratios that their
    searches measured: what autograd spends between the two is not in them. `in_turns` says whether
    kernels were timed in turns with PyTorch's operators both ways; times of different moments
    decide nothing, and of these it is the least ratio that they leave possible. `run` is the
    backward's search, `status` what may be said of it beside PyTorch's operators, `why` why there
    is none.
    """

    run: str = ""
    status: str = ""
    reference_forward_ms: float | None = None
    reference_step_ms: float | None = None
    forward_ms: float | None = None
    backward_ms: float | None = None
    in_turns: bool = True
    why: str = ""

    @property
    def step_ms(self) -> float | None:
        """The kernels' forward and backward together."""
        if self.forward_ms is None or self.backward_ms is None:
            return None
        return self.forward_ms + self.backward_ms

    @property
    def speedup(self) -> float | None:
        """The reference's step over the kernels'."""
        step_ms = self.step_ms
        return self.reference_step_ms / step_ms if step_ms and self.reference_step_ms else None

    @property
    def pays(self) -> bool:
        """Whether a whole step by kernels is likely to take less than the reference's."""
        return self.in_turns and self.speedup is not None and self.speedup > _LEAST_SPEEDUP

    @property
    def words(self) -> str:
        """It in one sentence."""
        if self.speedup is None or self.step_ms is None:
            return f"no backward of our own: {self.why}"
        ours = f"{self.forward_ms:.3g} ms forward and {self.backward_ms:.3g} ms backward"
        theirs = (
            f"{self.reference_step_ms:.3g} ms, {self.reference_forward_ms:.3g} ms of it forward"
        )
        settled = "" if self.in_turns else " by a first look, which settles nothing"
        return (
            f"a training step takes about {ours} by kernels; by PyTorch {theirs}: "
            f"{self.speedup:.2f}x{settled}"
        )
