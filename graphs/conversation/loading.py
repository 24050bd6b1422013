"""Loads a task: from a file to a task, or a question about what is missing, and audits it.

An audit tells whether the task is worth trusting and worth the search: its floor, and what is
doubtful about it.
"""

import asyncio
import base64
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from kernelwright.agents.assistant.types import CancelTask, ChangeTask, ChatReply, LoadTask, Offer
from kernelwright.agents.assistant.types.pieces import Code, Piece, Table, Words
from kernelwright.graphs.conversation.answers import other_device
from kernelwright.graphs.conversation.background.store import ConversationState, file_name
from kernelwright.graphs.conversation.background.task_card import (
    TaskCard,
    card_of,
    offers,
    pays_words,
    reply_of,
    with_limits,
)
from kernelwright.graphs.conversation.context import ConversationContext
from kernelwright.graphs.conversation.outline import proposals
from kernelwright.graphs.conversation.runs import bundle_offers
from kernelwright.graphs.conversation.sizes import asked_for, inside, resized, typed
from kernelwright.graphs.run_view.events import (
    amount,
    count,
    floor_words,
    milliseconds,
    one_line,
    plain,
    quiet,
)
from kernelwright.graphs.search.pace import pace_of
from kernelwright.profiles.load import Hardware, search_profile
from kernelwright.tools.evaluate.executors.base.executor import HEARER, Executor
from kernelwright.tools.evaluate.messages import DispatchSeen
from kernelwright.tools.tasks.sources.find import SAVED
from kernelwright.tools.types import (
    Dispatched,
    EnvironmentLacksError,
    Refusal,
    Task,
    TracePolicy,
    Value,
)
from kernelwright.tools.types.task import Precision

SHOWN_KERNELS = 12
PATIENCE_S = 15.0


async def audit(context: ConversationContext) -> ChatReply:
    """What tracing and the judge's audit found."""
    task, card = context.now.task, context.now.card
    if task is None and context.folder is not None:
        record = await context.read(context.record)
        task = record.task if record else None
    if task is None:
        return ChatReply.of("There is no task yet. Attach a file or paste a module.")
    seen = await _seen(context, task)
    pieces: list[Piece] = [Table(title="audit", columns=("", ""), rows=rows_of(task, card, seen))]
    if not any(badge.proves_little for badge in task.badges):
        pieces.append(
            Words(text="Nothing speaks against it: a faster kernel would prove something.")
        )
    answers = offers(card) if card and context.now.waiting else ()
    return ChatReply(pieces=tuple(pieces), offers=answers)


async def _seen(context: ConversationContext, task: Task) -> DispatchSeen:
    """What PyTorch runs; a device that is busy for longer than that is not waited for."""

    async def watch(judge: Executor) -> DispatchSeen:
        if not judge.capabilities.watches:
            return DispatchSeen(failure="this device is somewhere else")
        return await judge.dispatch(task)

    try:
        async with asyncio.timeout(PATIENCE_S):
            return await context.search_manager.ask(context.home, watch)
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
    if seen.runs:
        rows += [("timed", runs_words(seen.runs))]
    if seen.failure:
        rows += [("PyTorch runs", f"not seen: {one_line(seen.failure, 200)}")]
    if card is not None:
        rows += [
            ("floor", f"{floor_words(card.floor_ms, card.floor_how)}: {one_line(card.device, 60)}")
        ]
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


def runs_words(runs: int) -> str:
    """How often what PyTorch runs was timed."""
    return f"medians of {count(runs, 'forward')}, warmed up"


def memory_bytes(task: Task) -> int:
    """What inputs, weights and outputs take."""
    tensors = [spec.tensor for spec in task.inputs if spec.tensor is not None]
    sizes = [tensor.size_bytes for tensor in (*tensors, *task.outputs)]
    return sum(sizes) + sum(weight.tensor.size_bytes for weight in task.weights)


# A person's file is text to be read by people; more is no module. A notebook has pictures too.
LONGEST_SOURCE = 400_000
LONGEST_NOTEBOOK = 10_000_000

# How the judge calls what a person allows.
_ALLOWED: dict[str, Precision] = {"tf32": "tf32", "float16": "fp16", "bfloat16": "bf16"}


class Read(Value):
    """What was read of a file; not `audited`, and without a time, where the device was busy."""

    task: Task
    hardware: Hardware
    eager_ms: float | None = None
    audited: bool = True


