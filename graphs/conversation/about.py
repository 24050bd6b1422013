"""Answers the usual questions about a result from its run's facts, without a language model.

How it works, whether it still trains, how it is used, how it compares with torch.compile, whether
it is safe, on what it was verified, why it is not faster, where the person's code goes. Figures are
those of the archive, said as everywhere else; where there is no result yet, that is said.
"""

from kernelwright.agents.assistant.types import (
    AskAbout,
    AuditTask,
    ChatReply,
    Command,
    ContinueSearch,
    ExplainCandidate,
    ExportResult,
    Offer,
    ShowLedger,
    ShowProfile,
    ShowProgress,
    Topic,
)
from kernelwright.agents.assistant.types.pieces import Code, Piece, Table, Words
from kernelwright.agents.shared.facts import Steering
from kernelwright.graphs.conversation.answers import fitting, label_of
from kernelwright.graphs.conversation.background.store import STEERING
from kernelwright.graphs.conversation.background.task_card import input_words
from kernelwright.graphs.conversation.context import ConversationContext
from kernelwright.graphs.conversation.explaining import against, judged_rows, label
from kernelwright.graphs.run_view.events import (
    count,
    milliseconds,
    one_line,
    percent,
    quiet,
    ratio,
    seconds,
)
from kernelwright.graphs.run_view.story import Story
from kernelwright.graphs.search.agent_set import models_of
from kernelwright.profiles.load import Models
from kernelwright.tools.archive import Archive, Standing
from kernelwright.tools.evaluate.findings import verified
from kernelwright.tools.export import package_name, snippet
from kernelwright.tools.types import Task, Verdict
from kernelwright.tools.types.speed_words import NOT_CERTIFIED, summary_words

NOTHING_YET = "There is no correct candidate yet, so there is no result to speak of."
FALLBACK = (
    "Every call that is not like the verified ones (another shape, type, layout or device, "
    "autocast, or one that records gradients) runs your own forward, at its own speed; `COUNTS` "
    "in the exported module says how often and why."
)


async def about(context: ConversationContext, command: AskAbout) -> ChatReply:
    """Answer one usual question."""
    story = await context.story()
    if command.topic == "how_it_works":
        return _how_it_works(context, story)
    if command.topic == "privacy":
        return await _privacy(context, story)
    if story is None:
        return _beforehand(context, command.topic)
    return _ANSWERS[command.topic](story)


def _offers(*commands: Command) -> tuple[Offer, ...]:
    return tuple(Offer(label=label_of(command), wish=command) for command in commands)


TAKE = Offer(label="Take it home", wish=ExportResult())


def _how_it_works(context: ConversationContext, story: Story | None) -> ChatReply:
    models = _names(context.settings.models)
    who = f"language models ({', '.join(models)})" if models else "built-in rules"
    words = (
        "I read your PyTorch module and trace what it computes. Then rounds follow: a planner "
        f"proposes ideas, a coder writes each as a kernel, by {who}. A judge runs every kernel in "
        "a sandbox, compares it with your module evaluated in float64 on several kinds of inputs, "
        "and times it in turns with PyTorch and torch.compile. A profiler and a critic say what "
        "the next round should try. In the end the best ones are certified: verified and timed "
        "again in a fresh process. What you take home is a drop-in module that runs your own "
        "forward wherever the kernel was not verified."
    )
    now = f" Here: {_standing(story)}" if story is not None else ""
    return ChatReply.of(words + now, *fitting(context))


def _standing(story: Story) -> str:
    view, task = story.view, quiet(story.record.task.name, 60)
    done = f"{count(len(view.standings), 'candidate')} judged in {count(view.round, 'round')}"
    if story.summary is not None:
        return f"{task}, {done}; {view.headline}."
    return f"{task}, {done} so far."


