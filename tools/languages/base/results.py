"""What a compile comes to: an object that can be loaded, or the reason there is none."""

from pathlib import Path

from kernelwright.tools.types import CompileReport, LanguageName, Value, Verdict


class Built(Value):
    """A compiled kernel.

    `artifact` is a cubin, a shared object or the like in the cache; `seconds` is what this call
    cost, so it is small when `cached`. `log` is the compiler's own words from when it really ran.
    """

    language: LanguageName
    artifact: Path
    functions: tuple[str, ...]
    reports: tuple[CompileReport, ...] = ()
    log: str = ""
    cached: bool = False
    seconds: float = 0.0


class CompileFailure(Value):
    """Why a candidate has no object: compile_error, invalid_plan (the contract) or timed_out.

    `message` is one sentence, `log` the compiler's own words.
    """

    verdict: Verdict
    message: str
    log: str = ""
    seconds: float = 0.0


class CompileRefusedError(Exception):
    """Raised when a compile ends without an object; becomes a CompileFailure."""

    def __init__(self, message: str, log: str = "", verdict: Verdict = Verdict.COMPILE_ERROR):
        super().__init__(message)
        self.message = message
        self.log = log
        self.verdict = verdict
