"""The machine code of a cubin as evidence, read from its SASS as nvdisasm prints it.

How wide the code loads, which units it uses, what its loops hold. Opcodes are those of NVIDIA's
CUDA Binary Utilities documentation, "Instruction Set Reference". Counts are of instructions in the
text, not of executed ones; a loop's depth stands in for how often. Not covered: what a predicate or
an indirect branch decides at run time.

nvdisasm comes from the pip wheel, the path, or an installed CUDA toolkit. Where the code cannot be
read, that is a reading too, with what would help. Costs half a second, so it is for elites.
"""

import asyncio
import contextlib
import importlib.util
import os
import re
import shutil
import signal
import tempfile
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from kernelwright.tools.languages.cuda.parts import cubins_of
from kernelwright.tools.types import Evidence, Rank, Value

TIMEOUT_S = 20.0
REMEDY = "pip install nvidia-cuda-nvdisasm"


class NotDisassembledError(Exception):
    """There is no machine code to read; the message says why and what would help."""


def find_nvdisasm() -> Path | None:
    """Where nvdisasm is; None where it is not."""
    for folder in _folders():
        if os.access(found := folder / "nvdisasm", os.X_OK):
            return found
    found_on_path = shutil.which("nvdisasm")
    return Path(found_on_path) if found_on_path else None


async def disassemble(
    cubin: Path, timeout_s: float = TIMEOUT_S, options: Sequence[str] = ()
) -> str:
    """The text of an object's code, printed under nvdisasm's further options.

    Raises:
        NotDisassembledError: When nvdisasm is missing, too slow, or does not know the code.
    """
    program = find_nvdisasm()
    if program is None:
        raise NotDisassembledError(f"nvdisasm was not found; {REMEDY}")
    cubins = await asyncio.to_thread(cubins_of, cubin)
    if len(cubins) == 1:
        return await _disassembled(program, cubin, timeout_s, options)
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{number}.cubin") for number in range(len(cubins))]
        for path, one in zip(paths, cubins, strict=True):
            path.write_bytes(one.code)
        texts = [await _disassembled(program, path, timeout_s, options) for path in paths]
    return "\n".join(texts)


