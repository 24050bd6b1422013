"""Is the task on the table worth trusting and worth the search: its floor, and what is doubtful."""

import asyncio

from kernelwright.agents.assistant.types.chat import ChatReply, Piece, Table, Words
from kernelwright.graphs.conversation.place import Place
from kernelwright.graphs.conversation.task_card import TaskCard, offers, pays_words
from kernelwright.graphs.run_view.wording import amount, milliseconds, one_line
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.evaluate.messages import DispatchSeen
from kernelwright.tools.types import Dispatched, EnvironmentLacksError, Task

SHOWN_KERNELS = 12
PATIENCE_S = 15.0


async def audit(place: Place) -> ChatReply:
    """What tracing and the judge's audit found."""
    task, card = place.now.task, place.now.card
    if task is None and place.folder is not None:
        record = await place.read(place.record)
        task = record.task if record else None
    if task is None:
        return ChatReply.of("There is no task on the table yet. Attach a file or paste a module.")
    seen = await _seen(place, task)
    pieces: list[Piece] = [Table(title="audit", columns=("", ""), rows=rows_of(task, card, seen))]
    if not any(badge.proves_little for badge in task.badges):
        pieces.append(
            Words(text="Nothing speaks against it: a faster kernel would prove something.")
        )
    return ChatReply(pieces=tuple(pieces), offers=offers() if place.now.waiting else ())


async def _seen(place: Place, task: Task) -> DispatchSeen:
    """What PyTorch runs; a device that is busy for longer than that is not waited for."""

    async def watch(judge: Executor) -> DispatchSeen:
        if not judge.capabilities.watches:
            return DispatchSeen(failure="this device is somewhere else")
        return await judge.dispatch(task)

    try:
        async with asyncio.timeout(PATIENCE_S):
            return await place.lives.ask(place.home, watch)
    except TimeoutError:
        return DispatchSeen(failure="the device is busy with a search; ask again later")
    except EnvironmentLacksError as lack:
        return DispatchSeen(failure=str(lack))


def rows_of(task: Task, card: TaskCard | None, seen: DispatchSeen) -> tuple[tuple[str, str], ...]:
    """Figures, what PyTorch runs, and doubts."""
    rows = [("moves", f"{amount(task.bytes_moved, 'B')}, {amount(task.flops, 'FLOP')}")]
    rows += [("holds", amount(memory_bytes(task), "B"))]
    if seen.needs is not None:
        need, there = seen.needs.judge_bytes, seen.needs.available_bytes
        rows += [("judging takes", f"{amount(need, 'B')}; {amount(there, 'B')} there")]
    rows += [("PyTorch runs", kernel_words(item)) for item in seen.kernels[:SHOWN_KERNELS]]
    if seen.failure:
        rows += [("PyTorch runs", f"not seen: {one_line(seen.failure, 200)}")]
    if card is not None:
        rows += [("floor", f"{milliseconds(card.floor_ms)} on {one_line(card.device, 60)}")]
        if card.eager_ms is not None:
            best = card.eager_ms / card.floor_ms
            rows += [("to gain", f"at most {best:.1f} times eager PyTorch")]
        rows += [("pays off", pays_words(card))]
    rows += [(one_line(b.name.replace("_", " "), 40), one_line(b.reason, 300)) for b in task.badges]
    return (*rows, *(("warning", one_line(text, 300)) for text in task.remarks))


def kernel_words(item: Dispatched) -> str:
    """One kernel or operator, with its time in one forward."""
    times = f", {item.calls} times" if item.calls > 1 else ""
    return f"{milliseconds(item.time_ms)} in {one_line(item.name, 120)}{times}"


def memory_bytes(task: Task) -> int:
    """What inputs, weights and outputs take."""
    tensors = [spec.tensor for spec in task.inputs if spec.tensor is not None]
    sizes = [tensor.size_bytes for tensor in (*tensors, *task.outputs)]
    return sum(sizes) + sum(weight.tensor.size_bytes for weight in task.weights)
