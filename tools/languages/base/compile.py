"""From a candidate to an object: check the contract, look in the cache, compile, keep."""

import asyncio
import time
from pathlib import Path

from kernelwright.tools.candidates.arithmetic import ContractError
from kernelwright.tools.candidates.kernel_source import KernelSource
from kernelwright.tools.candidates.settings import complete_settings
from kernelwright.tools.languages.base.cache import Entry, cache_key, keep, look_up, work_folder
from kernelwright.tools.languages.base.compilers import (
    Built,
    CompileFailure,
    Compiler,
    CompileRefusedError,
    pool,
)
from kernelwright.tools.languages.base.language import CompileJob, Language
from kernelwright.tools.types import Candidate, Value, Verdict

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
