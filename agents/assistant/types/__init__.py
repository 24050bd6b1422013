"""The assistant's types: a message and its context, commands, replies, and its Protocol.

The same commands come from the rules, from a model's tool calls (where a class's docstring is what
the model reads of it) and from buttons; they are carried out in `graphs.conversation`. Candidates
are named by id, by its beginning, as `v17` for the seventeenth that was written, or as `best 2`.
A reply is made of pieces (words, code, tables, pictures, downloads) and offers, which become
buttons; how they look is the UI's business.
"""

from typing import Annotated, Literal, Protocol

from pydantic import Field, TypeAdapter

from kernelwright.agents.assistant.types.pieces import Piece, Words
from kernelwright.tools.types import Value


class StartSearch(Value):
    """Begin the search over the loaded task."""

    kind: Literal["start_search"] = "start_search"
    search: Literal["quick", "standard", "deep"] | None = None
    rounds: int | None = None
    seconds: float | None = None
    tokens: int | None = None
    usd: float | None = None


class Attachment(Value):
    """A file that came with a message: its text, or of an archive its content in base64."""

    name: str
    text: str
    content: str = ""


class LoadTask(Value):
    """Read a PyTorch file (a module and its inputs) and say what the task is.

    `content` is an archive's, in base64, instead of a source; `beside` are files that came with it.
    `begin` is what was said of the search to come, which keeps to it.
    """

    kind: Literal["load_task"] = "load_task"
    source: str
    name: str = "pasted.py"
    content: str = ""
    beside: tuple[Attachment, ...] = ()
    gpu: str = ""
    begin: StartSearch = StartSearch()


class ChangeTask(Value):
    """Change the loaded task: its inputs, entry, precision, or the GPU it is for.

    Inputs are written `64x128:float32`, one for each input; without a type (`64x128`) it stays as
    it is. Sizes change one dimension alone: `columns=4096` the last one, `rows=8192` the first.
    Precisions are `float16`, `bfloat16` or `tf32`, beyond the task's own. `evaluation` is true for
    evaluation mode, where dropout draws nothing, and false for the mode that the file leaves the
    module in. `shapes` are sizes that the result shall serve beside the example's: `batch=1..64`,
    where `batch` is the first dimension, or `none` to take that back. What is left empty stays as
    it is.
    """

    kind: Literal["change_task"] = "change_task"
    inputs: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()
    entry: str = ""
    precisions: tuple[str, ...] = ()
    gpu: str = ""
    evaluation: bool | None = None
    shapes: str = ""


class AuditTask(Value):
    """Say whether beating the loaded task would prove anything, and what its floor is."""

    kind: Literal["audit_task"] = "audit_task"


class PrepareBundle(Value):
    """Make a bundle of files by which the loaded task is searched for on a GPU elsewhere."""

    kind: Literal["prepare_bundle"] = "prepare_bundle"
    gpu: str = ""


class CancelTask(Value):
    """Put the loaded task away without searching."""

    kind: Literal["cancel_task"] = "cancel_task"


class PauseSearch(Value):
    """Pause the running search at the end of its present step."""

    kind: Literal["pause_search"] = "pause_search"


class ContinueSearch(Value):
    """Go on with a paused, stopped or finished search, perhaps with more rounds or seconds."""

    kind: Literal["continue_search"] = "continue_search"
    more_rounds: int = 0
    more_seconds: float = 0.0


class MeasureAgain(Value):
    """Certify the result of a search that is over again."""

    kind: Literal["measure_again"] = "measure_again"


class StopSearch(Value):
    """End the running search now, with the best so far."""

    kind: Literal["stop_search"] = "stop_search"


class Steer(Value):
    """Tell the running search where to look.

    Hints tip the balance, pins come first, bans never come; each is a strategy, a technique or an
    idea in a few words (`vectorised loads`, `shared memory`, `idea 3`). `forget` takes earlier
    ones back, whichever they were; `everything` takes back all.
    """

    kind: Literal["steer"] = "steer"
    hints: tuple[str, ...] = ()
    pins: tuple[str, ...] = ()
    bans: tuple[str, ...] = ()
    forget: tuple[str, ...] = ()


BudgetName = Literal["rounds", "seconds", "tokens", "usd"]


class SetBudget(Value):
    """Cap what the search may spend: rounds, seconds, tokens of language models, US dollars.

    Caps are of the whole search; `more` says that they come on top of what it has, `from_now` that
    they are counted from now (0 rounds: the present round is the last). `lift` takes caps back, by
    their names.
    """

    kind: Literal["set_budget"] = "set_budget"
    rounds: int | None = None
    seconds: float | None = None
    tokens: int | None = None
    usd: float | None = None
    more: bool = False
    from_now: bool = False
    lift: tuple[BudgetName, ...] = ()


class ShowSteering(Value):
    """Show the wishes in force: hints, pins, bans, allowed precisions and budgets."""

    kind: Literal["show_steering"] = "show_steering"


class ExplainCandidate(Value):
    """Explain one candidate: its idea, what it does, how it was judged, what bounds it."""

    kind: Literal["explain_candidate"] = "explain_candidate"
    candidate: str = "best"


class ExplainRound(Value):
    """Explain one round, 0 being the last: its ideas, what they brought, the critic's view."""

    kind: Literal["explain_round"] = "explain_round"
    round: int = 0


class CompareCandidates(Value):
    """Say why one candidate is faster than another, with the difference of their sources."""

    kind: Literal["compare_candidates"] = "compare_candidates"
    one: str = "best"
    other: str = ""


class ShowCode(Value):
    """Show a candidate's kernel and plan."""

    kind: Literal["show_code"] = "show_code"
    candidate: str = "best"


