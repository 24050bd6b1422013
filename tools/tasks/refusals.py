"""How trouble in a user's file or code becomes one sentence for the person.

User code may raise anything, also `SystemExit` or `KeyboardInterrupt`; none of that may end the
worker or reach the person as a traceback. Not covered: `os._exit`, signals, hangs and memory
limits, which are the worker's.

Of a build that failed inside a user's code, the compiler's complaint is found in the log: PyTorch's
`load` and `load_inline` raise ninja's whole log, which begins with the command, and a person who
reads its first line learns nothing. Known are the forms of GCC, Clang, nvcc, ptxas, the linker and
the shell, in English. Not covered: a compiler that a file starts by itself.

The file that a person points at is read here, with a sentence for everything that is not Python
text. Nothing is executed; see `tools.tasks.loading.user_file`.
"""

from __future__ import annotations

import linecache
import os
import re
import site
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from kernelwright.tools.runtime import SOURCES
from kernelwright.tools.tasks.project import missing
from kernelwright.tools.types import Refusal, RefusedError, refuse

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
    return refuse(f"{what} raises{_where(error, path)} {said}.", _frames(error, path))


def _missing_package(error: ModuleNotFoundError, path: str) -> RefusedError:
    if error.name is None:  # a package's own words about a part of it that does not import
        return _broken_package(error, path)
    name = error.name
    parts, where = _relative_to(error, path), _where(error, path)
    if parts:
        listed = ", ".join(parts)
        them = "which is" if len(parts) == 1 else "which are"
        return refuse(
            f"{Path(path).name} is part of a package: it imports {listed}{where}, {them} not "
            "beside it; name the file where it lies in its project, or send one file that holds "
            "all it needs.",
            exit_status=3,
        )
    sentence = (
        f"The file imports {name.split('.')[0]!r}{where}, which is not installed here and not "
        "beside it in its project."
    )
    return refuse(sentence, exit_status=3)


def _broken_package(error: ModuleNotFoundError, path: str) -> RefusedError:
    root: BaseException = error
    while root.__cause__ is not None:
        root = root.__cause__
    why = f" ({type(root).__name__}: {message(root)})" if root is not error else ""
    said = message(error)
    return refuse(f"An import fails{_where(error, path)}: {said}{why}.", exit_status=3)


def _relative_to(error: ModuleNotFoundError, path: str) -> tuple[str, ...]:
    """The relative imports of the user's file whose modules are not there, as they are written."""
    lines = linecache.getlines(path)
    absent = missing("".join(lines), path)
    return tuple(name for name in absent if name.startswith("."))


def _where(error: BaseException, path: str) -> str:
    """The user's own last line that the error passed through, and the file if it is another."""
    frames = _own_frames(error, path)
    if not frames or not frames[-1].lineno:
        return ""
    name = "" if frames[-1].filename == path else f" of {Path(frames[-1].filename).name}"
    return f" in line {frames[-1].lineno}{name}"


def user_line(error: BaseException | None) -> str:
    """`layers.py:12`, the user's own last line on the way to an error; "" where there is none."""
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    own = [frame for frame in frames if os.sep in frame.filename and not of_python(frame.filename)]
    return f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own and own[-1].lineno else ""


def _frames(error: BaseException, path: str) -> str:
    """The user's own lines on the way to the error, the outermost first."""
    return "\n".join(
        f"{Path(frame.filename).name}, line {frame.lineno}, in {frame.name}: {frame.line}"
        for frame in _own_frames(error, path)
    )


def _own_frames(error: BaseException, path: str) -> list[traceback.FrameSummary]:
    frames = traceback.extract_tb(error.__traceback__)
    return [
        frame
        for frame in frames
        if frame.filename == path
        or (frame.filename.startswith(os.sep) and not of_python(frame.filename))
    ]


def of_python(name: str) -> bool:
    """Whether a file is Python's, an installed package's or ours, and none of the user's."""
    return any(name.startswith(place) for place in _places_of_python())


@cache
def _places_of_python() -> tuple[str, ...]:
    ours = SOURCES / "kernelwright"
    parts = [str(part.resolve()) for part in ours.iterdir() if part.is_dir()]
    places = {sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"), str(ours), *parts}
    places |= {*site.getsitepackages(), site.getusersitepackages()}
    return tuple(f"{place}{os.sep}" for place in sorted(places) if place)


# What people have at hand that is no module's file, and what to do with it.
_NOT_YET = {
    ".cu": "is a CUDA kernel, not a PyTorch module: give the file with the module, and judge the "
    "kernel against it with `kernelwright check {name} --task MODULE.py`",
    ".cuh": "is a CUDA header, not a PyTorch module: give the file with the module",
    ".cpp": "is a C++ source, not a PyTorch module: give the file with the module, and judge a "
    "kernel against it with `kernelwright check {name} --task MODULE.py`",
    ".tar": "is an archive of a kind that is not read: make a .zip of it, or unpack it and give "
    "the folder or the file with the module",
    ".pt": "holds weights or a saved model, not the code of a module: give its .py file",
}
_LIKE = {".c": ".cpp", ".cc": ".cpp", ".cxx": ".cpp", ".gz": ".tar", ".tgz": ".tar", ".7z": ".tar"}
_LIKE |= {".pth": ".pt", ".safetensors": ".pt", ".onnx": ".pt", ".ckpt": ".pt"}


def not_a_module(name: str) -> str:
    """What to do with a file that is no Python by its name, in a sentence; "" where it may be."""
    ending = Path(name.lower()).suffix
    words = _NOT_YET.get(_LIKE.get(ending, ending), "")
    return f"{Path(name).name} {words.replace('{name}', Path(name).name)}." if words else ""


LARGEST_SOURCE_BYTES = 4 * 1024 * 1024


def read_source(path: str | Path) -> str | Refusal:
    """The text of a module file, or why it cannot be one."""
    file = Path(path)
    if file.is_file() and (sentence := not_a_module(file.name)):
        return Refusal(sentence=sentence)
    text = read_text(file, LARGEST_SOURCE_BYTES)
    return text if isinstance(text, Refusal) else why_unusable(text, file.name) or text


def read_text(file: Path, largest_bytes: int) -> str | Refusal:
    """What is in a text file, or why that cannot be read."""
    if file.is_dir():
        return Refusal(sentence=f"{file} is a folder; a Python file is needed.")
    try:
        if file.exists() and not file.is_file():
            return Refusal(sentence=f"{file} is not a regular file.")
        size = file.stat().st_size
        if size > largest_bytes:
            return Refusal(sentence=f"{file} is too large for a module file: {size} bytes.")
        return file.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        return Refusal(sentence=f"{file} does not exist.")
    except UnicodeDecodeError:
        return Refusal(sentence=f"{file.name} is a binary file, not Python text in UTF-8.")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        return Refusal(sentence=f"{file} cannot be read: {reason}.")


def why_unusable(source: str, name: str) -> Refusal | None:
    """Why this text is no module, as far as one can tell without running it."""
    if not source.strip():
        return Refusal(sentence=f"{name} is empty.")
    if "\0" in source:
        return Refusal(sentence=f"{name} is a binary file, not Python text.")
    if len(source) > LARGEST_SOURCE_BYTES:
        return Refusal(sentence=f"{name} is too large for a module file: {len(source)} characters.")
    return None
