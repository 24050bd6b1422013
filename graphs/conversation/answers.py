"""Answers about a search: where it stands, code and profiles, devices, and what can be asked here.

Progress is where the search stands, what was just tried, and who leads. Code, profiles and the
ledger of ideas are shown as they stand in the archive. A person who names a device that is not
present is told what can be done all the same. Help says what can be asked, what works on this
machine, and what to try where words were unclear.
"""

from collections.abc import Sequence

from kernelwright.agents.assistant.types import (
    AskAbout,
    AskDoctor,
    AskForHelp,
    AuditTask,
    CancelTask,
    ChangeTask,
    ChatReply,
    Command,
    CompareCandidates,
    ContinueSearch,
    DeleteRun,
    ExplainCandidate,
    ExplainRound,
    ExportResult,
    GetReport,
    ListRuns,
    LoadTask,
    MeasureAgain,
    Offer,
    PauseSearch,
    PrepareBundle,
    RenameRun,
    ReopenRun,
    SetBudget,
    ShowCode,
    ShowLedger,
    ShowProfile,
    ShowProgress,
    ShowSteering,
    StartSearch,
    Steer,
    StopSearch,
    Topic,
    Unclear,
)
from kernelwright.agents.assistant.types.pieces import Code, Picture, Piece, Table, Words
from kernelwright.graphs.conversation.context import ConversationContext
from kernelwright.graphs.conversation.explaining import bounded, candidate_of, label, picture
from kernelwright.graphs.conversation.steering import AFTER, CONTINUE, NO_RUN, PAUSE, STOP
from kernelwright.graphs.run_view import LEADER_COLUMNS, RunView, leader_rows
from kernelwright.graphs.run_view.events import (
    CandidateJudged,
    CandidateWritten,
    Event,
    IdeasProposed,
    count,
    milliseconds,
    one_line,
    plain,
    quiet,
    ratio,
    seconds,
    waiting_words,
)
from kernelwright.graphs.run_view.figures import LABEL_OF, Figure, in_words
from kernelwright.graphs.run_view.story import Story
from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.languages import language_of
from kernelwright.tools.types import LedgerEntry


def named(gpu: str) -> Hardware | None:
    """The device of that name, as far as profiles know it."""
    try:
        return hardware_profile(gpu)
    except ValueError:
        return None


def other_device(gpu: str, present: Hardware) -> tuple[str, ...]:
    """What to say where the named device is not the present one; nothing where it is."""
    if not gpu:
        return ()
    wanted = named(gpu)
    if wanted is None:
        return (
            f"I know no device called {quiet(gpu, 40)}, so everything below is for "
            f"{quiet(present.name, 60)}, which is what this machine has.",
        )
    if wanted.name == present.name:
        return ()
    return (
        f"You named {wanted.name}; this machine has {quiet(present.name, 60)}. What I can do: "
        f"search and measure here, which tells nothing about times on {wanted.name}; "
        f"or prepare bundles that are carried to a host with {wanted.name} and measured there, "
        "by the button below or "
        f"`kernelwright optimize FILE --executor batch --gpu {quiet(gpu, 40)}`, where kernels "
        "are compiled and checked statically for it beforehand.",
    )


def code(story: Story, command: ShowCode) -> ChatReply:
    """A candidate's kernel and plan."""
    item = candidate_of(story, command.candidate)
    language = language_of(item.candidate).spec.fences[0]
    pieces: list[Piece] = [
        Words(text=f"{label(item)}:"),
        Code(title="kernel", text=plain(item.candidate.kernel), language=language),
        Code(title="plan", text=plain(item.candidate.plan), language="python"),
    ]
    settings = tuple(
        (in_words(one_line(s.name, 40)), str(s.value)) for s in item.candidate.settings
    )
    if settings:
        pieces.append(Table(title="settings", columns=("name", "value"), rows=settings))
    explain = Offer(label="Explain it", wish=ExplainCandidate(candidate=item.candidate.id))
    return ChatReply(pieces=tuple(pieces), offers=(explain,))


