"""The task card: what was found in a file, and what a search over it would cost and could bring."""

from kernelwright.agents.assistant.types import (
    AuditTask,
    CancelTask,
    ChangeTask,
    ChatReply,
    Offer,
    StartSearch,
)
from kernelwright.agents.assistant.types.pieces import Table, Words
from kernelwright.graphs.conversation.sizes import served_words
from kernelwright.graphs.run_view.events import (
    amount,
    count,
    floor_words,
    milliseconds,
    one_line,
    plain,
    seconds,
    shape,
)
from kernelwright.graphs.search.pace import DEPTHS, Pace
from kernelwright.profiles.load import Hardware, Models, SearchProfile, search_profile
from kernelwright.tools.hardware import floor_ms
from kernelwright.tools.hardware import floor_words as floor_source
from kernelwright.tools.types import Task, Value

NO_OPERATORS = ("input", "weight", "constant", "getitem")


class TaskCard(Value):
    """A task in figures, before anything is spent on it. Times in milliseconds unless named.

    `eager_ms` is None where the device was busy; `operators` are what PyTorch dispatches to;
    `token_limit` is None where no limit holds, `models` empty where the playbook thinks.
    `break_even_calls` is after how many calls the search is paid for at best, None where the
    floor leaves nothing to gain or eager was not timed. `serves` says which other sizes were asked
    for.
    """

    name: str
    file: str
    entry: str
    inputs: tuple[tuple[str, str], ...]
    weights: str
    bytes_moved: int
    flops: int
    device: str
    eager_ms: float | None
    floor_ms: float
    floor_how: str = ""
    operators: tuple[str, ...]
    warnings: tuple[str, ...]
    search: str
    rounds: int
    seconds: float
    models: tuple[str, ...] = ()
    token_limit: int | None = None
    break_even_calls: int | None = None
    gpu: str = ""
    precisions: tuple[str, ...] = ()
    depths: tuple[tuple[str, str], ...] = ()
    serves: str = ""


def card_of(
    task: Task,
    hardware: Hardware,
    eager_ms: float | None,
    profile: SearchProfile,
    models: Models | None,
    gpu: str = "",
    precisions: tuple[str, ...] = (),
    pace: Pace | None = None,
) -> TaskCard:
    """The card of a task on a device; `pace` is what searches took there."""
    pace = pace or Pace(device=hardware.name, kind=hardware.kind)
    whole_s = pace.promise(profile).seconds
    floor = floor_ms(task.bytes_moved, task.flops, hardware)
    return TaskCard(
        name=task.name,
        file=task.path.rsplit("/", 1)[-1],
        entry=task.entry,
        inputs=tuple((spec.name, input_words(task, spec.name)) for spec in task.inputs),
        weights=_weights(task),
        bytes_moved=task.bytes_moved,
        flops=task.flops,
        device=hardware.name,
        eager_ms=eager_ms,
        floor_ms=floor,
        floor_how=floor_source(hardware),
        operators=operators(task),
        warnings=task.warnings,
        search=profile.name,
        rounds=profile.rounds,
        seconds=whole_s,
        models=_names(models),
        token_limit=profile.tokens,
        depths=tuple((name, pace.promise(search_profile(name)).words) for name in DEPTHS),
        break_even_calls=break_even(eager_ms, floor, whole_s),
        gpu=gpu,
        precisions=precisions,
        serves=served_words(task),
    )


def input_words(task: Task, name: str) -> str:
    """Shape and type of an input, or its value when it is no tensor."""
    spec = next(spec for spec in task.inputs if spec.name == name)
    if spec.tensor is None:
        return repr(spec.scalar)
    return f"{shape(spec.tensor.shape)} {spec.tensor.dtype.value}"


def operators(task: Task) -> tuple[str, ...]:
    """What the traced forward is made of, each operator once."""
    every = [node.op for node in task.graph.nodes if node.op not in NO_OPERATORS]
    return tuple(dict.fromkeys(every))


def break_even(eager_ms: float | None, floor: float, search_s: float) -> int | None:
    """After how many calls a search has paid for its own time, if it reached the floor."""
    if eager_ms is None or eager_ms <= floor:
        return None
    return round(search_s * 1000.0 / (eager_ms - floor)) or 1


