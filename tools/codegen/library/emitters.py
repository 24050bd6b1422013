"""Which emitter writes for a device: that of the first language for its kind that has one."""

from __future__ import annotations

from collections.abc import Callable

from kernelwright.profiles.load import Hardware
from kernelwright.tools.codegen.ir.kernel_family import Emitter
from kernelwright.tools.languages import languages
from kernelwright.tools.types import LanguageName


def emitter_for(hardware: Hardware) -> Emitter:
    """The device's own.

    Raises:
        ValueError: no language for that kind of device has one.
    """
    for language in languages():
        if language.spec.device == hardware.kind and language.spec.name in EMITTERS:
            return EMITTERS[language.spec.name]()
    raise ValueError(f"no emitter is registered for {hardware.kind} devices")


def _cuda() -> Emitter:
    from kernelwright.tools.codegen.cuda import CudaEmitter

    return CudaEmitter()


def _cpp() -> Emitter:
    from kernelwright.tools.codegen.cpp import CppEmitter

    return CppEmitter()


# What makes the emitter of a language, by its name; imported when first needed.
EMITTERS: dict[LanguageName, Callable[[], Emitter]] = {"cuda": _cuda, "cpp": _cpp}
