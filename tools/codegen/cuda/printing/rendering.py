"""Fills skeletons: templates beside this file, tunables, parameters and the plan's launches."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from kernelwright.tools.codegen.cuda.printing.nest import Nest
from kernelwright.tools.codegen.cuda.printing.types import c_type

_PARAMETERS = "@parameters@"
_KERNEL = re.compile(r'(?=^extern "C" )', re.MULTILINE)
_NAME = re.compile(r"(\w+)\(@parameters@\)")


@dataclass(frozen=True)
class Argument:
    """A kernel parameter that is there if the kernel mentions it, and what the plan passes."""

    name: str
    declaration: str
    passed: str


@dataclass(frozen=True)
class Launch:
    """How the plan launches a kernel; the sizes are plan expressions."""

    kernel: str
    grid: str
    block: str
    shared: str = ""
    cluster: str = ""


class Tunables:
    """The tunables and requirements of one emitted loop, under its prefix."""

    def __init__(self, prefix: str):
        self.prefix = prefix.upper()
        self._lines: list[str] = []

    def add(self, name: str, values: Sequence[int]) -> "Tunables":
        """Declare a tunable; its first value is the best guess."""
        kept = list(dict.fromkeys(values))
        self._lines.append(f"// tune: {self.prefix}_{name} in {', '.join(map(str, kept))}")
        return self

    def require(self, text: str) -> "Tunables":
        """Declare a requirement; names of tunables in braces, `{THREADS} <= 1024`."""
        self._lines.append(f"// require: {self.named(text)}")
        return self

    def named(self, text: str) -> str:
        """`text` with `{THREADS}` replaced by the tunable's full name."""
        return re.sub(r"\{(\w+)\}", rf"{self.prefix}_\1", text)

    def text(self) -> str:
        """The declarations."""
        return "\n".join(self._lines)


def render(skeleton: str, **values: object) -> str:
    """The filled skeleton, without runs of empty lines."""
    text = (
        _environment().get_template(f"{skeleton}.cuh.j2").render(**values, parameters=_PARAMETERS)
    )
    text = re.sub(r"[ \t]+$", "", text, flags=re.MULTILINE)
    text = re.sub(r"\n{2,}", "\n", text)
    # A pragma is indented like the loop it is about.
    text = re.sub(r"^ *(#pragma unroll.*\n)( *)", r"\2\1\2", text, flags=re.MULTILINE)
    # One empty line before each comment that opens a pass or a kernel.
    return re.sub(r'\n( *// Pass \d|extern "C"|template |struct )', r"\n\n\1", text).strip() + "\n"


def buffer_arguments(nest: Nest) -> list[Argument]:
    """A parameter for every buffer of a nest: what is read, then what is written."""
    arguments: dict[str, Argument] = {}
    read = [place for place in nest.places.values() if place.buffer]
    for place, const in [*((p, "const ") for p in read), *((p, "") for p in nest.targets)]:
        name = f"g_{place.buffer}"
        before = arguments.get(name)
        if before is not None and before.declaration.startswith("const ") != bool(const):
            raise ValueError(f"{nest.loop.name}: {place.buffer} is both read and written")
        text = f"{const}{c_type(place.dtype)}* __restrict__ {name}"
        arguments[name] = Argument(name, text, place.buffer)
    return list(arguments.values())


def complete(
    source: str, arguments: Sequence[Argument], launches: Sequence[Launch]
) -> tuple[str, tuple[str, ...]]:
    """Give each kernel of `source` the parameters it mentions, and print the launches.

    Returns:
        The source, and one plan line a launch.
    """
    passed: dict[str, str] = {}
    parts = []
    for part in _KERNEL.split(source):
        named = _NAME.search(part)
        if named is not None:
            used = [a for a in arguments if re.search(rf"\b{re.escape(a.name)}\b", part)]
            part = part.replace(_PARAMETERS, ", ".join(a.declaration for a in used))
            passed[named.group(1)] = "".join(f"{a.passed}, " for a in used).strip()
        parts.append(part)
    return "".join(parts), tuple(_launch(one, passed[one.kernel]) for one in launches)


def _launch(one: Launch, arguments: str) -> str:
    if arguments.count(",") > 1:
        arguments = arguments.removesuffix(",")
    extra = f", shared={one.shared}" if one.shared else ""
    extra += f", cluster={one.cluster}" if one.cluster else ""
    return f'launch("{one.kernel}", grid={one.grid}, block={one.block}, args=({arguments}){extra})'


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent / "skeletons"),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        autoescape=False,
    )