async def load(context: ConversationContext, command: LoadTask) -> ChatReply:
    """Take a file in and say what it is.

    The search before it, ended or not, is talked about until another one is begun.
    """
    notebook = command.name.lower().endswith(".ipynb")
    if len(command.source) > (LONGEST_NOTEBOOK if notebook else LONGEST_SOURCE):
        return ChatReply.of("That file is too long for a module; send the part to be made faster.")
    if not (command.source.strip() or command.content):
        return ChatReply.of("That file is empty; attach the one with your module.")
    file = await asyncio.to_thread(_put, context, command)
    fresh = ConversationState(
        file=str(file),
        name=command.name,
        gpu=command.gpu or context.now.gpu,
        policy=TracePolicy(load_seconds=context.settings.load_seconds),
        begin=command.begin,
        run=context.now.run,
    )
    return await read_anew(context, fresh)


async def change(context: ConversationContext, command: ChangeTask) -> ChatReply:
    """Read the loaded file once more, with other inputs, entry or precision."""
    if not context.now.file:
        return ChatReply.of("There is no task yet. Attach a file or paste a module.")
    if command == ChangeTask():
        return _how_to_change(context)
    if any(text.lower().endswith(SAVED) for text in command.inputs):
        return ChatReply.of("Saved inputs are read at the command line only; name shapes here.")
    precisions = command.precisions or context.now.precisions
    policy = context.now.policy.model_copy(
        update={
            "inputs": _inputs(context, command),
            "shapes": asked_for(command, context.now.policy.shapes),
            "entry": command.entry or context.now.policy.entry,
            "evaluation": command.evaluation
            if command.evaluation is not None
            else context.now.policy.evaluation,
            "allow": tuple(_ALLOWED[word] for word in precisions if word in _ALLOWED),
        }
    )
    gpu = command.gpu or context.now.gpu
    changed = ConversationState(
        file=context.now.file,
        name=context.now.name,
        gpu=gpu,
        policy=policy,
        precisions=precisions,
        steering=context.now.steering,
        begin=context.now.begin,
        run=context.now.run,
    )
    return await read_anew(context, changed)


def _inputs(context: ConversationContext, command: ChangeTask) -> tuple[str, ...]:
    """What the inputs are from now on; as they were where nothing is said of them."""
    task, before = context.now.task, context.now.policy.inputs
    if command.inputs or task is None:
        return typed(command.inputs, task) or before
    return resized(task, command.sizes) or inside(task, command.shapes) or before


async def cancel(context: ConversationContext) -> ChatReply:
    """Put the task away."""
    if not context.now.waiting:
        return ChatReply.of("All right, nothing was done.")
    await context.store.put(ConversationState(gpu=context.now.gpu, run=context.now.run))
    return ChatReply.of("Put away; nothing was spent. Attach another file whenever you like.")


async def read_anew(context: ConversationContext, fresh: ConversationState) -> ChatReply:
    """Trace what lies there and show the card; a refusal keeps the file for a second try.

    Whoever attached a file waits for this, but not for a device that is busy: then PyTorch's own
    time comes later, onto the card that lies there.
    """
    ends_s = time.monotonic() + context.settings.first_answer_s
    try:
        tell = partial(context.store.remark, asyncio.get_running_loop())
        found = await context.search_manager.ask(
            context.home, lambda judge: _read(judge, fresh, tell)
        )
        if isinstance(found, Read) and not found.audited:
            timing = asyncio.create_task(_run(context, found.task))
            left_s = max(0.0, ends_s - time.monotonic())
            if (await asyncio.wait({timing}, timeout=left_s))[0]:
                found = timing.result()
            else:
                context.store.follow(_amend(context, fresh, timing))
    except EnvironmentLacksError as lack:
        return ChatReply.of(f"I cannot run anything on this machine: {lack}.")
    if isinstance(found, Refusal):
        await context.store.put(fresh)
        return _refused(found, fresh)
    return await _shown(context, fresh, found)


async def _shown(context: ConversationContext, fresh: ConversationState, found: Read) -> ChatReply:
    """The card of what was read, which is the loaded task from now on."""
    card = card_of(
        found.task,
        found.hardware,
        found.eager_ms,
        search_profile(context.settings.search),
        context.settings.models,
        fresh.gpu,
        fresh.precisions,
        pace_of(context.home, found.hardware),
    )
    read = {"task": found.task, "card": card, "audited": found.audited, "waiting": True}
    await context.store.put(fresh.model_copy(update=read))
    reply = reply_of(card, *other_device(fresh.gpu, found.hardware))
    reply = with_limits(reply, fresh.begin)
    elsewhere = bundle_offers(fresh.gpu, found.hardware)
    update = {"offers": (*reply.offers, *elsewhere), "place": _place(fresh)}
    return reply.model_copy(update=update)


