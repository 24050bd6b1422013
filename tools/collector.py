"""Keeps Python's collector of cycles out of imports.

Everything that a library brings is made at once and lives as long as the process, and while it is
made the collector looks at all of it again and again: a sixth of what torch and its exporter take.
"""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def imports_out_of_sight() -> Iterator[None]:
    """Import inside of this; afterwards the collector never looks at what was made meanwhile.

    Nothing is collected first, which would itself take half a second: the cycles that imports
    leave behind are a few hundred objects, once.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
