"""Which languages there are, by the name that candidates store, and candidates made by that name.

Ours stand below. An installed package adds one by an entry point of the group
`kernelwright.languages`, which every process finds by itself, workers behind the wall included;
`register` adds one to this process alone.

Making, compiling and loading candidates is the same as the methods of `Language`, for whoever holds
a name or a candidate and no object. Only loading imports torch, and is for workers.
"""

from collections.abc import Iterable
from importlib.metadata import entry_points
from threading import Lock
from typing import TYPE_CHECKING, Literal

from kernelwright.tools.candidates.kernel_source import KernelSource, complete_settings, identity
from kernelwright.tools.candidates.plan import ADMITTED
from kernelwright.tools.languages.base.compile import compile_in
from kernelwright.tools.languages.base.compilers import Built, CompileFailure
from kernelwright.tools.languages.base.language import DeviceKind, Language
from kernelwright.tools.languages.cpp.language import CPP
from kernelwright.tools.languages.cuda.language import CUDA
from kernelwright.tools.types import Candidate, EnvironmentLacksError, LanguageName, Setting
from kernelwright.tools.types.idea import CallMode

if TYPE_CHECKING:
    import torch

    from kernelwright.tools.candidates.run import Allocator, PlanRunner
    from kernelwright.tools.candidates.run.arguments import Host

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


def parse_kernel(text: str, language: LanguageName) -> KernelSource:
    """What a kernel exports and declares.

    Raises:
        ContractError: When a signature or declaration breaks the contract, or nothing is
            exported.
    """
    return language_named(language).parse(text)


def new_candidate(
    language: LanguageName,
    kernel: str,
    plan: str,
    *,
    settings: Iterable[Setting] = (),
    idea: str = "",
    parents: tuple[str, ...] = (),
    origin: Literal["playbook", "model", "person"] = "playbook",
    strategies: tuple[str, ...] = (),
    note: str = "",
) -> Candidate:
    """A candidate with its id and complete settings.

    Raises:
        ContractError: When the kernel's exports, declarations or settings break the contract.
    """
    complete = complete_settings(parse_kernel(kernel, language), settings)
    return Candidate(
        id=identity(language, kernel, plan, complete),
        language=language,
        kernel=kernel,
        plan=plan,
        settings=complete,
        idea=idea,
        parents=parents,
        origin=origin,
        strategies=strategies,
        note=note,
    )


def with_settings(
    candidate: Candidate, settings: Iterable[Setting], *, note: str | None = None
) -> Candidate:
    """The same implementation with other settings; tunables not named keep their value.

    Raises:
        ContractError: When a name or value is not declared or a requirement is not met.
    """
    chosen = {item.name: item for item in candidate.settings}
    chosen |= {item.name: item for item in settings}
    source = parse_kernel(candidate.kernel, candidate.language)
    complete = complete_settings(source, chosen.values())
    kernel, plan, mode = candidate.kernel, candidate.plan, candidate.mode
    made = identity(candidate.language, kernel, plan, complete, mode)
    update: dict[str, object] = {"id": made, "settings": complete}
    return candidate.model_copy(update=update if note is None else update | {"note": note})


def in_mode(candidate: Candidate, mode: CallMode) -> Candidate:
    """The same kernels and plan, called in another way."""
    kernel, plan, settings = candidate.kernel, candidate.plan, candidate.settings
    made = identity(candidate.language, kernel, plan, settings, mode)
    return candidate.model_copy(update={"id": made, "mode": mode})


async def compile_candidate(
    candidate: Candidate, *, architecture: str | None, timeout_s: float, contract: bool = True
) -> Built | CompileFailure:
    """Compile a candidate under its settings, or find it in the cache.

    Args:
        candidate: What to compile.
        architecture: The device's, as in "sm_90a"; needed for CUDA, ignored for C++.
        timeout_s: For one compile; time in the queue does not count.
        contract: Whether source and object are held against the allow-lists. Only the judge's
            mutation test leaves that out; such objects are kept apart in the cache.

    Returns:
        The object, or why there is none.

    Raises:
        EnvironmentLacksError: When this machine has no such compiler, or the language is unknown.
    """
    return await compile_in(
        language_of(candidate),
        candidate,
        architecture=architecture,
        timeout_s=timeout_s,
        contract=contract,
    )


def load_candidate(
    candidate: Candidate,
    built: Built,
    device: "str | torch.device",
    allocator: "Allocator | None" = None,
    *,
    operators: frozenset[str] = ADMITTED,
    host: "Host | None" = None,
) -> "PlanRunner":
    """Load a built candidate: `runner(args, weights)` gives the outputs.

    Args:
        candidate: Its plan is validated again here.
        built: The object that `compile_candidate` made of it.
        device: As torch names it ("cuda:0", "cpu").
        allocator: Where the plan's memory comes from; torch's own when None.
        operators: Library operators admitted.
        host: See `PlanRunner`.

    Raises:
        ContractError: When kernel or plan break the contract.
        LaunchRefused: When the object lacks a function.
        DeviceError: When the device cannot load the object.
    """
    from kernelwright.tools.candidates.run import PlanRunner

    language = language_of(candidate)
    return PlanRunner(
        candidate,
        language.parse(candidate.kernel),
        lambda source, on: language.load(source, built.artifact, on),
        device,
        allocator,
        operators=operators,
        host=host,
    )