def _place(fresh: ConversationState) -> str:
    """Where the card is said, and said anew when a figure comes late."""
    return f"card of {fresh.file}"


async def _amend(
    context: ConversationContext, fresh: ConversationState, timing: "asyncio.Task[Read | Refusal]"
) -> ChatReply | None:
    """The card again, when the device had time; None where something else lies there by now."""
    found = await timing
    async with context.store.turn:
        now = context.now
        if not now.waiting or now.audited or (now.file, now.policy) != (fresh.file, fresh.policy):
            return None
        if isinstance(found, Refusal):
            await context.store.put(fresh)
            return _refused(found, fresh).model_copy(update={"place": _place(fresh)})
        said = {"steering": now.steering, "run": now.run, "budget": now.budget}
        return await _shown(context, fresh.model_copy(update=said), found)


async def _read(
    judge: Executor, fresh: ConversationState, tell: Callable[[str], None]
) -> Read | Refusal:
    """What can be known without the device's time; all of it where reading takes that anyway."""
    HEARER.set(tell)
    path = Path(fresh.file)
    if not judge.capabilities.reads_apart:
        task = await judge.trace(path, fresh.policy)
        return task if isinstance(task, Refusal) else await _timed(judge, task)
    judge.warm()
    task = await judge.read(path, fresh.policy)
    if isinstance(task, Refusal):
        return task
    return Read(task=task, hardware=await judge.hardware(), audited=False)


async def _run(context: ConversationContext, task: Task) -> Read | Refusal:
    """Run the module on the device: does that prove anything, and how long does it take?"""

    async def run(judge: Executor) -> Read | Refusal:
        audited = await judge.audit(task)
        return audited if isinstance(audited, Refusal) else await _timed(judge, audited)

    return await context.search_manager.ask(context.home, run)


async def _timed(judge: Executor, task: Task) -> Read | Refusal:
    measured = await judge.baselines(task, eager_only=True)
    if isinstance(measured, Refusal):
        return measured
    eager = measured.named("eager")
    took = eager.measurement.median_ms if eager and eager.measurement else None
    return Read(task=task, hardware=await judge.hardware(), eager_ms=took)


def _put(context: ConversationContext, command: LoadTask) -> Path:
    folder = context.home / "files" / f"{time.time_ns():x}"
    folder.mkdir(parents=True)
    for item in command.beside:
        _write(folder / file_name(item.name), item.text, item.content)
    path = folder / file_name(command.name)
    _write(path, command.source, command.content)
    return path


def _write(path: Path, text: str, content: str) -> None:
    if content:
        path.write_bytes(base64.b64decode(content))
    else:
        path.write_text(text, encoding="utf-8")


def _refused(refusal: Refusal, fresh: ConversationState) -> ChatReply:
    """Why it is no task, with what might make it one."""
    offers = proposals(Path(fresh.file), fresh.policy, refusal)
    why: tuple[Words | Code, ...] = (Words(text=quiet(refusal.sentence, 600)),)
    if refusal.detail:
        why += (Code(title="what happened", text=plain(refusal.detail[-4000:])),)
    if not offers:
        return ChatReply(pieces=why)
    ask = Words(text="Shall I take one of these? You can also write another.")
    cancelling = Offer(label="Cancel", wish=CancelTask())
    return ChatReply(pieces=(*why, ask), offers=(*offers, cancelling), question=True)


def _how_to_change(context: ConversationContext) -> ChatReply:
    text = (
        "Tell me the shapes and types, one for each input, such as `4096x1024:float16`; "
        "or which class or function of the file is meant; or that TF32, half precision or "
        "bfloat16 may be used."
    )
    task = context.now.task
    if task is None:
        return ChatReply.of(text)
    return ChatReply(
        pieces=(Words(text=text),), offers=tuple(_variants(context, task)), question=True
    )


def _variants(context: ConversationContext, task: Task) -> list[Offer]:
    """The task's own inputs in half precision, and four times as large."""
    found: list[Offer] = []
    for label, dtype, times in (("Half precision", "float16", 1), ("Four times the rows", "", 4)):
        inputs = []
        for spec in task.inputs:
            if spec.tensor is None or not spec.tensor.shape:
                return found
            first, *rest = spec.tensor.shape
            shape = "x".join(map(str, (first * times, *rest)))
            kind = spec.tensor.dtype.value
            inputs.append(f"{shape}:{dtype if dtype and kind.startswith('float') else kind}")
        found.append(
            Offer(label=label, wish=ChangeTask(inputs=tuple(inputs)), hint=", ".join(inputs))
        )
    return found