def profile(story: Story, command: ShowProfile) -> ChatReply:
    """What the profiler read of a candidate."""
    item = candidate_of(story, command.candidate)
    known = story.profiles.get(item.candidate.id)
    if known is None:
        who = ", ".join(f"v{w.number}" for w in story.written if w.candidate.id in story.profiles)
        hint = f" Profiles exist of {who}." if who else " Nobody was profiled yet."
        return ChatReply.of(f"{label(item)} was not profiled: only leaders are.{hint}")
    readings, _ = known
    rows = tuple(
        (
            one_line(reading.name, 80),
            f"{reading.value:.4g} {one_line(reading.unit, 20)}"
            if reading.value is not None
            else "-",
            reading.rank.value,
            one_line(reading.source, 160),
        )
        for reading in readings
    )
    columns = ("reading", "value", "how it was come by", "source")
    table = Table(title=f"profile of v{item.number}", columns=columns, rows=rows)
    return ChatReply(pieces=(*bounded(story, item.candidate.id), table, picture(story)))


def ledger(story: Story) -> ChatReply:
    """Every idea, what was predicted of it and what it brought."""
    if not story.ideas:
        return ChatReply.of("No idea was proposed yet.")
    entries = {entry.idea: entry for entry in story.ledger}
    rows = tuple(
        (
            str(number),
            str(idea.round),
            one_line(in_words(idea.title), 90),
            milliseconds(idea.predicted_ms),
            *_outcome(entries.get(idea.id)),
        )
        for number, idea in enumerate(story.ideas, start=1)
    )
    columns = ("idea", "round", "", "predicted", "measured", "gain", "correct")
    return ChatReply(pieces=(Table(title="ideas", columns=columns, rows=rows),))


def _outcome(entry: LedgerEntry | None) -> tuple[str, str, str]:
    if entry is None or not entry.candidates:
        return "-", "-", "not tried yet"
    measured = milliseconds(entry.measured_ms)
    return measured, ratio(entry.gain), f"{entry.correct} of {entry.candidates}"


LEADERS = 5


async def show(context: ConversationContext) -> ChatReply:
    """The run as it stands."""
    story = await context.story()
    if story is None:
        if context.now.card is not None:
            return ChatReply.of("The task is loaded, and no search has begun.")
        return ChatReply.of(NO_RUN)
    pieces = [
        Words(text=standing_words(context, story)),
        Words(text=latest_words(story.view, story.events)),
    ]
    shown = [piece for piece in pieces if piece.text]
    table = leaders_of(story.view)
    picture = Picture(what="trajectory", run=story.record.id)
    offers = (PAUSE, STOP) if context.search_session else (CONTINUE, *AFTER)
    return ChatReply(pieces=(*shown, *table, picture), offers=offers)


def standing_words(context: ConversationContext, story: Story) -> str:
    """Whether it runs, how far it is, and what it has reached."""
    search_session = context.search_session
    if search_session is not None:
        doing = {"pausing": "is pausing", "stopping": "is stopping"}.get(
            search_session.state, "is running"
        )
    else:
        doing = "has finished" if story.record.status == "finished" else "is not running"
    view, most = story.view, story.record.profile.rounds
    words = (
        f"The search {doing}: round {view.round} of {most}, "
        f"{count(len(view.standings), 'candidate')} judged, {view.counts.correct} correct."
    )
    if search_session is None and story.summary is not None:
        words += f" Result: {view.headline}."
        if story.summary.stopped_because:
            words += f" It ended because: {one_line(story.summary.stopped_because, 300)}."
    waiting = context.search_manager.ahead(context.home) if search_session is not None else 0
    if waiting:
        words += f" {waiting_words(waiting)}"
    profiled = f" Profiler: {quiet(view.profiler_words, 240)}" if view.profiler_words else ""
    return f"{words} {best_words(view)}{profiled}"