def _beforehand(context: ConversationContext, topic: Topic) -> ChatReply:
    """What can be said before there is a run."""
    if topic == "not_faster":
        return ChatReply.of(
            "No search was run yet. The floor says what there is to gain.", *_offers(AuditTask())
        )
    words = {
        "gradients": "A result has no backward: where gradients are recorded, your own forward "
        "runs, so training works as before, at its own speed.",
        "use": "The result will be a folder that Python imports: a module with your module's "
        "constructor, parameters and state dict, to put in its place.",
        "baselines": "Every result is timed in turns with eager PyTorch and torch.compile, and on "
        "a GPU with a CUDA graph too; the figure is the one against the fastest of them.",
        "safety": "Every result is compared with your module in float64 on several kinds of "
        "inputs, and says what was not verified.",
        "verified_on": "A result is verified for the inputs on the card, on this machine's device.",
    }[topic]
    also = f" {FALLBACK}" if topic in {"safety", "verified_on"} else ""
    return ChatReply.of(f"There is no result yet. {words}{also}", *fitting(context))


def _best(story: Story) -> Standing | None:
    best = story.best
    return best if best is not None and best.evaluation.verdict is Verdict.CORRECT else None


def _gradients(story: Story) -> ChatReply:
    summary = story.record.summary
    found = summary.training if summary is not None else None
    if found is not None and found.speedup is not None:
        chosen = (
            "they run"
            if found.pays
            else "your own forward and backward run, as a step is not certain to gain enough"
        )
        said = (
            f"Yes, with kernels for the gradients too; {found.words}. Where autograd records, "
            f"{chosen}; `GRADIENTS` in the export's `module.py` says which, and `verify.py` "
            "compares the gradients with float64 and times whole steps."
        )
        return ChatReply.of(said, TAKE)
    mode = "training" if story.record.task.training else "evaluation"
    words = (
        "Yes, it still trains, but not faster: no backward was written. Where autograd records "
        "gradients, the exported module runs your own forward with your own backward, so training "
        "and fine-tuning work as before, at the old speed. The kernels run where nothing is "
        f"recorded: under `torch.no_grad()` or `torch.inference_mode()`. They were verified in "
        f"{mode} mode; parameters and state dict are your module's."
    )
    return ChatReply.of(words, TAKE)


def _use(story: Story) -> ChatReply:
    best, task = _best(story), story.record.task
    if best is None:
        return ChatReply.of(NOTHING_YET)
    words = (
        f"Take {label(best)} home as a zip file, and put its folder `{package_name(task)}` beside "
        "your code. It needs PyTorch and a compiler for its kernels, not Kernelwright; they are "
        "compiled at the first call."
    )
    pieces = (Words(text=words), usage(story), Words(text=INSIDE))
    return ChatReply(pieces=pieces, offers=(TAKE, *_offers(AskAbout(topic="safety"))))


INSIDE = (
    "Inside a larger model, assign it where the old module stood: `net.block.layer = model`. "
    "`python verify.py` in the folder verifies and times it on the machine where you use it."
)


def usage(story: Story) -> Code:
    """The Python that imports this run's result and calls it."""
    task, hardware = story.record.task, story.record.hardware
    return Code(title="how to use it", text=snippet(task, hardware), language="python")


def _baselines(story: Story) -> ChatReply:
    best, known = _best(story), story.baselines
    rows = [
        (
            item.name,
            milliseconds(item.measurement.median_ms) if item.measurement else "-",
            "" if item.measurement else one_line(item.failure, 200),
        )
        for item in (known.items if known else ())
    ]
    if best is None:
        pieces: tuple[Piece, ...] = (Words(text=NOTHING_YET), _table("PyTorch's own ways", rows))
        return ChatReply(pieces=pieces if rows else pieces[:1])
    compared = {item.baseline: against(item) for item in best.evaluation.comparisons}
    rows = [(name, took, compared.get(name, why)) for name, took, why in rows]
    rows += [
        (name, "", text)
        for name, text in compared.items()
        if name not in dict.fromkeys(row[0] for row in rows)
    ]
    words = f"{label(best)} takes {milliseconds(best.evaluation.median_ms)}."
    if not compared:
        words += " It was only timed briefly so far, not yet pair by pair with a baseline."
    elif best.effort != "certify":
        words += " It is not certified yet: that happens at the end of the search."
    words += (
        " Inside a model of yours that is compiled with torch.compile, the kernel is one operator "
        "of its graph."
    )
    return ChatReply(
        pieces=(Words(text=words), _table("beside PyTorch's own ways", rows)),
        offers=_offers(ExplainCandidate(candidate=label(best)), ShowProgress()),
    )


