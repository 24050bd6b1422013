"""When foreign code failed because of this machine, and not because of itself.

A file for a GPU can say nothing about itself where there is none, so it gets no verdict there:
whoever asked is told what is missing. Read from the guest's words, which can only take a verdict
away; code that falls back to something that runs here is judged by that.
"""

import re

_NO_DEVICE = (
    "CUDA_HOME environment variable is not set",
    "CUDA-capable device",
    "No CUDA GPUs are available",
    "No CUDA runtime is found",
    "NVIDIA driver",
    "asks for a CUDA device, and there is none here",
    "not compiled with CUDA",
    "requires CUDA support",
    "dummy base class CUDAGraph",
    "0 active drivers",
)
_NO_TOOLKIT = ("CUDA_HOME environment variable is not set", "nvcc: not found", "/bin/nvcc'")
_NO_NINJA = "Ninja is required to load C++ extensions"
_NO_MODULE = re.compile(r"(?:No module named|The file imports) '([\w.]+)'")


class LackingError(Exception):
    """This machine has not what foreign code needs; the message is a sentence with the remedy."""


def lacking(name: str, words: str, device: str) -> str:
    """What is missing here, in a sentence; empty where the failure is the code's own.

    Args:
        name: the foreign code's.
        words: the guest's account of how it failed.
        device: `cpu` or `cuda`.
    """
    if module := _NO_MODULE.search(words):
        package = module.group(1).split(".")[0]
        elsewhere = "" if device == "cuda" else " (if it is one for GPUs, on a machine with one)"
        return f"{name} imports {package!r}, which is not installed here: install it{elsewhere}"
    if _NO_NINJA in words:
        return f"{name} builds an extension, for which torch wants ninja: pip install ninja"
    if device == "cpu" and any(sign in words for sign in _NO_DEVICE):
        return (
            f"{name} needs a CUDA device, and it is judged on the CPU here: check it with "
            f"--target cuda on a machine that has one ({words[:160]})"
        )
    if device == "cuda" and any(sign in words for sign in _NO_TOOLKIT):
        return (
            f"{name} compiles CUDA with nvcc, which is not here: install the CUDA toolkit and set "
            f"CUDA_HOME ({words[:160]})"
        )
    return ""
