"""What an exception of a candidate means as a verdict, and whether the device survived it."""

import torch

from kernelwright.tools.candidates import ContractError, DeviceError, LaunchRefused
from kernelwright.tools.types import Verdict

_ILLEGAL = ("illegal memory access", "misaligned address", "ILLEGAL_ADDRESS", "MISALIGNED_ADDRESS")


class RejectedError(Exception):
    """Ends the judging of one candidate; becomes its verdict."""

    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict = verdict
        self.reason = reason


def rejection(error: Exception) -> RejectedError:
    """The verdict on a candidate that raised. Whatever its plan raises is its own fault."""
    words = " ".join(str(error).split())[:500]
    if isinstance(error, RejectedError):
        return error
    if isinstance(error, ContractError):
        return RejectedError(Verdict.INVALID_PLAN, words)
    if isinstance(error, (torch.cuda.OutOfMemoryError, MemoryError)):
        return RejectedError(Verdict.OUT_OF_MEMORY, f"the candidate ran out of memory: {words}")
    if any(sign in words for sign in _ILLEGAL):
        return RejectedError(Verdict.ILLEGAL_ACCESS, words)
    if isinstance(error, (LaunchRefused, DeviceError)):
        return RejectedError(Verdict.LAUNCH_ERROR, words)
    return RejectedError(Verdict.LAUNCH_ERROR, f"{type(error).__name__}: {words}")


def poisoned(device: str) -> str:
    """Why the device's context is lost after an error, or an empty word when it still works."""
    if not device.startswith("cuda"):
        return ""
    try:
        torch.cuda.synchronize()
        if float(torch.ones(1, device=device).sum()) != 1.0:
            return "the device returns wrong sums"
    except RuntimeError as error:
        return f"the CUDA context is lost: {str(error).splitlines()[0]}"
    return ""
