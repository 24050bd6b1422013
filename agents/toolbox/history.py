"""What a planner may look up: what worked before on such tasks and devices, and the floor's parts.

Runs are alike by the operators of their graphs. Only what earlier runs measured is told, with the
run it was measured in; on another device it is a hint and no figure for this one.
"""

import asyncio
from collections import Counter
from pathlib import Path

from pydantic import BaseModel, Field

from kernelwright.agents.llm.tools import Tool, ToolError, tool
from kernelwright.agents.prompting.cards import milliseconds, roofline_card, shortened
from kernelwright.agents.toolbox.workbench import Workbench
from kernelwright.profiles.load import Hardware
from kernelwright.tools.archive import Archive, RunError
from kernelwright.tools.archive.database import run_folders
from kernelwright.tools.types import Graph, Idea, LedgerEntry, TensorSpec, Value

# Of a home's runs, so many of the latest are looked into; each is a file that is opened.
_RUNS = 60
_TOLD = 5
_IDEAS = 3
_TENSORS = 12
_ALIKE = 0.3
# Below this an idea paid by no more than noise.
_PAID = 1.03


class WhatWorked(BaseModel):
    """A call for what earlier runs found out."""

    words: str = Field(
        default="", description="words that an idea or a task should hold; left out, anything"
    )


class Nothing(BaseModel):
    """A call without arguments."""


class _Earlier(Value):
    """One earlier run, and which of its ideas paid."""

    run: str
    task: str
    hardware: str
    likeness: float
    same_device: bool
    reached: str
    paid: tuple[str, ...]


class HistoryDesk:
    """Tools that look back.

    Args:
        bench: Of the search.
    """

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench

    def tools(self) -> tuple[Tool, ...]:
        """Every tool; both are told of beforehand to a model without tools."""
        return (
            tool(
                "what_worked",
                "What paid in earlier searches over tasks with such operators, on this device "
                "first: ideas with what they brought.",
                WhatWorked,
                self._what_worked,
                beforehand=(WhatWorked(),),
            ),
            tool(
                "floor",
                "What the floor is made of: the bytes of every input, weight and output with "
                "their time at full bandwidth, and the operations.",
                Nothing,
                self._floor,
                beforehand=(Nothing(),),
            ),
        )

    async def _what_worked(self, given: WhatWorked) -> str:
        mine = self._bench.archive.folder
        found = await asyncio.to_thread(
            _earlier, self._bench.home, mine, self._bench.task.graph, self._bench.hardware
        )
        words = given.words.lower().split()
        kept = [item for item in found if _speaks_of(item, words)]
        if not kept:
            raise ToolError("no earlier run here was over a task like this one and found a way")
        kept.sort(key=lambda item: (not item.same_device, -item.likeness, item.run))
        return "\n\n".join(map(_told, kept[:_TOLD]))

    async def _floor(self, given: Nothing) -> str:
        bench, task = self._bench, self._bench.task
        tensors = [(f"input {i.name}", i.tensor) for i in task.inputs if i.tensor is not None]
        tensors += [(f"weight {item.name}", item.tensor) for item in task.weights]
        tensors += [(f"output {n}", spec) for n, spec in enumerate(task.outputs)]
        largest = sorted(tensors, key=lambda item: -item[1].size_bytes)
        lines = [_share(name, spec, bench.hardware) for name, spec in largest[:_TENSORS]]
        if rest := largest[_TENSORS:]:
            size = sum(spec.size_bytes for _, spec in rest)
            lines.append(f"- {len(rest)} smaller ones: {size / 1e6:.4g} MB")
        return "\n".join([roofline_card(task, bench.hardware, bench.floor_ms), "", *lines])


def _earlier(home: Path, mine: Path, graph: Graph, hardware: Hardware) -> list[_Earlier]:
    """Runs over tasks that are alike, the latest first; what cannot be read is left out."""
    folders = sorted(run_folders(home), key=lambda folder: folder.name, reverse=True)
    found: list[_Earlier] = []
    for folder in folders[:_RUNS]:
        if folder == mine:
            continue
        try:
            archive = Archive.open(folder)
        except RunError:
            continue
        try:
            if (item := _of(archive, graph, hardware)) is not None:
                found.append(item)
        finally:
            archive.close()
    return found


def _of(archive: Archive, graph: Graph, hardware: Hardware) -> _Earlier | None:
    record = archive.record()
    likeness = alike(graph, record.task.graph)
    if likeness < _ALIKE:
        return None
    ideas = {idea.id: idea for idea in archive.ideas()}
    gains = [entry for entry in archive.ledger() if (entry.gain or 0.0) >= _PAID]
    gains.sort(key=lambda entry: -(entry.gain or 0.0))
    paid = tuple(_paid(entry, ideas[entry.idea]) for entry in gains if entry.idea in ideas)
    best = record.summary.best if record.summary is not None else None
    if best is None and not paid:
        return None
    reached = "nothing faster than PyTorch"
    if best is not None:
        against = f"{best.speedup_vs_best_baseline:.2f}x the best of PyTorch"
        reached = f"{milliseconds(best.median_ms)}, {against}"
    return _Earlier(
        run=archive.id,
        task=record.task.name,
        hardware=record.hardware.name,
        likeness=likeness,
        same_device=record.hardware.name == hardware.name,
        reached=reached,
        paid=paid[:_IDEAS],
    )


def alike(one: Graph, other: Graph) -> float:
    """The share of operators that two graphs have in common, from 0 to 1."""
    mine, theirs = _operators(one), _operators(other)
    both = sum((mine & theirs).values())
    return both / max(sum((mine | theirs).values()), 1)


def _operators(graph: Graph) -> Counter[str]:
    return Counter(node.op for node in graph.nodes if "." in node.op)


def _paid(entry: LedgerEntry, idea: Idea) -> str:
    brought = f"{entry.gain:.2f} times as fast" if entry.gain else "measured"
    return f"{idea.title}: {brought}. {shortened(' '.join(idea.mechanism.split()), 240)}"


def _speaks_of(item: _Earlier, words: list[str]) -> bool:
    text = " ".join((item.task, *item.paid)).lower()
    return all(word in text for word in words)


def _told(item: _Earlier) -> str:
    device = "this device" if item.same_device else item.hardware
    head = f"{item.task} on {device} ({item.likeness:.0%} of the operators alike): {item.reached}"
    return "\n".join([head, *(f"- {words}" for words in item.paid)])


def _share(name: str, spec: TensorSpec, hardware: Hardware) -> str:
    taken = spec.size_bytes / (hardware.bandwidth_gb_s * 1e6)
    shape = " x ".join(map(str, spec.shape)) or "scalar"
    return f"- {name} ({shape}): {spec.size_bytes / 1e6:.4g} MB, {milliseconds(taken)}"
