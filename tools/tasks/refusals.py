"""How trouble in a user's file or code becomes one sentence for the person.

User code may raise anything, also `SystemExit` or `KeyboardInterrupt`; none of that may end the
worker or reach the person as a traceback. Not covered: `os._exit`, signals, hangs and memory
limits, which are the worker's.

Of a build that failed inside a user's code, the compiler's complaint is found in the log: PyTorch's
`load` and `load_inline` raise ninja's whole log, which begins with the command, and a person who
reads its first line learns nothing. Known are the forms of GCC, Clang, nvcc, ptxas, the linker and
the shell, in English. Not covered: a compiler that a file starts by itself.

The file that a person points at is read here, with a sentence for everything that is not Python
text. Nothing is executed; see `tools.tasks.user_file`.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from kernelwright.tools.types import Refusal

_BUILD = re.compile(r"Error building extension '[^']*'")
_COMPLAINT = re.compile(
    r"\berror(?: #[\w-]+)?\s*:|\): (?:catastrophic )?error\b|\b(?:ptxas|nvcc) (?:error|fatal)"
    r"|undefined reference to|multiple definition of|cannot find -l|: not found$"
)
_ONLY_THAT_IT_FAILED = ("collect2:", "ninja:")
_QUOTED = re.compile(r"\s*\d+ \| ?(.*)")
_FOLDERS = re.compile(r"(?<![\w.])/(?:[^\s/:]+/)+")
_MOST, _LONGEST = 2, 200


def why_not_built(text: str) -> str:
    """The first complaints of a failed build's log with its name; empty where it is none."""
    build = _BUILD.search(text)
    found = complaints(text[build.end() :]) if build else ()
    return f"{build.group()}: {'; '.join(found)}" if build and found else ""


def complaints(log: str) -> tuple[str, ...]:
    """The first few, each with the line of the source that the compiler quoted beside it."""
    lines = log.splitlines()
    found = {
        _short(line, lines[number + 1] if number + 1 < len(lines) else ""): line
        for number, line in enumerate(lines)
        if _COMPLAINT.search(line)
    }
    telling = [said for said, line in found.items() if not line.startswith(_ONLY_THAT_IT_FAILED)]
    return tuple((telling or list(found))[:_MOST])


def _short(line: str, following: str) -> str:
    quoted = _QUOTED.fullmatch(following)
    source = f", at `{quoted.group(1).strip()}`" if quoted else ""
    return _FOLDERS.sub("", line.strip())[:_LONGEST] + source[:_LONGEST]


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


LARGEST_SOURCE_BYTES = 4 * 1024 * 1024


def read_source(path: str | Path) -> str | Refusal:
    """The text of a module file, or why it cannot be one."""
    file = Path(path)
    if file.is_dir():
        return Refusal(sentence=f"{file} is a folder; a Python file is needed.")
    try:
        if file.exists() and not file.is_file():
            return Refusal(sentence=f"{file} is not a regular file.")
        size = file.stat().st_size
        if size > LARGEST_SOURCE_BYTES:
            return Refusal(sentence=f"{file} is too large for a module file: {size} bytes.")
        content = file.read_bytes()
    except FileNotFoundError:
        return Refusal(sentence=f"{file} does not exist.")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        return Refusal(sentence=f"{file} cannot be read: {reason}.")
    return _text(content, file.name)


def why_unusable(source: str, name: str) -> Refusal | None:
    """Why this text is no module, as far as one can tell without running it."""
    if not source.strip():
        return Refusal(sentence=f"{name} is empty.")
    if "\0" in source:
        return Refusal(sentence=f"{name} is a binary file, not Python text.")
    if len(source) > LARGEST_SOURCE_BYTES:
        return Refusal(sentence=f"{name} is too large for a module file: {len(source)} characters.")
    return None


def _text(content: bytes, name: str) -> str | Refusal:
    try:
        source = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return Refusal(sentence=f"{name} is a binary file, not Python text in UTF-8.")
    return why_unusable(source, name) or source