class ShowProfile(Value):
    """Show what the profiler read of a candidate, and where it stands under the roofline."""

    kind: Literal["show_profile"] = "show_profile"
    candidate: str = "best"


class ShowLedger(Value):
    """Show every idea that was tried, what was predicted of it and what it brought."""

    kind: Literal["show_ledger"] = "show_ledger"


class ShowProgress(Value):
    """Say where the search stands, what was just tried, and who leads."""

    kind: Literal["show_progress"] = "show_progress"


class ExportResult(Value):
    """Take the result home: a drop-in module, or a KernelBench ModelNew file."""

    kind: Literal["export_result"] = "export_result"
    format: Literal["module", "kernelbench"] = "module"
    candidate: str = "best"
    approved: bool = False


class GetReport(Value):
    """Make the run's report, one HTML file."""

    kind: Literal["get_report"] = "get_report"


Topic = Literal[
    "how_it_works",
    "gradients",
    "use",
    "baselines",
    "safety",
    "verified_on",
    "not_faster",
    "privacy",
]


class AskAbout(Value):
    """Answer a usual question from this run's facts.

    Topics: `how_it_works`; `gradients` (does it still train); `use` (how the result is imported
    and used in a project); `baselines` (compared with torch.compile and PyTorch); `safety` (is it
    safe in production: what was verified, what was not, the fallback); `verified_on` (which
    device, precision and shapes); `not_faster` (why it is not faster); `privacy` (where the
    person's code goes).
    """

    kind: Literal["ask_about"] = "ask_about"
    topic: Topic = "how_it_works"


class AskDoctor(Value):
    """Say what works on this machine: device, compilers, profilers."""

    kind: Literal["ask_doctor"] = "ask_doctor"


class ListRuns(Value):
    """List this person's runs."""

    kind: Literal["list_runs"] = "list_runs"


class ReopenRun(Value):
    """Take up an earlier run, by its id or the beginning of it."""

    kind: Literal["reopen_run"] = "reopen_run"
    run: str


class RenameRun(Value):
    """Give a run a name of the person's, by its id; an empty id is the run that is talked about."""

    kind: Literal["rename_run"] = "rename_run"
    name: str = ""
    run: str = ""


class DeleteRun(Value):
    """Delete a run for good, by its id; an empty id is the run that is talked about."""

    kind: Literal["delete_run"] = "delete_run"
    run: str = ""
    approved: bool = False


class AskForHelp(Value):
    """Say what can be asked here."""

    kind: Literal["ask_for_help"] = "ask_for_help"


class Unclear(Value):
    """Nothing that was understood; `guesses` are offered as buttons."""

    kind: Literal["unclear"] = "unclear"
    words: str = ""
    guesses: tuple["Command", ...] = ()


Command = Annotated[
    LoadTask
    | ChangeTask
    | AuditTask
    | StartSearch
    | PrepareBundle
    | CancelTask
    | PauseSearch
    | ContinueSearch
    | MeasureAgain
    | StopSearch
    | Steer
    | SetBudget
    | ShowSteering
    | ExplainCandidate
    | ExplainRound
    | CompareCandidates
    | ShowCode
    | ShowProfile
    | ShowLedger
    | ShowProgress
    | ExportResult
    | GetReport
    | AskAbout
    | AskDoctor
    | ListRuns
    | ReopenRun
    | RenameRun
    | DeleteRun
    | AskForHelp
    | Unclear,
    Field(discriminator="kind"),
]

Unclear.model_rebuild()
COMMAND: TypeAdapter[Command] = TypeAdapter(Command)


class Offer(Value):
    """A button: what it says, and the command behind it, which is stored as `wish`."""

    label: str
    wish: Command
    hint: str = ""


class ChatReply(Value):
    """One answer. A `question` waits for one of its offers, or for words instead.

    A later answer of the same `place` is the same said anew: it is shown where that one stands.
    """

    pieces: tuple[Piece, ...]
    offers: tuple[Offer, ...] = ()
    question: bool = False
    place: str = ""

    @classmethod
    def of(cls, text: str, *offers: Offer) -> "ChatReply":
        """An answer in words alone."""
        return cls(pieces=(Words(text=text),), offers=offers)

    @property
    def text(self) -> str:
        """Its words, for those that cannot show more."""
        return "\n\n".join(piece.text for piece in self.pieces if isinstance(piece, Words))


class Turn(Value):
    """What the person said, and what it may be about.

    `candidates` are ids in the order of writing (so `v3` is the third), `ideas` titles in the
    order of proposal; `earlier` are the last exchanges, the person's words first. `offers` are the
    buttons of a question that is open: the person may answer it in words. `facts` are sentences
    about the run for whoever reads them.
    """

    text: str
    attachments: tuple[Attachment, ...] = ()
    task: str = ""
    run: str = ""
    running: bool = False
    candidates: tuple[str, ...] = ()
    ideas: tuple[str, ...] = ()
    earlier: tuple[tuple[str, str], ...] = ()
    offers: tuple[Offer, ...] = ()
    facts: tuple[str, ...] = ()


class Understanding(Value):
    """What the person wants, in order, and first `words`; `tokens`, `seconds` a model took."""

    commands: tuple[Command, ...]
    words: str = ""
    tokens: int = 0
    seconds: float = 0.0


class CommandResult(Value):
    """A command with what was answered."""

    command: Command
    reply: ChatReply


class Assistant(Protocol):
    """Understands a person."""

    async def understand(self, turn: Turn, done: tuple[CommandResult, ...] = ()) -> Understanding:
        """Say what is to be done next for this turn; no commands means that it is answered.

        `done` is what was done for the same turn already: rules ask once, a model may look at
        the answers and go on.
        """
        ...
