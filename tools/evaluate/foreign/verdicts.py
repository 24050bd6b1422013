"""What a guest's failure or end means as a verdict."""

from kernelwright.tools.evaluate.foreign.link import GuestFailedError, GuestLostError
from kernelwright.tools.evaluate.foreign.messages import Failed
from kernelwright.tools.evaluate.sandbox.endings import verdict_of
from kernelwright.tools.evaluate.verify.failures import RejectedError, rejection
from kernelwright.tools.types import Verdict

_COMPILERS = ("Error building extension", "syntax error", "ninja", "CompilationError")


class GuestRejectedError(RejectedError):
    """A verdict on code that failed in its guest; `failed` is how, as the guest told it."""

    def __init__(self, found: RejectedError, failed: Failed) -> None:
        super().__init__(found.verdict, found.reason)
        self.failed = failed


def rejected(error: GuestFailedError | GuestLostError, doing: str) -> RejectedError:
    """The verdict on a guest that failed or was lost while doing something."""
    if isinstance(error, GuestLostError):
        said = _last_line(error.ended.output)
        tail = f"; its last words: {said}" if said else ""
        reason = f"the guest {error.ended.words} while {doing}{tail}"
        return RejectedError(verdict_of(error.ended), reason)
    return GuestRejectedError(_verdict(error.failed), error.failed)


def _verdict(failed: Failed) -> RejectedError:
    match failed.how:
        case "not_a_tensor":
            return RejectedError(
                Verdict.CHEATING, f"{failed.words}: its values may be computed after the clock"
            )
        case "wrong_shape":
            return RejectedError(Verdict.WRONG_SHAPE, failed.words)
        case "memory":
            return RejectedError(Verdict.OUT_OF_MEMORY, failed.words)
        case _ if any(sign in failed.words for sign in _COMPILERS):
            return RejectedError(Verdict.COMPILE_ERROR, failed.words)
        case "import" | "construct":
            return RejectedError(Verdict.LAUNCH_ERROR, failed.words)
        case "forward":
            return RejectedError(rejection(RuntimeError(failed.words)).verdict, failed.words)


def _last_line(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""
