"""Compiles CUDA source with NVRTC in a compiler process, which loads this file for `answer`.

It uses nothing of Kernelwright's, and no driver. Requests have "sources", "architecture", "include"
and "outputs", one for each source (see `compiler_process.py`), which are compiled at once, in
threads. What is not covered: kernels that need separate linking.
"""

import io
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """Compile CUDA source to a cubin for a named architecture; needs no driver."""
    try:
        from cuda.core import Program, ProgramOptions
    except ImportError as error:
        return {"ok": False, "log": "", "lacks": f"cuda-core cannot be imported ({error})"}
    headers = [request["include"], *cuda_headers()]
    # No fast maths: precision is the candidate's own, visible choice (__expf and the like).
    options = ProgramOptions(
        name="kernel.cu",
        std="c++17",
        arch=request["architecture"],
        include_path=headers,
        ptxas_options=["-v"],
        lineinfo=True,
    )

    def compiled(source: str) -> tuple[bytes | None, str]:
        log = io.StringIO()
        try:
            cubin = Program(source, code_type="c++", options=options).compile("cubin", logs=log)
        except Exception as error:
            return None, f"{log.getvalue()}\n{error}".replace("\0", "").strip()
        return bytes(cubin.code), log.getvalue().replace("\0", "")

    sources = request["sources"]
    with ThreadPoolExecutor(len(sources)) as threads:
        made = list(threads.map(compiled, sources))
    for cubin, words in made:
        if cubin is None:
            return {"ok": False, "log": words, "knows": architectures()}
    for (cubin, _), output in zip(made, request["outputs"], strict=True):
        Path(output).write_bytes(cubin or b"")
    return {"ok": True, "log": "".join(words for _, words in made)}


def architectures() -> list[str]:
    """What this NVRTC can compile for, without the variants that carry a letter."""
    from cuda.bindings import nvrtc

    _, numbers = nvrtc.nvrtcGetSupportedArchs()
    return [f"sm_{number}" for number in numbers]


def cuda_headers() -> list[str]:
    """Folders of the CUDA runtime's and CCCL's headers, wherever they are installed."""
    from cuda import pathfinder

    found = (pathfinder.find_nvidia_header_directory(name) for name in ("cudart", "cccl"))
    return [str(folder) for folder in found if folder]
