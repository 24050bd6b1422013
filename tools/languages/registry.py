"""Which languages there are, by the name that candidates store.

Ours stand below. An installed package adds one by an entry point of the group
`kernelwright.languages`, which every process finds by itself, workers behind the wall included;
`register` adds one to this process alone.
"""

from importlib.metadata import entry_points
from threading import Lock

from kernelwright.tools.languages.base.language import DeviceKind, Language
from kernelwright.tools.languages.cpp.language import CPP
from kernelwright.tools.languages.cuda.language import CUDA
from kernelwright.tools.types import Candidate, EnvironmentLacksError, LanguageName

ENTRY_POINTS = "kernelwright.languages"

_known: dict[LanguageName, Language] = {item.spec.name: item for item in (CUDA, CPP)}
_lock = Lock()
_asked_packages = False


def languages() -> tuple[Language, ...]:
    """Every language, ours first."""
    _ask_packages()
    return tuple(_known.values())


def language_named(name: LanguageName) -> Language:
    """The language of that name.

    Raises:
        EnvironmentLacksError: When there is none here.
    """
    if name not in _known:
        _ask_packages()
    if name not in _known:
        raise EnvironmentLacksError(
            f"there is no kernel language {name!r} here, only {', '.join(_known)}; install the "
            f"package that brings it (an entry point of the group {ENTRY_POINTS!r})"
        )
    return _known[name]


def language_of(candidate: Candidate) -> Language:
    """The language that a candidate is written in.

    Raises:
        EnvironmentLacksError: When there is none of that name here.
    """
    return language_named(candidate.language)


def default_language(device: DeviceKind) -> Language:
    """What kernels for such a device are written in unless somebody says otherwise."""
    return next(item for item in _known.values() if item.spec.device == device)


def register(language: Language) -> None:
    """Make a language known to this process.

    Raises:
        ValueError: When another one has the name.
    """
    name = language.spec.name
    if _known.setdefault(name, language) is not language:
        raise ValueError(f"there is a kernel language {name!r} already")


def _ask_packages() -> None:
    """Register what installed packages bring, once; ours keep their names."""
    global _asked_packages
    with _lock:
        if _asked_packages:
            return
        for entry in entry_points(group=ENTRY_POINTS):
            register(entry.load())
        _asked_packages = True