async def _disassembled(
    program: Path, cubin: Path, timeout_s: float, options: Sequence[str]
) -> str:
    process = await asyncio.create_subprocess_exec(
        program,
        "-c",
        *options,
        cubin,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(timeout_s):
            out, err = await process.communicate()
    except TimeoutError:
        raise NotDisassembledError(f"nvdisasm took longer than {timeout_s:g} s") from None
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        words = " ".join(err.decode(errors="replace").split())[:200]
        raise NotDisassembledError(f"nvdisasm cannot read the code ({words}); {REMEDY}")
    return out.decode(errors="replace")


def _folders() -> list[Path]:
    """The wheels' folders (nvidia/cu13/bin and its like), then the toolkit's."""
    spec = importlib.util.find_spec("nvidia")
    roots = spec.submodule_search_locations if spec is not None else None
    found = [folder for root in roots or () for folder in sorted(Path(root).glob("cu*/bin"))]
    named = (os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH"))
    homes = [*(Path(name) for name in named if name), Path("/usr/local/cuda")]
    return [*found, *(home / "bin" for home in homes)]


# How much oftener an instruction one loop deeper is taken to run, where trip counts are unknown.
LOOP_WEIGHT = 8.0
_SECTION = re.compile(r"^\s*\.section\s+\.text\.([^\s,]+)")
_LABEL = re.compile(r"^(\.L_x_\d+):")
_INSTRUCTION = re.compile(
    r"/\*(?P<at>[0-9a-f]{4,})\*/\s+(?:@!?U?P[T\d]+\s+)?(?P<opcode>[A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)"
    r"(?P<operands>[^;]*);"
)
_TARGET = re.compile(r"`\((\.L_x_\d+)\)")
_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16, "256": 32}
_FP32 = frozenset({"FADD", "FMUL", "FFMA", "FADD2", "FMUL2", "FFMA2", "FMNMX", "FSEL"})
_FP16 = frozenset({"HADD2", "HMUL2", "HFMA2", "HMNMX2"})
_FP64 = frozenset({"DADD", "DMUL", "DFMA", "DSETP"})
_ATOMICS = frozenset({"ATOM", "ATOMG", "ATOMS", "RED", "REDG", "ATOMIC"})
_KINDS = {
    "LDG": "global_loads",
    "LD": "global_loads",
    "STG": "global_stores",
    "ST": "global_stores",
    "LDL": "local_accesses",
    "STL": "local_accesses",
    "LDS": "shared_accesses",
    "STS": "shared_accesses",
    "LDSM": "shared_accesses",
    "STSM": "shared_accesses",
    "LDGSTS": "async_copies",
    "BAR": "barriers",
    "SHFL": "shuffles",
    "REDUX": "shuffles",
    "MUFU": "special_functions",
}


class Instruction(Value):
    """One line: its address, opcode with modifiers, loop depth, and where a branch goes."""

    at: int
    opcode: str
    target: str = ""
    depth: int = 0

    @property
    def name(self) -> str:
        """The opcode without modifiers."""
        return self.opcode.partition(".")[0]

    @property
    def kind(self) -> str:
        """What it is counted as; "" for what no reading asks for."""
        return _kind(self.name)

    @property
    def width_bytes(self) -> int:
        """Bytes a thread of a load or store; four where no modifier says otherwise."""
        modifiers = self.opcode.split(".")[1:]
        return next((_WIDTHS[word] for word in modifiers if word in _WIDTHS), 4)


class KernelCode(Value):
    """The instructions of one kernel; its trailing padding is left out."""

    kernel: str
    instructions: tuple[Instruction, ...]

    def count(self, kind: str) -> int:
        """How many instructions are of a kind."""
        return sum(item.kind == kind for item in self.instructions)

    def width_bytes(self, kind: str) -> float | None:
        """Mean bytes a thread of the accesses of a kind, loops weighing more; None without any."""
        found = [item for item in self.instructions if item.kind == kind]
        weights = [LOOP_WEIGHT**item.depth for item in found]
        if not found:
            return None
        weighted = (w * item.width_bytes for w, item in zip(weights, found, strict=True))
        return sum(weighted) / sum(weights)

    @property
    def hot(self) -> tuple[Instruction, ...]:
        """The deepest loops together; () where there is no loop."""
        deepest = max((item.depth for item in self.instructions), default=0)
        return tuple(item for item in self.instructions if deepest and item.depth == deepest)


def read_sass(text: str) -> tuple[KernelCode, ...]:
    """Every kernel of what `nvdisasm` prints."""
    return tuple(_kernel(name, lines) for name, lines in _sections(text.splitlines()))


def _sections(lines: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    name, body = "", list[str]()
    for line in lines:
        if line.startswith("//------"):
            if name:
                yield name, body
            name, body = "", []
        elif found := _SECTION.match(line):
            name, body = found[1], []
        elif name:
            body.append(line)
    if name:
        yield name, body


def _kernel(name: str, lines: Iterable[str]) -> KernelCode:
    found, labels = list[Instruction](), dict[str, int]()
    waiting: list[str] = []
    for line in lines:
        if label := _LABEL.match(line):
            waiting.append(label[1])
        elif read := _INSTRUCTION.search(line):
            target = _TARGET.search(read["operands"])
            found.append(
                Instruction(
                    at=int(read["at"], 16),
                    opcode=read["opcode"],
                    target=target[1] if target else "",
                )
            )
            labels |= dict.fromkeys(waiting, found[-1].at)
            waiting = []
    loops = [
        (labels[item.target], item.at)
        for item in found
        # A branch to itself is the trap behind the end of every kernel.
        if item.name == "BRA" and item.target in labels and labels[item.target] < item.at
    ]
    kept = (item for item in found if item.name != "NOP")
    return KernelCode(kernel=name, instructions=tuple(_placed(item, loops) for item in kept))


def _placed(item: Instruction, loops: list[tuple[int, int]]) -> Instruction:
    # Several branches back to one label are one loop.
    around = {start for start, end in loops if start <= item.at <= end}
    return item.model_copy(update={"depth": len(around)}) if around else item


def _kind(name: str) -> str:
    if "MMA" in name:
        return "tensor_instructions"
    if name.startswith(("UBLK", "UTMA")):
        return "bulk_copies"
    if name in _FP32 or name in _FP16:
        return "arithmetic"
    if name in _FP64:
        return "fp64_instructions"
    return "atomics" if name in _ATOMICS else _KINDS.get(name, "")


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
    return tuple(item for code in read_sass(text) for item in _kernel_readings(code))


def _kernel_readings(code: KernelCode) -> Iterator[Evidence]:
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
