"""Is the task on the table worth trusting and worth the search: its floor, and what is doubtful."""

from agents.assistant.sayings import Piece, Saying, Table, Words
from graphs.desk.card import TaskCard, offers, pays_words, short
from graphs.desk.place import Place
from graphs.words import amount, milliseconds, one_line
from tools.nouns import Task


async def audit(place: Place) -> Saying:
    """What tracing and the judge's audit found."""
    task, card = place.now.task, place.now.card
    if task is None and place.folder is not None:
        record = await place.read(place.record)
        task = record.task if record else None
    if task is None:
        return Saying.of("There is no task on the table yet. Attach a file or paste a module.")
    pieces: list[Piece] = [Table(title="audit", columns=("", ""), rows=rows_of(task, card))]
    if not doubts(task):
        pieces.append(
            Words(text="Nothing speaks against it: a faster kernel would prove something.")
        )
    return Saying(pieces=tuple(pieces), offers=offers() if place.now.waiting else ())


def rows_of(task: Task, card: TaskCard | None) -> tuple[tuple[str, str], ...]:
    """Figures and doubts."""
    rows = [("moves", f"{amount(task.bytes_moved, 'B')}, {amount(task.flops, 'FLOP')}")]
    rows += [("holds", amount(memory_bytes(task), "B"))]
    operators = [node.op for node in task.graph.nodes if node.op.startswith("aten.")]
    rows += [("operators", one_line(", ".join(map(short, operators)), 400))]
    if card is not None:
        rows += [("floor", f"{milliseconds(card.floor_ms)} on {one_line(card.device, 60)}")]
        if card.eager_ms is not None:
            best = card.eager_ms / card.floor_ms
            rows += [("to gain", f"at most {best:.1f} times eager PyTorch")]
        rows += [("pays off", pays_words(card))]
    return (*rows, *(("doubt", one_line(text, 300)) for text in doubts(task)))


def doubts(task: Task) -> tuple[str, ...]:
    """Why beating this task might prove little."""
    return task.warnings


def memory_bytes(task: Task) -> int:
    """What inputs, weights and outputs take."""
    tensors = [spec.tensor for spec in task.inputs if spec.tensor is not None]
    sizes = [tensor.size_bytes for tensor in (*tensors, *task.outputs)]
    return sum(sizes) + sum(weight.tensor.size_bytes for weight in task.weights)
