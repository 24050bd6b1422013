"""Compiles CUDA kernels with NVRTC at first use: what an export holds beside the launcher.

It uses nothing of Kernelwright's. What is not covered: kernels that need separate linking.
"""

# --- exported from here ---


class KernelUnavailableError(RuntimeError):
    """The kernels cannot be built or loaded on this machine; the message says why."""


def compile_cubin(source: str, header: str, architecture: str) -> bytes:
    """Compile with NVRTC; needs no GPU.

    Args:
        source: The kernels' text.
        header: The text of kernelwright.cuh, which the kernels include.
        architecture: As NVRTC names it, for example "sm_90a".

    Raises:
        KernelUnavailableError: When NVRTC refuses, with what it said.
    """
    import tempfile
    from pathlib import Path

    from cuda import pathfinder
    from cuda.core import Program, ProgramOptions

    found = (pathfinder.find_nvidia_header_directory(name) for name in ("cudart", "cccl"))
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "kernelwright.cuh").write_text(header, encoding="utf-8")
        options = ProgramOptions(
            name="kernel.cu",
            std="c++17",
            arch=architecture,
            include_path=[folder, *(str(path) for path in found if path)],
            lineinfo=True,
            no_source_include=True,
        )
        code = Program(source, code_type="c++", options=options).compile("cubin").code
    return bytes(code)
