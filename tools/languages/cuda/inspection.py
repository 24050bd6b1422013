"""The machine code of a cubin as evidence, read from its SASS.

Where the code cannot be read, that is a reading too, with what would help. Costs half a second,
so it is for elites.
"""

from collections.abc import Iterator
from pathlib import Path

from kernelwright.tools.languages.cuda.disassembler import NotDisassembledError, disassemble
from kernelwright.tools.languages.cuda.sass import Instruction, KernelCode, read_sass
from kernelwright.tools.types import Evidence, Rank

SASS = "SASS"
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


async def cubin_evidence(cubin: Path) -> tuple[Evidence, ...]:
    """What the kernels of a cubin consist of."""
    try:
        text = await disassemble(cubin)
    except NotDisassembledError as error:
        return (unread(str(error)),)
    return tuple(item for code in read_sass(text) for item in _kernel(code))


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


def unread(why: str) -> Evidence:
    """Why there is nothing to read, as a reading."""
    return Evidence(name="code", rank=Rank.UNAVAILABLE, value=None, unit="", source=why)
