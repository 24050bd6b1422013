"""From a candidate to an object: check the contract, look in the cache, compile, keep.

The cache holds compiled objects by the content that made them, on disk, shared by processes. An
entry is a folder that appears by one rename: it is complete or it is not there. What the
compiler said is kept with the object, because a cached compile says nothing. Entries are
checked against their hash when read; a damaged one is as good as none. Nothing is evicted: an
object is tens of kilobytes, and the folder can be deleted at any time.
"""

import asyncio
import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import platformdirs
from pydantic import ValidationError

from kernelwright.tools.candidates.arithmetic import ContractError
from kernelwright.tools.candidates.kernel_source import KernelSource, complete_settings
from kernelwright.tools.languages.base.compilers import (
    Built,
    CompileFailure,
    Compiler,
    CompileRefusedError,
    pool,
)
from kernelwright.tools.languages.base.language import CompileJob, Language
from kernelwright.tools.types import Candidate, CompileReport, Value, Verdict

# Changes when the meaning of an entry does.
_FORMAT = "1"


class Entry(Value):
    """What is kept beside an object."""

    artifact: str
    sha256: str
    functions: tuple[str, ...]
    reports: tuple[CompileReport, ...]
    log: str


def cache_folder() -> Path:
    """`KERNELWRIGHT_HOME/cache/objects`, else this user's cache folder."""
    home = os.environ.get("KERNELWRIGHT_HOME")
    if home:
        return Path(home).expanduser() / "cache" / "objects"
    return platformdirs.user_cache_path("kernelwright") / "objects"


def cache_key(*content: str) -> str:
    """The name of an entry: a hash of everything that decides what the compiler makes."""
    joined = "\0".join((_FORMAT, *(f"{len(part)}:{part}" for part in content)))
    return hashlib.sha256(joined.encode("utf-8", errors="replace")).hexdigest()


def look_up(key: str) -> tuple[Path, Entry] | None:
    """The object of that key, or None when there is none that is whole."""
    folder = _folder(key)
    try:
        entry = Entry.model_validate_json((folder / "entry.json").read_bytes())
        artifact = folder / entry.artifact
        whole = hashlib.sha256(artifact.read_bytes()).hexdigest() == entry.sha256
    except (OSError, ValidationError):
        return None
    return (artifact, entry) if whole else None


def keep(
    key: str,
    made: Path,
    functions: tuple[str, ...],
    reports: tuple[CompileReport, ...],
    log: str,
) -> tuple[Path, Entry]:
    """Move a fresh object and what is known about it into the cache.

    When another process was faster, its entry stays: both were made from the same content.
    """
    digest = hashlib.sha256(made.read_bytes()).hexdigest()
    entry = Entry(artifact=made.name, sha256=digest, functions=functions, reports=reports, log=log)
    final = _folder(key)
    (made.parent / "entry.json").write_text(entry.model_dump_json(), encoding="utf-8")
    for attempt in range(2):
        try:
            made.parent.rename(final)
            break
        except OSError:
            if (present := look_up(key)) is not None:
                return present
            if attempt:
                raise
            shutil.rmtree(final, ignore_errors=True)
    return final / entry.artifact, entry


@contextlib.contextmanager
def work_folder() -> Iterator[Path]:
    """A folder beside the entries (a rename must not cross file systems); gone afterwards."""
    parent = cache_folder()
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".making-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _folder(key: str) -> Path:
    return cache_folder() / key


# Changes when the allow-lists do: an object that older ones let through is made anew.
CONTRACT = "contract 2"


class _Limits(Value):
    """For which device, how long one compile may take, and whether the allow-lists hold for it."""

    architecture: str | None
    timeout_s: float
    contract: bool


async def compile_in(
    language: Language,
    candidate: Candidate,
    *,
    architecture: str | None,
    timeout_s: float,
    contract: bool = True,
) -> Built | CompileFailure:
    """Compile a candidate of that language under its settings, or find it in the cache.

    See `tools.languages.compile_candidate`.
    """
    limits = _Limits(architecture=architecture, timeout_s=timeout_s, contract=contract)
    ticket = pool().submit(lambda compiler: _compile(compiler, language, candidate, limits))
    try:
        return await asyncio.wrap_future(ticket.future)
    except asyncio.CancelledError:
        ticket.cancel()
        raise


def _compile(
    compiler: Compiler, language: Language, candidate: Candidate, limits: _Limits
) -> Built | CompileFailure:
    start = time.perf_counter()
    try:
        source, text = _checked(language, candidate, limits)
        key = _key(language, text, limits)
        found = look_up(key)
        path, entry = found or _make(compiler, language, source, text, key, limits)
    except ContractError as error:
        return _failure(CompileRefusedError(str(error), verdict=Verdict.INVALID_PLAN), start)
    except CompileRefusedError as error:
        return _failure(error, start)
    return Built(
        language=candidate.language,
        artifact=path,
        functions=entry.functions,
        reports=entry.reports,
        log=entry.log,
        cached=found is not None,
        seconds=time.perf_counter() - start,
    )


def _checked(language: Language, candidate: Candidate, limits: _Limits) -> tuple[KernelSource, str]:
    source = language.parse(candidate.kernel)
    if limits.contract:
        language.check(candidate.kernel)
    settings = complete_settings(source, candidate.settings)
    return source, language.with_settings(candidate.kernel, settings)


def _key(language: Language, text: str, limits: _Limits) -> str:
    held = () if limits.contract else ("not held against the contract",)
    identity = language.identity(limits.architecture)
    return cache_key(language.spec.name, text, *identity, CONTRACT, *held)


def _make(
    compiler: Compiler,
    language: Language,
    source: KernelSource,
    text: str,
    key: str,
    limits: _Limits,
) -> tuple[Path, Entry]:
    functions = tuple(function.name for function in source.functions)
    with work_folder() as folder:
        job = CompileJob(
            source=text,
            functions=functions,
            architecture=limits.architecture,
            folder=folder,
            timeout_s=limits.timeout_s,
            contract=limits.contract,
        )
        made = language.compile(compiler, job)
        return keep(key, made.artifact, functions, made.reports, made.log)


def _failure(error: CompileRefusedError, start: float) -> CompileFailure:
    return CompileFailure(
        verdict=error.verdict,
        message=error.message,
        log=error.log,
        seconds=time.perf_counter() - start,
    )
