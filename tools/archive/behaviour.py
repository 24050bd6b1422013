"""How a candidate behaves, in three words: what it does to memory, to arithmetic, to the machine.

What was measured goes before what the writer declared: registers and static shared memory come
from the compiler's report, dynamic shared memory from the launches, and only where a language has
no such report does the declared label stand alone. Nothing here reads source text.
"""

from functools import lru_cache

from kernelwright.tools.types import Candidate, CompileReport, Evaluation, LaunchShape, Value
from kernelwright.tools.types.launch import dynamic_bytes

UNKNOWN = "unknown"
# Registers a thread at which occupancy changes on every NVIDIA device of the last ten years.
REGISTER_STEPS = (32, 64, 128, 255)
SHARED_STEPS_BYTES = (0, 1024, 16384, 49152)


class Behaviour(Value):
    """A cell of the quality-diversity archive."""

    memory: str
    compute: str
    parallel: str


def declared(candidate: Candidate) -> dict[str, str]:
    """The `name=value` words that the writer of a candidate gave it."""
    return _words(candidate.strategies)


def behaviour(candidate: Candidate, evaluation: Evaluation) -> Behaviour:
    """The cell that an evaluated candidate falls into."""
    return _cell(candidate.strategies, evaluation.reports, evaluation.launches)


@lru_cache(maxsize=4096)
def _cell(
    strategies: tuple[str, ...],
    reports: tuple[CompileReport, ...],
    launches: tuple[LaunchShape, ...],
) -> Behaviour:
    """Asked again and again for the same candidates, in every round of a long search."""
    words, measured = _words(strategies), outcomes(reports, launches)
    memory = [words.get("memory", UNKNOWN)]
    if measured.get("shared", "<= 0") != "<= 0":
        memory.append(f"shared {measured['shared']} bytes")
    if measured.get("spills") == "yes":
        memory.append("spills")
    compute = [words.get("compute", UNKNOWN)]
    if "registers" in measured:
        compute.append(f"registers {measured['registers']}")
    return Behaviour(
        memory=", ".join(memory),
        compute=", ".join(compute),
        parallel=words.get("parallel", UNKNOWN),
    )


def outcomes(
    reports: tuple[CompileReport, ...], launches: tuple[LaunchShape, ...] = ()
) -> dict[str, str]:
    """What a candidate cost, in coarse steps, so that near-equal kernels compare as equal.

    Shared memory is static and dynamic together, of the kernel that takes most.
    """
    found = {}
    registers = [report.registers for report in reports if report.registers is not None]
    if registers:
        found["registers"] = _step(max(registers), REGISTER_STEPS)
    spills = [report.spill_bytes for report in reports if report.spill_bytes is not None]
    if spills:
        found["spills"] = "yes" if max(spills) else "no"
    shared = [
        report.shared_bytes + dynamic_bytes(report.kernel, launches)
        for report in reports
        if report.shared_bytes is not None
    ]
    if shared:
        found["shared"] = _step(max(shared), SHARED_STEPS_BYTES)
    return found


def _words(strategies: tuple[str, ...]) -> dict[str, str]:
    return dict(text.split("=", 1) for text in strategies if "=" in text)


def _step(value: int, limits: tuple[int, ...]) -> str:
    fits = next((limit for limit in limits if value <= limit), None)
    return f"<= {fits}" if fits is not None else f"> {limits[-1]}"
