"""The machine code of a candidate as evidence: read from its SASS, or from the C++ compiler.

Where the code cannot be read, that is a reading too, with what would help. Costs half a second,
so it is for elites.
"""

from collections.abc import Iterator
from pathlib import Path

from profiles.load import Hardware
from tools.compile import CompileFailure, compile_candidate, vector_report
from tools.nouns import Candidate, Evidence, Language, Rank
from tools.profile.code.disassembler import NotDisassembledError, disassemble
from tools.profile.code.sass import Instruction, KernelCode, read_sass
from tools.profile.code.vectors import read_vectors

SASS = "SASS"
COMPILE_S = 60.0
# What is counted where there is any of it.
COUNTED = (
    "tensor_instructions",
    "bulk_copies",
    "async_copies",
    "local_accesses",
    "shared_accesses",
    "atomics",
    "barriers",
    "shuffles",
    "special_functions",
    "fp64_instructions",
)
_MEMORY = frozenset(
    {"global_loads", "global_stores", "local_accesses", "shared_accesses", "async_copies"}
)
_ARITHMETIC = frozenset(
    {"arithmetic", "tensor_instructions", "special_functions", "fp64_instructions"}
)


async def code_evidence(candidate: Candidate, hardware: Hardware) -> tuple[Evidence, ...]:
    """What a candidate's code says of it; compiles it where no earlier compile is at hand."""
    if candidate.language is Language.CPP:
        return await _cpp(candidate)
    built = await compile_candidate(
        candidate, architecture=hardware.architecture, timeout_s=COMPILE_S
    )
    if isinstance(built, CompileFailure):
        return (_unavailable(f"it does not compile here: {built.message}"),)
    return await cubin_evidence(built.artifact)


async def cubin_evidence(cubin: Path) -> tuple[Evidence, ...]:
    """What the kernels of a cubin consist of."""
    try:
        text = await disassemble(cubin)
    except NotDisassembledError as error:
        return (_unavailable(str(error)),)
    return tuple(item for code in read_sass(text) for item in _kernel(code))


async def _cpp(candidate: Candidate) -> tuple[Evidence, ...]:
    told = await vector_report(candidate, timeout_s=COMPILE_S)
    if isinstance(told, CompileFailure):
        return (_unavailable(f"the compiler says nothing of its loops: {told.message}"),)
    found = read_vectors(told.report, told.assembly)
    source = "the compiler's vectorisation report"
    why = f": {'; '.join(found.reasons)}" if found.reasons else ""
    readings = [
        _static("vectorised_loops", found.vectorised, "loops", source),
        _static("missed_loops", found.missed, "loops", f"{source}{why}"),
        _static("vector_bits", found.widest_bits, "bits", source),
    ]
    if found.packed_share is not None:
        words = "floating-point instructions of the assembly that work on vectors"
        readings.append(_static("packed_share", found.packed_share, "", words))
    return tuple(readings)


def _kernel(code: KernelCode) -> Iterator[Evidence]:
    name = code.kernel
    yield _static(f"{name}.code_instructions", len(code.instructions), "instructions", SASS)
    for kind, word in (("global_loads", "load_width"), ("global_stores", "store_width")):
        if (width := code.width_bytes(kind)) is not None:
            source = f"{SASS}: {code.count(kind)} in the text, deeper loops weigh more"
            yield _static(f"{name}.{word}", width, "bytes a thread", source)
    for kind in COUNTED:
        if count := code.count(kind):
            yield _static(f"{name}.{kind}", count, "instructions", SASS)
    if hot := code.hot:
        source = f"{SASS}: deepest loop, {_mix(hot)}"
        yield _static(f"{name}.hot_loop_instructions", len(hot), "instructions", source)
        for word, kinds in (("arithmetic", _ARITHMETIC), ("memory", _MEMORY)):
            share = sum(item.kind in kinds for item in hot) / len(hot)
            yield _static(f"{name}.hot_loop_{word}_share", share, "", SASS)


def _mix(hot: tuple[Instruction, ...]) -> str:
    """The most frequent opcodes of a loop, such as "16 FFMA, 4 LDS"."""
    names = [item.name for item in hot]
    often = sorted(set(names), key=lambda name: (-names.count(name), name))[:4]
    return ", ".join(f"{names.count(name)} {name}" for name in often)


def _static(name: str, value: float, unit: str, source: str) -> Evidence:
    return Evidence(name=name, rank=Rank.STATIC, value=value, unit=unit, source=source)


def _unavailable(why: str) -> Evidence:
    return Evidence(name="code", rank=Rank.UNAVAILABLE, value=None, unit="", source=why)