def best_words(view: RunView) -> str:
    """The best against the best baseline, and how closely that was looked at."""
    best, figure = view.best, view.best_figure
    if best is None or figure is None:
        return "Nothing correct yet."
    name = view.best_name[:1].upper() + view.best_name[1:]
    tries = plain_title(view, best.candidate.idea)
    return f"{name}: {best.name} at {figure.words}{_how_sure(figure)}; it tries *{tries}*."


def _how_sure(figure: Figure) -> str:
    """The interval of a comparison pair by pair; without one a ratio is a first impression."""
    if figure.over_best is None or figure.interval is None:
        return ""
    if not figure.baseline:
        return ", by a first, short timing"
    low, high = figure.interval
    return f" ({quiet(figure.baseline)}, 95 % interval {low:.2f} to {high:.2f})"


def latest_words(view: RunView, events: Sequence[Event]) -> str:
    """What was tried last, and how it went."""
    for event in reversed(events):
        if isinstance(event, CandidateJudged):
            return _tried_words(view, event)
        if isinstance(event, CandidateWritten):
            return f"Being judged: *{plain_title(view, event.candidate.idea)}*."
        if isinstance(event, IdeasProposed):
            return f"Being written: {count(len(event.ideas), 'idea')} of round {event.round}."
    return ""


def _tried_words(view: RunView, event: CandidateJudged) -> str:
    found, evaluation = view.candidates.get(event.evaluation.candidate), event.evaluation
    idea = plain_title(view, found.candidate.idea) if found else "an idea"
    verdict, took = evaluation.verdict.words, milliseconds(evaluation.median_ms)
    name = view.name_of(evaluation.candidate)
    label = f" ({LABEL_OF[event.effort]})" if event.effort and evaluation.median_ms else ""
    age = seconds((view.latest - event.at).total_seconds()) if view.latest else "0.0 s"
    ago = "" if age.startswith("0.0") else f", {age} before the latest news"
    return f"Last tried: *{idea}* as {name}: {verdict}, {took}{label}{ago}."


def leaders_of(view: RunView) -> tuple[Table, ...]:
    """The fastest correct candidates."""
    if not view.leaders:
        return ()
    return (Table(title="leaders", columns=LEADER_COLUMNS, rows=leader_rows(view, LEADERS)),)


def plain_title(view: RunView, idea: str) -> str:
    """An idea's title as it may stand in words: no markup of anybody's."""
    return quiet(view.with_names(view.title(idea)))


TOPICS: dict[Topic, str] = {
    "how_it_works": "How does it work?",
    "gradients": "Does it still train?",
    "use": "How do I use it?",
    "baselines": "Compare with torch.compile",
    "safety": "Is it safe?",
    "verified_on": "What was it verified on?",
    "not_faster": "Why is it not faster?",
    "privacy": "Where does my code go?",
}
LABELS: dict[type, str] = {
    AskAbout: "How does it work?",
    AskDoctor: "What works on this machine?",
    AskForHelp: "What can I ask?",
    AuditTask: "Is the task worth it?",
    CancelTask: "Put the task away",
    ChangeTask: "Change the task",
    CompareCandidates: "Compare two candidates",
    ContinueSearch: "Continue the search",
    DeleteRun: "Delete a run",
    ExplainCandidate: "Explain the best",
    ExplainRound: "Explain the last round",
    ExportResult: "Take the result home",
    GetReport: "Make the report",
    ListRuns: "My runs",
    LoadTask: "Load a file",
    MeasureAgain: "Measure again",
    PauseSearch: "Pause the search",
    PrepareBundle: "Make a bundle for another GPU",
    RenameRun: "Rename a run",
    ReopenRun: "Open an earlier run",
    ShowCode: "Show the code",
    ShowLedger: "Every idea so far",
    ShowProfile: "Show the profile",
    ShowProgress: "Where does it stand?",
    SetBudget: "Set a budget",
    ShowSteering: "Show all wishes",
    StartSearch: "Begin the search",
    Steer: "Steer the search",
    StopSearch: "Stop the search",
}
HELP = """\
Attach a PyTorch file, or paste a module, and I look for a faster implementation of it.

- **Before**: "is it worth it?", "4096x1024 in float16", "on my L40S", "go", "a quick search"
- **While it runs**: "focus on vectorised loads", "stop trying shared memory", "give idea 3 more \
budget", "use at most 10000 tokens", "show all wishes", "pause", "ten more seconds", "stop"
- **To understand**: "explain the best", "why is v17 faster than v12?", "show the code of the \
best", "show the profile", "every idea so far", "what did you just try?", "how does it work?"
- **Afterwards**: "how do I use it?", "is it safe?", "does it still train?", "export it", \
"the report", "go on for 5 minutes", "my runs", "open softmax-...", "call this run attention", \
"delete run softmax-..."

A search goes on when you close the page."""


