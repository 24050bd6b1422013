"""Text of ours that is copied into exports: it may use nothing of Kernelwright's.

What stands after the line `# --- exported from here ---` is what an export holds; the imports
above it are listed by the language's `ExportParts`.
"""

from pathlib import Path

MARKER = "# --- exported from here ---\n"


def exported(*files: Path) -> str:
    """What exports hold of these files, one after another, without their own imports."""
    texts = (file.read_text(encoding="utf-8").partition(MARKER)[2].strip() for file in files)
    return "\n\n\n".join(texts)


def listed(words: tuple[str, ...]) -> str:
    """A tuple of words as Python, one a line."""
    return "(\n" + "".join(f"    {word!r},\n" for word in words) + ")"
