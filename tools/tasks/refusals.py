"""How trouble in a user's code becomes one sentence for the person.

User code may raise anything, also `SystemExit` or `KeyboardInterrupt`; none of that may end the
worker or reach the person as a traceback. What is not covered: `os._exit`, signals, hangs and
memory limits, which are the worker's.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from kernelwright.tools.tasks.complaints import why_not_built
from kernelwright.tools.types import Refusal

LONGEST_MESSAGE = 200
_NO_CUDA = ("not compiled with CUDA", "No CUDA GPUs", "NVIDIA driver", "no CUDA-capable device")


class RefusedError(Exception):
    """Carries a Refusal out of nested calls; `trace` turns it back into a value."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.sentence)
        self.refusal = refusal


def refuse(sentence: str, detail: str = "", exit_status: Literal[2, 3] = 2) -> RefusedError:
    """A RefusedError to raise, with the sentence the person will read."""
    return RefusedError(Refusal(sentence=sentence, detail=detail, exit_status=exit_status))


@contextmanager
def user_code(what: str, path: str) -> Iterator[None]:
    """Run user code inside; whatever it raises becomes a RefusedError about `what`."""
    try:
        yield
    except RefusedError:
        raise
    except ModuleNotFoundError as error:
        raise _missing_package(error, path) from error
    except SystemExit as error:
        raise refuse(f"{what} exits the process (status {error.code}).") from error
    except KeyboardInterrupt as error:
        raise refuse(f"{what} raises KeyboardInterrupt.") from error
    except MemoryError as error:
        raise refuse(f"{what} runs out of memory.", exit_status=3) from error
    except RecursionError as error:
        raise refuse(f"{what} recurses without end{_where(error, path)}.") from error
    except BaseException as error:
        raise _raised(what, error, path) from error


def message(error: BaseException) -> str:
    """The first line of an error's message, shortened; of a failed build its compiler's words."""
    if words := why_not_built(str(error)):
        return words
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    first = lines[0] if lines else ""
    if len(first) > LONGEST_MESSAGE:
        first = first[: LONGEST_MESSAGE - 3] + "..."
    return first.rstrip(".")


def _raised(what: str, error: BaseException, path: str) -> RefusedError:
    if any(words in str(error) for words in _NO_CUDA):
        return refuse(f"{what} asks for a CUDA device, and there is none here.", exit_status=3)
    words = message(error)
    said = f"{type(error).__name__}: {words}" if words else type(error).__name__
    detail = "".join(traceback.format_exception(error))[-4000:]
    return refuse(f"{what} raises{_where(error, path)} {said}.", detail)


def _missing_package(error: ModuleNotFoundError, path: str) -> RefusedError:
    package = (error.name or message(error)).split(".")[0]
    sentence = f"The file imports {package!r}{_where(error, path)}, which is not installed here."
    return refuse(sentence, exit_status=3)


def _where(error: BaseException, path: str) -> str:
    """The last line of the user's own file that the error passed through."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == path]
    return f" in line {frames[-1].lineno}" if frames and frames[-1].lineno else ""