def help_(context: ConversationContext) -> ChatReply:
    """What can be asked here, with what fits now as buttons."""
    return ChatReply.of(HELP, *fitting(context))


def unclear(context: ConversationContext, command: Unclear) -> ChatReply:
    """What was understood of it, as buttons; never an error."""
    guesses = [item for item in command.guesses if not isinstance(item, Unclear)]
    if not guesses:
        return ChatReply.of("I did not understand that. Perhaps one of these?", *fitting(context))
    offers = tuple(Offer(label=label_of(item), wish=item) for item in guesses[:6])
    # Without words it is no riddle, but what a model proposes and only the person may begin.
    text = "I am not sure what you mean. Is it one of these?" if command.words else "Shall I?"
    return ChatReply(
        pieces=(Words(text=text),),
        offers=offers,
        question=True,
    )


def label_of(command: Command) -> str:
    """A command as the words of a button."""
    match command:
        case ExplainCandidate() | ShowCode() | ShowProfile():
            name = "the best" if command.candidate == "best" else one_line(command.candidate, 20)
            verb = {"explain_candidate": "Explain", "show_code": "Show the code of"}
            return f"{verb.get(command.kind, 'Show the profile of')} {name}"
        case CompareCandidates() if command.other:
            return f"Compare {one_line(command.one, 20)} with {one_line(command.other, 20)}"
        case AskAbout():
            return TOPICS[command.topic]
        case Steer():
            return _steer_label(command)
        case ReopenRun():
            return f"Open {one_line(command.run, 40)}"
        case _:
            return LABELS.get(type(command), command.kind.replace("_", " "))


def fitting(context: ConversationContext) -> tuple[Offer, ...]:
    """What a person is likely to want next."""
    commands: tuple[Command, ...]
    if context.search_session is not None:
        commands = (ShowProgress(), PauseSearch(), StopSearch(), ShowLedger())
    elif context.folder is not None:
        commands = (ShowProgress(), ExplainCandidate(), ContinueSearch(), ExportResult())
    elif context.now.task is not None:
        commands = (StartSearch(), ChangeTask(), AuditTask(), CancelTask())
    else:
        commands = (ListRuns(), AskDoctor())
    return tuple(Offer(label=label_of(command), wish=command) for command in commands)


async def doctor(context: ConversationContext) -> ChatReply:
    """What works on this machine."""
    examine = context.settings.examine
    if examine is None:
        return ChatReply.of("This server does not look at its machine.")
    found = await examine()
    rows = tuple(
        (item.subject, item.outcome, one_line(f"{item.words} {item.remedy}", 300)) for item in found
    )
    return ChatReply(pieces=(Table(title="this machine", columns=("", "", ""), rows=rows),))


def _steer_label(command: Steer) -> str:
    parts = (("Focus on", command.hints), ("First:", command.pins), ("Never", command.bans))
    for words, texts in (*parts, ("Take back", command.forget)):
        if texts:
            return f"{words} {one_line(', '.join(texts), 50)}"
    return LABELS[Steer]
