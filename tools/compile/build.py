"""From a candidate to an object: check the contract, look in the cache, compile, keep."""

import asyncio
import time
from pathlib import Path

from tools.candidates import ContractError, KernelSource, complete_settings, parse_kernel
from tools.compile.arrange import with_macros
from tools.compile.cache import Entry, cache_key, keep, look_up, work_folder
from tools.compile.cpp import compile_cpp, cpp_identity
from tools.compile.cuda import compile_cuda, cuda_identity
from tools.compile.includes import check_includes
from tools.compile.pool import Compiler, pool
from tools.compile.results import Built, CompileFailure, CompileRefusedError
from tools.nouns import Candidate, CompileReport, Language, Value, Verdict

# Changes when the allow-lists do: an object that older ones let through is made anew.
CONTRACT = "contract 2"


class Limits(Value):
    """How long one compile may take, and whether the allow-lists hold for it."""

    timeout_s: float
    contract: bool


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
        EnvironmentLacksError: When this machine has no such compiler.
    """
    limits = Limits(timeout_s=timeout_s, contract=contract)
    ticket = pool().submit(lambda compiler: _compile(compiler, candidate, architecture, limits))
    try:
        return await asyncio.wrap_future(ticket.future)
    except asyncio.CancelledError:
        ticket.cancel()
        raise


def _compile(
    compiler: Compiler, candidate: Candidate, architecture: str | None, limits: Limits
) -> Built | CompileFailure:
    start = time.perf_counter()
    try:
        source, text = _checked(candidate, limits)
        key = _key(candidate.language, text, architecture, limits)
        found = look_up(key)
        path, entry = found or _make(compiler, source, text, architecture, key, limits)
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


def _checked(candidate: Candidate, limits: Limits) -> tuple[KernelSource, str]:
    source = parse_kernel(candidate.kernel, candidate.language)
    if limits.contract:
        check_includes(candidate.kernel, candidate.language)
    settings = complete_settings(source, candidate.settings)
    return source, with_macros(candidate.kernel, settings)


def _key(language: Language, text: str, architecture: str | None, limits: Limits) -> str:
    held = () if limits.contract else ("not held against the contract",)
    if language is Language.CPP:
        return cache_key(language, text, cpp_identity(), CONTRACT, *held)
    if architecture is None:
        raise ValueError("a CUDA candidate needs an architecture to compile for")
    return cache_key(language, text, architecture, cuda_identity(), CONTRACT, *held)


def _make(
    compiler: Compiler,
    source: KernelSource,
    text: str,
    architecture: str | None,
    key: str,
    limits: Limits,
) -> tuple[Path, Entry]:
    functions = tuple(function.name for function in source.functions)
    with work_folder() as folder:
        reports: tuple[CompileReport, ...]
        if source.language is Language.CUDA:
            output = folder / "kernel.cubin"
            log, reports = compile_cuda(
                compiler, text, architecture or "", output, limits.timeout_s
            )
        else:
            output = folder / "kernel.so"
            log = compile_cpp(compiler, text, output, limits.timeout_s, contract=limits.contract)
            reports = tuple(CompileReport(kernel=name) for name in functions)
        return keep(key, output, functions, reports, log)


def _failure(error: CompileRefusedError, start: float) -> CompileFailure:
    return CompileFailure(
        verdict=error.verdict,
        message=error.message,
        log=error.log,
        seconds=time.perf_counter() - start,
    )
