"""Chooses the device to optimise for and describes it.

A GPU is found through NVML and described by the driver's attributes; a profile of the same name
contributes what the driver does not tell (peak rates). Of several GPUs CUDA's first one is taken,
which `CUDA_VISIBLE_DEVICES` chooses. Not covered: MIG slices.
"""

from typing import Literal

from kernelwright.profiles.load import Hardware
from kernelwright.tools.hardware.cpu import detect_cpu
from kernelwright.tools.hardware.gpu import detect_gpu
from kernelwright.tools.types import EnvironmentLacksError

Target = Literal["auto", "cuda", "cpu"]


def detect(target: str = "auto") -> Hardware:
    """The device for `auto` (a GPU if there is one), `cuda` or `cpu`.

    Raises:
        ValueError: the target is none of the three.
        EnvironmentLacksError: `cuda` was asked for and no GPU answers.
    """
    if target not in ("auto", "cuda", "cpu"):
        raise ValueError(f"unknown target {target!r}; known are auto, cuda, cpu")
    if target == "cpu":
        return detect_cpu()
    gpu, why_not = detect_gpu()
    if gpu is not None:
        return gpu
    if target == "cuda":
        raise EnvironmentLacksError(f"no CUDA device can be used: {why_not}; try --target cpu")
    return detect_cpu()
