"""A forward's distributions while it is traced: their arguments are not checked.

`torch.distributions` looks at the values of what it is given and raises where they are none that
a distribution can have; nothing that looks at values can be traced. Kernels compute what the
forward does with arguments that pass. Not covered: `validate_args=True` that a forward says itself.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from torch.distributions import Distribution

WORDS = (
    "Kernels do not check the arguments of torch.distributions, where the module raises an error "
    "for those that are out of range."
)


class Checks:
    """What stands for False where `torch.distributions` asks whether to check."""

    asked = False

    def __bool__(self) -> bool:
        """False, and it is remembered that somebody asked."""
        self.asked = True
        return False


@contextmanager
def unchecked_distributions() -> Iterator[Checks]:
    """Distributions check nothing while inside; the checks that were left out are noted."""
    usual: object = Distribution._validate_args
    checks = usual if isinstance(usual, Checks) else Checks()
    if usual is True:
        Distribution._validate_args = checks  # type: ignore[assignment]
    try:
        yield checks
    finally:
        Distribution._validate_args = usual  # type: ignore[assignment]
