"""The C++ prelude, compiled once for this compiler, these flags and this processor.

Reading the standard headers is most of what a small kernel costs: with them precompiled, a
compile takes a tenth of the time. A compiler that cannot use the result ignores it.
"""

import shutil
import threading
from collections.abc import Sequence
from pathlib import Path

from tools.compile.cache import cache_folder, cache_key, work_folder
from tools.compile.pool import Compiler
from tools.compile.results import CompileRefusedError

_TIMEOUT_S = 120.0
_MEMORY_BYTES = 6 << 30
# One at a time: the threads of a first round would all do the same second's work.
_making = threading.Lock()


def precompiled(
    compiler: Compiler, command: Sequence[str], flags: Sequence[str], header: Path, identity: str
) -> Path | None:
    """A folder to put first on the include path, or None when the prelude does not compile.

    Args:
        compiler: Runs the command.
        command: The C++ compiler.
        flags: Those of the kernels; a precompiled header is only used under the same ones.
        header: The prelude.
        identity: Everything that decides the result.
    """
    folder = cache_folder() / f"prelude-{cache_key(identity)[:32]}"
    with _making:
        if not folder.is_dir() and not _make(compiler, command, flags, header, folder):
            return None
    return folder


def _make(
    compiler: Compiler, command: Sequence[str], flags: Sequence[str], header: Path, folder: Path
) -> bool:
    with work_folder() as made:
        output = made / f"{header.name}.gch"
        full = [*command, *flags, "-w", "-x", "c++-header", str(header), "-o", str(output)]
        request = {
            "kind": "commands",
            "commands": [full],
            "folder": str(made),
            "memory_bytes": _MEMORY_BYTES,
        }
        try:
            if not compiler.ask(request, _TIMEOUT_S).ok:
                return False
        except CompileRefusedError:
            return False
        try:
            made.rename(folder)
        except OSError:
            # Another process was faster; a folder that is neither is removed for the next try.
            if not (folder / output.name).is_file():
                shutil.rmtree(folder, ignore_errors=True)
                return False
    return True