def _table(title: str, rows: list[tuple[str, str, str]]) -> Table:
    return Table(title=title, columns=("", "time", "the result against it"), rows=tuple(rows))


def _safety(story: Story) -> ChatReply:
    best = _best(story)
    if best is None:
        return ChatReply.of(NOTHING_YET)
    certified = (
        "certified: verified again in a fresh process at the end"
        if best.effort == "certify"
        else "not certified, which happens at the end of a search"
    )
    words = (
        f"As safe as what was verified: {label(best)} is {certified}. Its error may be at most 4 "
        "times PyTorch's own against float64, on every kind of inputs that was tried. "
        f"{FALLBACK} {_gaps(best)}Before you rely on it, run `python verify.py` of the export on "
        "the machine where it is used."
    )
    rows = judged_rows(best)
    table = Table(title="what is known of it", columns=("", ""), rows=rows)
    return ChatReply(
        pieces=(Words(text=words), table),
        offers=(TAKE, *_offers(AskAbout(topic="verified_on"))),
    )


def _gaps(best: Standing) -> str:
    missing = best.evaluation.verification.not_verified
    return f"Not verified: {one_line(', '.join(missing), 300)}. " if missing else ""


def _verified_on(story: Story) -> ChatReply:
    best, task = _best(story), story.record.task
    if best is None:
        return ChatReply.of(NOTHING_YET)
    rows = [
        ("device", one_line(story.record.hardware.name, 80)),
        *_input_rows(task),
        ("mode", "training" if task.training else "evaluation"),
        *((name, one_line(words, 300)) for name, words in verified(best.evaluation.verification)),
        ("kinds of inputs", one_line(", ".join(best.evaluation.verification.distributions), 300)),
        ("not verified", one_line("; ".join(best.evaluation.verification.not_verified), 400)),
    ]
    table = Table(
        title=f"what {label(best)} was verified on",
        columns=("", ""),
        rows=tuple((name, words) for name, words in rows if words),
    )
    return ChatReply(
        pieces=(table, Words(text=FALLBACK)),
        offers=(TAKE, *_offers(AskAbout(topic="safety"))),
    )


def _input_rows(task: Task) -> list[tuple[str, str]]:
    return [
        (f"input {one_line(spec.name, 40)}", one_line(input_words(task, spec.name), 100))
        for spec in task.inputs
    ]


def _not_faster(story: Story) -> ChatReply:
    best = _best(story)
    if best is None:
        found = story.view.counts
        words = f"None of {count(found.written, 'candidate')} is correct so far."
    else:
        words = claim_words(best)
    reasons = [words, *_why_no_more(story, best)]
    offers = _offers(ContinueSearch(), ShowLedger(), *((ShowProfile(),) if best else ()))
    return ChatReply.of(" ".join(reasons), *offers)


def claim_words(best: Standing) -> str:
    """What may be claimed of a correct candidate's speed, beside its hardest rival, and why."""
    hardest, claim = best.evaluation.hardest, best.evaluation.claim
    if hardest is None or claim is None:
        return f"{label(best)} was only timed briefly; nothing can be said pair by pair yet."
    rival = f"{quiet(hardest.baseline)}, its hardest rival"
    if claim.outcome == "faster":
        if best.effort != "certify":
            return f"Against {rival}, {label(best)} has {against(hardest)}, but {NOT_CERTIFIED}."
        return f"It is faster: against {rival}, {against(hardest)}."
    why = f"What keeps it from being called faster: {claim.words}."
    return f"Against {rival}, {label(best)} has {against(hardest)}. {why}"


