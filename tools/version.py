"""Which Kernelwright this is, also when it runs from a checkout that was never installed."""

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def kernelwright_version() -> str:
    """The installed distribution's version, else the checkout's with "+source" behind it."""
    try:
        return version("kernelwright")
    except PackageNotFoundError:
        stated = tomllib.loads(_PYPROJECT.read_text(encoding="utf-8"))["project"]["version"]
        return f"{stated}+source"
