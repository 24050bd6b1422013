"""Skeletons of kernels: what is the same for every loop, as C++ with places to fill in."""

from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined


@cache
def _environment() -> Environment:
    # Kernels are C++, not HTML: escaping would break every comparison.
    return Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def render(name: str, **places: object) -> str:
    """The skeleton `<name>.cpp.j2` with its places filled in."""
    return _environment().get_template(f"{name}.cpp.j2").render(**places)
