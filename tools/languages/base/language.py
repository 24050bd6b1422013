"""What a kernel language is: one object that reads, compiles, loads, inspects and exports kernels.

Everything that differs between CUDA, C++ and what comes next is behind `Language`; who handles a
candidate asks `language_of(candidate)` and never compares names. Facts are data in `LanguageSpec`,
so that they can be read without torch, a compiler or a device.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

from kernelwright.tools.candidates.kernel_source import KernelSource
from kernelwright.tools.languages.base.compilers import Compiler
from kernelwright.tools.types import (
    Candidate,
    CompileReport,
    Evidence,
    LanguageName,
    Setting,
    Value,
)

if TYPE_CHECKING:
    import torch  # importing it takes seconds, and only workers load kernels

    from kernelwright.tools.candidates.run.arguments import Launcher

DeviceKind = Literal["cuda", "cpu"]


@dataclass(frozen=True)
class LanguageSpec:
    """The facts about a language.

    Attributes:
        name: As candidates store it.
        title: As a person reads it.
        device: The kind of device that its kernels run on.
        has_grid: Whether a launch has a geometry (grid, block, shared, cluster).
        suffixes: Of source files; an export writes the first.
        fences: Words that open a Markdown block of it; prompts write the first.
        marks: Text that stands in no other language's kernels.
        lexer: Pygments' name for it.
        web_lexer: The nearest name that highlighters in browsers know.
        prelude: The header of ours that its kernels include; None where there is none.
        further: Headers of ours, over the prelude, that kernels include where they need them.
        includes: What its kernels may include, the prelude with it.
        alignment_bytes: What torch's allocators align to on its device.
        plain_words: Names that are a lower precision's elsewhere and nothing here.
        has_sanitizers: Whether `build_sanitized` can work.
        probe: A kernel `probe(x, y, n)` that computes 2x + 1, as what works here is tried with.
        probe_plan: Its plan.
    """

    name: LanguageName
    title: str
    device: DeviceKind
    has_grid: bool
    suffixes: tuple[str, ...]
    fences: tuple[str, ...]
    lexer: str
    web_lexer: str
    prelude: Path | None
    includes: frozenset[str]
    alignment_bytes: int
    probe: str
    probe_plan: str
    marks: tuple[str, ...] = ()
    plain_words: frozenset[str] = field(default_factory=frozenset)
    has_sanitizers: bool = False
    further: tuple[Path, ...] = ()


class CompileJob(Value):
    """One compile; `folder` is empty and the job's own, `source` has its tunables set.

    `contract` is whether the object is held against the language's allow-lists.
    """

    source: str
    functions: tuple[str, ...]
    architecture: str | None
    folder: Path
    timeout_s: float
    contract: bool


class Compiled(Value):
    """What a compiler left in the job's folder, with its log and each kernel's resources."""

    artifact: Path
    log: str
    reports: tuple[CompileReport, ...]


class CodeLine(Value):
    """One machine instruction of a kernel.

    `depth` is that of the loops around it, `kind` what `inspect` counts it as, `line` the line of
    the kernel's source that it comes from, from 1; None where the compiler did not say.
    """

    kernel: str
    text: str
    depth: int = 0
    kind: str = ""
    line: int | None = None


class ExportParts(Value):
    """What an export prints for a language.

    Attributes:
        imports: Modules of the standard library that `launcher` and `loader` need; torch, Path and
            SimpleNamespace are there.
        launcher: Python source of the functions that compile, load and launch.
        loader: Python source of `load(index)`, which gives the kernels on that device; it may use
            the names KERNEL, HEADER and SIGNATURES.
        needs: What a machine must have, behind "it needs torch and".
        compiled_by: Who compiles the kernel at the first call, behind "by".
        not_verified: What stays open beside what the judge says, each a Markdown list's item.
    """

    imports: tuple[str, ...]
    launcher: str
    loader: str
    needs: str
    compiled_by: str
    not_verified: tuple[str, ...]


class Language(Protocol):
    """One kernel language.

    Failures of a candidate are values, `ContractError` or `CompileRefusedError`; a machine
    without the compiler is an `EnvironmentLacksError`.
    """

    @property
    def spec(self) -> LanguageSpec:
        """The facts about it."""
        ...

    def parse(self, kernel: str) -> KernelSource:
        """What a kernel exports and declares.

        Raises:
            ContractError: When a signature or declaration breaks the contract, or nothing is
                exported.
        """
        ...

    def check(self, kernel: str) -> None:
        """Hold the text against the language's allow-list, in milliseconds.

        Raises:
            CompileRefusedError: Naming what is not allowed.
        """
        ...

    def with_settings(self, kernel: str, settings: Sequence[Setting]) -> str:
        """The text that is really compiled: the kernel with its tunables set."""
        ...

    def identity(self, architecture: str | None) -> tuple[str, ...]:
        """What decides the object beside the source: compiler, flags, headers, architecture.

        Raises:
            EnvironmentLacksError: When this machine has no such compiler.
        """
        ...

    def compile(self, compiler: Compiler, job: CompileJob) -> Compiled:
        """Compile in a process that can be killed; nothing of the object is run.

        Raises:
            CompileRefusedError: When the compiler, or the check of what it built, refuses.
            EnvironmentLacksError: When this machine has no such compiler.
        """
        ...

    def load(
        self, source: KernelSource, artifact: Path, device: "torch.device"
    ) -> "Mapping[str, Launcher]":
        """The object's functions, ready to be launched in this process; for workers only.

        Raises:
            LaunchRefused: When the object lacks a function, or does not fit the device.
            DeviceError: When the device is in no state to load it.
        """
        ...

    async def inspect(self, candidate: Candidate, architecture: str | None) -> tuple[Evidence, ...]:
        """Static readings of the machine code; where it cannot be read, that is a reading too."""
        ...

    async def listing(
        self, candidate: Candidate, architecture: str | None
    ) -> tuple[CodeLine, ...] | str:
        """The machine code line by line; one sentence where it cannot be read."""
        ...

    async def build_sanitized(
        self, candidate: Candidate, folder: Path, *, timeout_s: float
    ) -> Path | str:
        """A program that makes recorded launches again under sanitizers, or why there is none.

        Raises:
            CompileRefusedError: the kernel hides from them; the verdict is the error's.
        """
        ...

    def export(self, architecture: str | None) -> ExportParts:
        """What an export prints, for kernels that were verified on that architecture."""
        ...
