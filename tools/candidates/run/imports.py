"""What stands where a plan's builtins would be: nothing but an import, and that is torch's own.

Parts of torch import others of its modules the first time that they are needed, and Python looks
for `__import__` in the builtins of whatever frame is on top, which may be a plan's. A plan itself
cannot say the name: the validator refuses import statements and every name with two underscores.
"""

import builtins
from collections.abc import Mapping, Sequence
from types import ModuleType


def _of_torch(
    name: str,
    namespace: Mapping[str, object] | None = None,
    local: Mapping[str, object] | None = None,
    wanted: Sequence[str] | None = (),
    level: int = 0,
) -> ModuleType:
    """Import a module of torch's, and no other."""
    if level or name.partition(".")[0] != "torch":
        raise ImportError(f"{name} is not imported here")
    return builtins.__import__(name, namespace, local, wanted or (), level)


BUILTINS: Mapping[str, object] = {"__import__": _of_torch}
