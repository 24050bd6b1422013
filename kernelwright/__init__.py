"""Makes PyTorch modules faster by writing kernels for them, and proves it.

    import kernelwright

    summary = kernelwright.optimize("softmax.py", seconds=60)
    fast = kernelwright.optimize(model, x, seconds=60)
    kernelwright.check("candidate/", "softmax.py")
    kernelwright.audit("softmax.py")
    fast = torch.compile(model, backend="kernelwright")
    kernelwright.spliced()

Nothing heavy is imported before one of them is asked for.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

# A checkout reaches its parts by links; where links cannot be made they are small text files.
if not Path(__file__).with_name("tools").is_dir():
    raise ImportError(
        f"{Path(__file__).with_name('tools')} should be a link to a folder and is none: this copy "
        "was unpacked without symbolic links; clone it with `git clone -c core.symlinks=true`, or "
        "install a wheel"
    )

__all__ = [
    "EnvironmentLacksError",
    "KernelwrightError",
    "audit",
    "check",
    "optimize",
    "spliced",
    "version",
]

if TYPE_CHECKING:
    from kernelwright.ui.api import (
        EnvironmentLacksError,
        KernelwrightError,
        audit,
        check,
        optimize,
        spliced,
        version,
    )
else:

    def __getattr__(name: str) -> object:
        """One of the public names, imported when it is first asked for."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = getattr(import_module("kernelwright.ui.api"), name)
        return globals()[name]

    def __dir__() -> list[str]:
        """What completion offers."""
        return sorted({*globals(), *__all__})
