"""Machine code and resources in words: what a kernel takes, its hottest loop, its hottest lines.

Hot is what stands in the deepest loops; nothing here was counted on a device.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from kernelwright.tools.languages import CodeLine
from kernelwright.tools.types import Evidence

_LOOP_LINES = 48
_SOURCE_LINES = 12
_READINGS = 24
# An instruction one loop deeper is taken to run so much oftener.
_OFTENER = 8
_WIDTH = 110
# What ptxas says where it puts waits between asynchronous products.
SERIALISED = "serialized"


def serialised(log: str) -> str:
    """The compiler's sentence on tensor instructions that it made wait for each other, or ""."""
    found = (line.strip() for line in log.splitlines() if SERIALISED in line)
    return next(found, "")


def readings_words(readings: Iterable[Evidence]) -> str:
    """Readings of the code, a line each."""
    known = [item for item in readings if item.value is not None]
    lines = [f"- {item.name} = {item.value:.4g} {item.unit} ({item.source})" for item in known]
    missing = [f"- {item.source}" for item in readings if item.value is None]
    return "\n".join([*lines[:_READINGS], *missing[:2]])


def loop_words(lines: Sequence[CodeLine]) -> str:
    """The deepest loops of each kernel as they stand, shortened."""
    found: list[str] = []
    for kernel, of in _by_kernel(lines).items():
        deepest = max(item.depth for item in of)
        hot = [item for item in of if deepest and item.depth == deepest]
        if not hot:
            found.append(f"{kernel}: {len(of)} instructions, no loop")
            continue
        found.append(f"{kernel}: {len(hot)} instructions in its deepest loop, {len(of)} in all")
        found += [f"    {item.text[:_WIDTH]}{_from(item)}" for item in hot[:_LOOP_LINES]]
        found += [f"    ... {len(hot) - _LOOP_LINES} more"] if len(hot) > _LOOP_LINES else []
    return "\n".join(found)


def hot_lines_words(lines: Sequence[CodeLine], source: str) -> str:
    """The lines of the source that most of the deepest instructions come from."""
    weights: dict[int, float] = defaultdict(float)
    kinds: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for item in lines:
        if item.line is not None:
            weights[item.line] += _OFTENER**item.depth
            kinds[item.line][item.kind or "other"] += 1
    total = sum(weights.values())
    if not total:
        return "the machine code does not say which lines it comes from"
    text = source.splitlines()
    hottest = sorted(weights, key=lambda line: (-weights[line], line))[:_SOURCE_LINES]
    return "\n".join(
        f"line {line}: {weights[line] / total:.0%} ({_mix(kinds[line])}): {_line(text, line)}"
        for line in hottest
    )


def _mix(kinds: dict[str, int]) -> str:
    often = sorted(kinds.items(), key=lambda item: (-item[1], item[0]))[:3]
    return ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in often)


def _line(text: Sequence[str], line: int) -> str:
    return text[line - 1].strip()[:_WIDTH] if 0 < line <= len(text) else "(not of this source)"


def _from(item: CodeLine) -> str:
    return f"  // line {item.line}" if item.line is not None else ""


def _by_kernel(lines: Sequence[CodeLine]) -> dict[str, list[CodeLine]]:
    found: dict[str, list[CodeLine]] = {}
    for item in lines:
        found.setdefault(item.kernel, []).append(item)
    return found
