"""Which settings of a kernel can be tried: every valid one, or those that a recording holds.

A replay of a recorded settings space gives a search nothing but what was measured. It says so here,
and every writer of candidates asks here.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from kernelwright.tools.candidates import valid_settings
from kernelwright.tools.languages.registry import parse_kernel
from kernelwright.tools.types import LanguageName, Setting

Settings = tuple[Setting, ...]
# The settings of a kernel's text that were measured; None for a kernel that is not known.
Measured = Callable[[str], Sequence[Settings] | None]

_measured: ContextVar[Measured | None] = ContextVar("measured", default=None)


def settings_to_try(kernel: str, language: LanguageName) -> Sequence[Settings]:
    """Complete settings of a kernel that can be tried, the default first where it is among them.

    Raises:
        ContractError: When the kernel's text breaks the contract.
    """
    measured = _measured.get()
    known = measured(kernel) if measured is not None else None
    return known if known is not None else valid_settings(parse_kernel(kernel, language))


@contextmanager
def only_measured(measured: Measured) -> Iterator[None]:
    """While this is entered, nothing but a recording's settings can be tried."""
    token = _measured.set(measured)
    try:
        yield
    finally:
        _measured.reset(token)