def table_of(card: TaskCard) -> Table:
    """The card's figures."""
    rows = [("file", f"{plain(card.file)}, {plain(card.entry)}")]
    rows += [(f"input {plain(name)}", words) for name, words in card.inputs]
    rows += [("weights", card.weights)] if card.weights else []
    rows += [
        ("moves", f"{amount(card.bytes_moved, 'B')}, {amount(card.flops, 'FLOP')}"),
        ("device", plain(card.device)),
        ("PyTorch takes", eager_words(card)),
        ("floor", floor_words(card.floor_ms, card.floor_how)),
        ("PyTorch runs", one_line(", ".join(map(short, card.operators)), 300)),
        ("a search costs", cost_words(card)),
        ("pays off", pays_words(card)),
    ]
    rows += [("sizes", plain(card.serves))] if card.serves else []
    rows += [("may use", precision_words(card))] if card.precisions else []
    rows += [("note", one_line(warning, 300)) for warning in card.warnings]
    return Table(title=plain(card.name), columns=("", ""), rows=tuple(rows))


def short(operator: str) -> str:
    """`aten.amax.default` as a person says it."""
    parts = operator.split(".")
    return parts[1] if len(parts) > 1 else operator


def eager_words(card: TaskCard) -> str:
    """What PyTorch takes, and how far that is from the floor."""
    if card.eager_ms is None:
        return "not timed yet, the device is busy with another search"
    return f"{milliseconds(card.eager_ms)}, {card.eager_ms / card.floor_ms:.1f} times the floor"


def cost_words(card: TaskCard) -> str:
    """Time and tokens of a search."""
    depths = ", ".join(f"{name} {words}" for name, words in card.depths)
    time = depths or f"about {seconds(card.seconds)}"  # cards of earlier versions know one depth
    time = f"{time}, certification included ({card.search} unless you say otherwise)"
    if not card.models:
        return f"{time}; no tokens: built-in rules think (the playbook)"
    limit = f"at most {card.token_limit} tokens" if card.token_limit else "no limit on tokens"
    return f"{time}, beside the answers of models; {limit} of {', '.join(card.models)}"


def precision_words(card: TaskCard) -> str:
    """What a kernel may compute in besides the task's own type, and who would."""
    allowed = one_line(", ".join(card.precisions), 80)
    who = "" if card.models else "; the playbook writes no kernels in it, a language model may"
    return f"{allowed}, as long as the results stay within the judge's bounds{who}"


def pays_words(card: TaskCard) -> str:
    """When a search would be paid for."""
    if card.eager_ms is None:
        return "not known before PyTorch was timed"
    if card.break_even_calls is None:
        return "never: PyTorch is at the floor already"
    return f"after about {amount(card.break_even_calls, '').strip()} calls, if it reaches the floor"


def reply_of(card: TaskCard, *before: str) -> ChatReply:
    """The card, and the one question."""
    words = [Words(text=text) for text in before]
    ask = Words(text="Shall I search for something faster?")
    return ChatReply(pieces=(*words, table_of(card), ask), offers=offers(card), question=True)


def offers(card: TaskCard) -> tuple[Offer, ...]:
    """What can be answered to a card; a button for each depth says what it takes to the end."""
    return (
        Offer(label="Go", wish=StartSearch(), hint=f"Begin the {card.search} search"),
        *(
            Offer(
                label=f"{name.capitalize()}: {words}",
                wish=StartSearch.model_validate({"search": name}),
                hint=f"Begin a {name} search; its time holds the certification",
            )
            for name, words in card.depths
        ),
        Offer(label="Change shapes or precision", wish=ChangeTask(), hint="Other inputs, types"),
        Offer(label="Is this worth it?", wish=AuditTask(), hint="Floor and doubts, in detail"),
        Offer(label="Cancel", wish=CancelTask(), hint="Put the task away"),
    )


def with_limits(reply: ChatReply, begin: StartSearch) -> ChatReply:
    """The card with the limits that were named beforehand, which any search over it keeps to."""
    if begin == StartSearch():
        return reply
    named = [f"a {begin.search} search"] if begin.search else []
    named += [f"at most {seconds(begin.seconds)}, certification included"] if begin.seconds else []
    named += [f"at most {count(begin.rounds, 'round')}"] if begin.rounds else []
    named += [f"at most {count(begin.tokens, 'token')}"] if begin.tokens else []
    named += [f"at most ${begin.usd:.2f}"] if begin.usd else []
    words = Words(text=f"As you said: {', '.join(named)}. Go begins it.")
    return reply.model_copy(update={"pieces": (*reply.pieces, words)})


def _weights(task: Task) -> str:
    if not task.weights:
        return ""
    size = sum(weight.tensor.size_bytes for weight in task.weights)
    return f"{len(task.weights)} tensors, {amount(size, 'B')}"


def _names(models: Models | None) -> tuple[str, ...]:
    if models is None:
        return ()
    return tuple(dict.fromkeys(profile.model for profile in models.by_role.values()))
