"""Finds and runs nvdisasm: from the pip wheel, the path, or an installed CUDA toolkit."""

import asyncio
import contextlib
import importlib.util
import os
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

TIMEOUT_S = 20.0
REMEDY = "pip install nvidia-cuda-nvdisasm"


class NotDisassembledError(Exception):
    """There is no machine code to read; the message says why and what would help."""


def find_nvdisasm() -> Path | None:
    """Where nvdisasm is; None where it is not."""
    for folder in _folders():
        if os.access(found := folder / "nvdisasm", os.X_OK):
            return found
    found_on_path = shutil.which("nvdisasm")
    return Path(found_on_path) if found_on_path else None


async def disassemble(cubin: Path, timeout_s: float = TIMEOUT_S) -> str:
    """The text of a cubin's code.

    Raises:
        NotDisassembledError: When nvdisasm is missing, too slow, or does not know the code.
    """
    program = find_nvdisasm()
    if program is None:
        raise NotDisassembledError(f"nvdisasm was not found; {REMEDY}")
    process = await asyncio.create_subprocess_exec(
        program, "-c", cubin, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, start_new_session=True
    )
    try:
        async with asyncio.timeout(timeout_s):
            out, err = await process.communicate()
    except TimeoutError:
        raise NotDisassembledError(f"nvdisasm took longer than {timeout_s:g} s") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        words = " ".join(err.decode(errors="replace").split())[:200]
        raise NotDisassembledError(f"nvdisasm cannot read the code ({words}); {REMEDY}")
    return out.decode(errors="replace")


def _folders() -> list[Path]:
    """The wheels' folders (nvidia/cu13/bin and its like), then the toolkit's."""
    spec = importlib.util.find_spec("nvidia")
    roots = spec.submodule_search_locations if spec is not None else None
    found = [folder for root in roots or () for folder in sorted(Path(root).glob("cu*/bin"))]
    named = (os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH"))
    homes = [*(Path(name) for name in named if name), Path("/usr/local/cuda")]
    return [*found, *(home / "bin" for home in homes)]
