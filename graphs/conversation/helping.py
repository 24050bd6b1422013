"""What can be asked here, what works on this machine, and what to say to unclear words."""

from kernelwright.agents.assistant.types.chat import ChatReply, Offer, Table, Words
from kernelwright.agents.assistant.types.commands import (
    AskDoctor,
    AskForHelp,
    AuditTask,
    CancelTask,
    ChangeTask,
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
    PauseSearch,
    RenameRun,
    ReopenRun,
    ShowCode,
    ShowLedger,
    ShowProfile,
    ShowProgress,
    ShowSteering,
    StartSearch,
    Steer,
    StopSearch,
    Unclear,
)
from kernelwright.graphs.conversation.place import Place
from kernelwright.graphs.run_view.wording import one_line

LABELS: dict[type, str] = {
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
    PauseSearch: "Pause the search",
    RenameRun: "Rename a run",
    ReopenRun: "Open an earlier run",
    ShowCode: "Show the code",
    ShowLedger: "Every idea so far",
    ShowProfile: "Show the profile",
    ShowProgress: "Where does it stand?",
    ShowSteering: "Show my wishes",
    StartSearch: "Begin the search",
    Steer: "Steer the search",
    StopSearch: "Stop the search",
}
HELP = """\
Attach a PyTorch file, or paste a module, and I look for a faster implementation of it.

- **Before**: "is it worth it?", "4096x1024 in float16", "on my L40S", "go", "a quick search"
- **While it runs**: "focus on vectorised loads", "stop trying shared memory", "give idea 3 more \
budget", "show my wishes", "what did you just try?", "pause", "continue", "stop"
- **To understand**: "explain the best", "why is v17 faster than v12?", "show the code of the \
best", "show the profile", "every idea so far", "explain round 2"
- **Afterwards**: "export it", "the report", "go on for 5 minutes", "my runs", "open softmax-...", \
"call this run attention", "delete run softmax-..."

A search goes on when you close the page."""


def help_(place: Place) -> ChatReply:
    """What can be asked here, with what fits now as buttons."""
    return ChatReply.of(HELP, *fitting(place))


def unclear(place: Place, wish: Unclear) -> ChatReply:
    """What was understood of it, as buttons; never an error."""
    guesses = [item for item in wish.guesses if not isinstance(item, Unclear)]
    if not guesses:
        return ChatReply.of("I did not understand that. Perhaps one of these?", *fitting(place))
    offers = tuple(Offer(label=label_of(item), wish=item) for item in guesses[:6])
    # Without words it is no riddle, but what a model proposes and only the person may begin.
    text = "I am not sure what you mean. Is it one of these?" if wish.words else "Shall I?"
    return ChatReply(
        pieces=(Words(text=text),),
        offers=offers,
        question=True,
    )


def label_of(wish: Command) -> str:
    """A wish as the words of a button."""
    match wish:
        case ExplainCandidate() | ShowCode() | ShowProfile():
            name = "the best" if wish.candidate == "best" else one_line(wish.candidate, 20)
            verb = {"explain_candidate": "Explain", "show_code": "Show the code of"}
            return f"{verb.get(wish.kind, 'Show the profile of')} {name}"
        case CompareCandidates() if wish.other:
            return f"Compare {one_line(wish.one, 20)} with {one_line(wish.other, 20)}"
        case Steer():
            return _steer_label(wish)
        case ReopenRun():
            return f"Open {one_line(wish.run, 40)}"
        case _:
            return LABELS.get(type(wish), wish.kind.replace("_", " "))


def fitting(place: Place) -> tuple[Offer, ...]:
    """What a person is likely to want next."""
    wishes: tuple[Command, ...]
    if place.life is not None:
        wishes = (ShowProgress(), PauseSearch(), StopSearch(), ShowLedger())
    elif place.folder is not None:
        wishes = (ShowProgress(), ExplainCandidate(), ContinueSearch(), ExportResult())
    elif place.now.task is not None:
        wishes = (StartSearch(), ChangeTask(), AuditTask(), CancelTask())
    else:
        wishes = (ListRuns(), AskDoctor())
    return tuple(Offer(label=label_of(wish), wish=wish) for wish in wishes)


async def doctor(place: Place) -> ChatReply:
    """What works on this machine."""
    examine = place.settings.examine
    if examine is None:
        return ChatReply.of("This server does not look at its machine.")
    found = await examine()
    rows = tuple(
        (item.subject, item.outcome, one_line(f"{item.words} {item.remedy}", 300)) for item in found
    )
    return ChatReply(pieces=(Table(title="this machine", columns=("", "", ""), rows=rows),))


def _steer_label(wish: Steer) -> str:
    parts = (("Focus on", wish.hints), ("First:", wish.pins), ("Never", wish.bans))
    for words, texts in (*parts, ("Take back", wish.forget)):
        if texts:
            return f"{words} {one_line(', '.join(texts), 50)}"
    return LABELS[Steer]
