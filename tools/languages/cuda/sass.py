"""Reads disassembled GPU code (SASS): how wide it loads, which units it uses, what its loops hold.

Opcodes are those of NVIDIA's CUDA Binary Utilities documentation, "Instruction Set Reference".
Counts are of instructions in the text, not of executed ones; a loop's depth stands in for how
often.
Not covered: what a predicate or an indirect branch decides at run time.
"""

import re
from collections.abc import Iterable, Iterator

from kernelwright.tools.types import Value

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
