"""Reading the file a person points at, with a sentence for everything that is not Python text.

Nothing is executed here; see `tools.tasks.load`.
"""

from pathlib import Path

from kernelwright.tools.types import Refusal

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