def _why_no_more(story: Story, best: Standing | None) -> list[str]:
    """What the run knows of what there was to gain, and why it ended."""
    said, floor_ms, rival_ms = [], story.floor_ms, story.view.best_baseline_ms
    if floor_ms and rival_ms:
        said.append(
            f"The fastest of PyTorch's own ways takes {milliseconds(rival_ms)}, and the floor of "
            f"this device is {milliseconds(floor_ms)}: at most {ratio(rival_ms / floor_ms)} was "
            "there to gain."
        )
    took = best.evaluation.median_ms if best else None
    if floor_ms and took:
        said.append(f"The best reaches {percent(floor_ms / took)} of the floor.")
    view, profile = story.view, story.record.profile
    said.append(
        f"The search planned {count(view.round, 'round')} of {profile.rounds} and judged "
        f"{count(len(view.standings), 'candidate')} within {seconds(profile.seconds)}."
    )
    if view.stopped_because:
        said.append(f"It ended because {one_line(view.stopped_because, 200).rstrip('.')}.")
    return said


async def _privacy(context: ConversationContext, story: Story | None) -> ChatReply:
    models = context.settings.models
    if story is not None:
        models = await context.read(lambda: _models(story)) or models
    where = (
        "Your file is kept in your folder on the machine that runs this chat, and runs there in "
        "worker processes without a network where the sandbox allows it."
    )
    if models is None:
        return ChatReply.of(f"{where} No language model takes part, so nothing is sent anywhere.")
    told = ", ".join(_names(models))
    words = f"{where} What models are asked, your module's code included, goes to {told}"
    at = ", ".join(
        dict.fromkeys(item.base_url for item in models.by_role.values() if item.base_url)
    )
    return ChatReply.of(f"{words}{f' at `{at}`' if at else ''}.")


def _models(story: Story) -> Models | None:
    archive = Archive.open(story.folder)
    try:
        return models_of(archive)
    finally:
        archive.close()


def _names(models: Models | None) -> tuple[str, ...]:
    if models is None:
        return ()
    return tuple(
        dict.fromkeys(profile.model or profile.name for profile in models.by_role.values())
    )


_ANSWERS = {
    "gradients": _gradients,
    "use": _use,
    "baselines": _baselines,
    "safety": _safety,
    "verified_on": _verified_on,
    "not_faster": _not_faster,
}


def facts_of(archive: Archive) -> tuple[str, ...]:
    """What a model should know of a run before it asks anything: device, limits, result, wishes."""
    record = archive.record()
    profile, summary = record.profile, record.summary
    inputs = ", ".join(
        f"{spec.name} {input_words(record.task, spec.name)}" for spec in record.task.inputs
    )
    who = ", ".join(_names(models_of(archive))) or "the built-in rules"
    found = [
        f"Device: {record.hardware.name}. Inputs: {one_line(inputs, 200)}.",
        f"Search: {profile.name}, up to {count(profile.rounds, 'round')} and "
        f"{seconds(profile.seconds)}; {who} think.",
    ]
    if summary is not None:
        came = summary_words(summary.status, summary.best)
        found.append(f"Result: {came}; {one_line(summary.stopped_because, 200)}.")
    if summary is not None and (best := summary.best):
        low, high = best.ci95
        found.append(
            f"Best: {best.candidate} at {milliseconds(best.median_ms)}, "
            f"{ratio(best.speedup_vs_best_baseline)} of the best baseline "
            f"(95 % interval {low:.2f} to {high:.2f}), precision {best.precision or 'not stated'}."
        )
    kept = archive.term(STEERING)
    steering = Steering.model_validate_json(kept) if kept else Steering()
    for name, texts in (
        ("first", steering.pins),
        ("more of", steering.hints),
        ("never", steering.bans),
    ):
        if texts:
            found.append(f"Wish in force, {name}: {one_line(', '.join(texts), 300)}.")
    return tuple(found)
