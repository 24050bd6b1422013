"""What an export compares itself with: the parts of the module as they were traced, as Python.

`watch.py` in the export reads it. A task that was traced before parts were written down has none,
and neither has a part that holds another's submodule; such an export is compared with what it was
when it was constructed.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from kernelwright.tools import tasks
from kernelwright.tools.export import guards
from kernelwright.tools.types import WeightSpec
from kernelwright.tools.types.task import Submodule

WATCH = "watch.py"  # the file that module.py reads beside reference.py
_SAME = "= "


def watch() -> str:
    """Its text: read and not imported, as it imports torch."""
    return (Path(tasks.__file__).with_name("loading") / WATCH).read_text(encoding="utf-8")


def printed(submodules: Sequence[Submodule] | None) -> str:
    """A dictionary by path, a line each; `None` without any."""
    if submodules is None:
        return "None"
    lines = [
        f"    {item.path!r}: ({item.kind!r}, {item.hooks}, {dict(item.attributes)!r}, "
        f"{dict(item.shared)!r}),"
        for item in submodules
    ]
    return "\n".join(["{", *lines, "}"])


def ties(
    submodules: Sequence[Submodule] | None,
    weights: Mapping[str, WeightSpec],
    variables: Mapping[str, str],
) -> list[str]:
    """Conditions that parameters which were one tensor are one no more, of those that are read.

    A call asks for them: not every way to replace a parameter is heard.

    Args:
        submodules: of the module that was traced.
        weights: all of its tensors by name.
        variables: those that the plan reads, by name, as the export calls them.
    """

    def found(name: str) -> str:
        return variables.get(name) or guards.weight_path(weights[name])

    pairs = (
        (f"{item.path}.{name}" if item.path else name, first)
        for item in submodules or ()
        for name, first in item.shared
    )
    return [
        f"{found(name)} is not {found(first)}"
        for name, first in pairs
        if {name, first} & variables.keys() and {name, first} <= weights.keys()
    ]


def under(submodules: Sequence[Submodule] | None, path: str) -> tuple[Submodule, ...] | None:
    """The same of one part and what is in it, by their paths in there; None where it is unknown."""
    found = [item for item in submodules or () if _is_in(item.path, path)]
    others = [item.kind.removeprefix(_SAME) for item in found if item.kind.startswith(_SAME)]
    if not found or not all(_is_in(other, path) for other in others):
        return None
    return tuple(_from(item, path) for item in found)


def _is_in(name: str, path: str) -> bool:
    return name == path or name.startswith(f"{path}.")


def _from(item: Submodule, path: str) -> Submodule:
    """A submodule by its path from there; what it shares with others is nothing of the part's."""
    kind = item.kind
    if kind.startswith(_SAME):
        kind = _SAME + _inner(kind.removeprefix(_SAME), path)
    shared = [(name, _inner(first, path)) for name, first in item.shared if _is_in(first, path)]
    inner = _inner(item.path, path)
    update = {"path": inner, "kind": kind, "shared": tuple(shared)}
    # Those of the part itself run as they would without kernels.
    return item.model_copy(update=update if inner else update | {"hooks": 0})


def _inner(name: str, path: str) -> str:
    return name.removeprefix(path).removeprefix(".")
