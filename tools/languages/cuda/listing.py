"""The machine code of a cubin line by line: how deep in loops, and from which line of the source.

`nvdisasm` says which line an instruction comes from, that of the kernel itself where it was inlined
from a header. Depth is as `tools.languages.cuda.inspection` finds it. Not covered: how often a line
really runs, which only a profiler can count.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from kernelwright.tools.languages.base.language import CodeLine
from kernelwright.tools.languages.cuda.inspection import (
    NotDisassembledError,
    disassemble,
    read_sass,
)

_FILE = re.compile(r'//## File "([^"]*)", line (\d+)(?: inlined at "([^"]*)", line (\d+))?')
_SECTION = re.compile(r"^\s*\.section\s+\.text\.([^\s,]+)")
_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+([^;]*);")
_KERNEL = "kernel.cu"
_LINES = ("-gi",)


async def listed(cubin: Path) -> tuple[CodeLine, ...] | str:
    """Every instruction of a cubin; one sentence where it cannot be read."""
    try:
        text = await disassemble(cubin, options=_LINES)
    except NotDisassembledError as error:
        return str(error)
    return tuple(read_lines(text))


def read_lines(text: str) -> Iterator[CodeLine]:
    """The instructions of what `nvdisasm -gi` prints; padding is left out."""
    known = {code.kernel: {item.at: item for item in code.instructions} for code in read_sass(text)}
    kernel, line = "", None
    marks: list[str] = []
    for row in text.splitlines():
        if section := _SECTION.match(row):
            kernel, line, marks = section[1], None, []
        elif "//## File" in row:
            marks.append(row)
        elif read := _INSTRUCTION.search(row):
            line, marks = (_of_kernel(marks) if marks else line), []
            found = known.get(kernel, {}).get(int(read[1], 16))
            if found is not None:
                text_of = " ".join(read[2].split())
                yield CodeLine(
                    kernel=kernel, text=text_of, depth=found.depth, kind=found.kind, line=line
                )


def _of_kernel(marks: list[str]) -> int | None:
    """The kernel's own line among the places that an instruction was inlined through."""
    for mark in marks:
        found = _FILE.search(mark)
        if found is None:
            continue
        for file, line in ((found[1], found[2]), (found[3], found[4])):
            if file and Path(file).name == _KERNEL:
                return int(line)
    return None
