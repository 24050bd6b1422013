"""The controller of one conversation: one reply for every command, and what a message can refer to.

How a command is carried out stands in the modules beside this one, which are values and functions;
this is where they are called from. A command that changes the loaded task waits for the one before
it, questions do not. A message can refer to the task, the run, its candidates and its ideas.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

from kernelwright.agents.assistant.types import (
    AskAbout,
    AskDoctor,
    AskForHelp,
    Attachment,
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
    Turn,
    Unclear,
)
from kernelwright.graphs.conversation import answers as helping
from kernelwright.graphs.conversation import answers as progress
from kernelwright.graphs.conversation import answers as showing
from kernelwright.graphs.conversation import budgets, explaining, loading, runs, wishes
from kernelwright.graphs.conversation import loading as auditing
from kernelwright.graphs.conversation import runs as bundles
from kernelwright.graphs.conversation import runs as taking
from kernelwright.graphs.conversation import steering as driving
from kernelwright.graphs.conversation.about import about, facts_of
from kernelwright.graphs.conversation.background.search_manager import SearchManager
from kernelwright.graphs.conversation.background.store import folder_of
from kernelwright.graphs.conversation.background.subscribers import (
    EventSubscriber,
    Hear,
    HearSpeech,
    StreamSubscriber,
)
from kernelwright.graphs.conversation.background.task_card import TaskCard
from kernelwright.graphs.conversation.context import ConversationContext, Settings
from kernelwright.graphs.conversation.explaining import Unnamed
from kernelwright.graphs.run_view.events import Speeches, one_line
from kernelwright.graphs.run_view.story import Story
from kernelwright.tools.archive import Archive, RunError


def turn_of(context: ConversationContext, text: str, attachments: tuple[Attachment, ...]) -> Turn:
    """What the person said, with what it may be about; a few milliseconds."""
    task = context.now.task
    candidates, ideas, facts = _named(context)
    return Turn(
        text=text,
        attachments=attachments,
        task=one_line(task.name, 60) if task else "",
        run=context.now.run,
        running=context.search_session is not None,
        candidates=candidates,
        ideas=ideas,
        facts=facts,
    )


Named = tuple[str, ...]


def _named(context: ConversationContext) -> tuple[Named, Named, Named]:
    """Candidates, ideas and facts of the run that is talked about."""
    if context.folder is None:
        return (), (), ()
    try:
        archive = Archive.open(context.folder)
    except RunError:  # the words may be about something else
        return (), (), ()
    try:
        ideas = tuple(idea.title for idea in archive.ideas())
        return archive.candidate_ids(), ideas, facts_of(archive)
    finally:
        archive.close()


# What `agents.assistant.rules` calls a file that has no name.
PASTED = "pasted.py"

State = Literal["idle", "starting", "running", "pausing", "stopping", "resting"]


class ChatController:
    """Where one conversation's commands are carried out.

    Args:
        home: Where everybody's folders are, as given to `search_manager`.
        search_manager: The searches of the server.
        person: Whose conversation it is.
        thread: The conversation; a controller made later for the same one finds what was left.
        settings: How conversations of this server work.
    """

    def __init__(
        self,
        home: Path,
        search_manager: SearchManager,
        person: str,
        thread: str,
        settings: Settings | None = None,
    ) -> None:
        folder = folder_of(home.absolute(), person)
        self._context = ConversationContext(
            folder, search_manager, settings or Settings(), search_manager.store_of(folder, thread)
        )
        self._watches: dict[Hear, EventSubscriber] = {}
        self._ears: dict[HearSpeech, StreamSubscriber] = {}

    @property
    def run(self) -> str:
        """The id of the run that is talked about; "" while there is none."""
        return self._context.now.run

    @property
    def task(self) -> TaskCard | None:
        """The card of the loaded task."""
        return self._context.now.card

    @property
    def file(self) -> str:
        """What the person calls the file that is talked about; "" while there is none."""
        now = self._context.now
        if now.name == PASTED:
            return f"pasted {now.task.entry}" if now.task else "pasted module"
        return one_line(now.name, 48)

    @property
    def home(self) -> Path:
        """The person's folder, in which `graphs.run_view.story` finds the run."""
        return self._context.home

    @property
    def state(self) -> State:
        """Whether a search runs for this conversation; `resting` is a run that nobody works on."""
        search_session = self._context.search_session
        if search_session is None or search_session.state == "ended":
            return "resting" if self.run else "idle"
        return search_session.state

    @property
    def ahead(self) -> int:
        """How many other people's questions to the device this conversation's search waits for."""
        return self._context.search_manager.ahead(self.home) if self.running else 0

    @property
    def running(self) -> bool:
        """Whether a search runs for this conversation right now."""
        return self._context.search_session is not None

    def turn(self, text: str, attachments: tuple[Attachment, ...] = ()) -> Turn:
        """What the person said, with what it may be about."""
        return turn_of(self._context, text, attachments)

    async def do(self, command: Command) -> ChatReply:
        """Carry out one command; what cannot be done is said, and nothing is raised for it."""
        try:
            return await self._do(command)
        except (Unnamed, RunError) as trouble:
            return ChatReply.of(_sentence(trouble))

    async def _do(self, command: Command) -> ChatReply:
        if isinstance(
            command,
            LoadTask
            | ChangeTask
            | CancelTask
            | StartSearch
            | ContinueSearch
            | MeasureAgain
            | ReopenRun
            | DeleteRun,
        ):
            async with self._context.store.turn:
                reply = await self._change(command)
            self._context.search_manager.news.notify(self.home)
            return reply
        return await self._answer(command)

    def watch(self, hear: Hear, after: int = 0) -> None:
        """Be told every event of this conversation's run, those of the past first.

        It follows the conversation: when another run is begun or reopened, that one is told from
        its beginning. What `hear` sends is sent in the context in which this was called.

        Args:
            hear: Is awaited with one event after the other.
            after: The number of the last event of the present run that is known already.
        """
        self.unwatch(hear)
        watch = EventSubscriber(lambda: self._context.folder, hear, after)
        self._watches[hear] = watch
        self._context.search_manager.news.subscribe(self.home, watch.wake)

    def unwatch(self, hear: Hear | None = None) -> None:
        """Tell a listener no more, or all of this conversation's; the search goes on."""
        for known in [hear] if hear is not None else list(self._watches):
            watch = self._watches.pop(known, None)
            if watch is not None:
                self._context.search_manager.news.unsubscribe(self.home, watch.wake)
                watch.close()

    def amend(self, tell: Callable[[ChatReply], Awaitable[None]]) -> None:
        """Be told the card anew when a figure came later than the first answer to a file."""
        self._context.store.amended = tell

    def hear_waiting(self, tell: Callable[[str], Awaitable[None]]) -> None:
        """Be told every few seconds that a file is still being read."""
        self._context.store.remarked = tell

    def overhear(self, hear: HearSpeech) -> None:
        """Be told what models say while they say it, a few times a second; nothing is kept.

        A speech has all of its answer so far; the last one of a key is marked as ended, and what
        was said in the end comes as an event.
        """
        self.turn_away(hear)
        subscriber = StreamSubscriber(self._speeches, hear)
        self._ears[hear] = subscriber
        self._context.search_manager.speech.subscribe(self.home, subscriber.wake)

    def turn_away(self, hear: HearSpeech | None = None) -> None:
        """The opposite of `overhear`, for one who listens in or for all of this conversation's."""
        for known in [hear] if hear is not None else list(self._ears):
            subscriber = self._ears.pop(known, None)
            if subscriber is not None:
                self._context.search_manager.speech.unsubscribe(self.home, subscriber.wake)
                subscriber.close()

    def _speeches(self) -> Speeches | None:
        search_session = self._context.search_session
        return search_session.speeches if search_session else None

    async def _change(self, command: Command) -> ChatReply:
        context = self._context
        match command:
            case LoadTask():
                return await loading.load(context, command)
            case ChangeTask():
                return await loading.change(context, command)
            case CancelTask():
                return await loading.cancel(context)
            case StartSearch():
                return await driving.start(context, command)
            case ContinueSearch():
                return await driving.go_on(context, command)
            case MeasureAgain():
                return await driving.measure_again(context)
            case _:
                return await self._answer(command)

    async def _answer(self, command: Command) -> ChatReply:
        context = self._context
        match command:
            case PauseSearch():
                return await driving.pause(context)
            case StopSearch():
                return await driving.stop(context)
            case ShowProgress():
                return await progress.show(context)
            case AuditTask():
                return await auditing.audit(context)
            case Steer():
                return await wishes.steer(context, command)
            case SetBudget():
                return await budgets.budget(context, command)
            case ShowSteering():
                return await wishes.show(context)
            case ExportResult():
                return await taking.export(context, command)
            case GetReport():
                return await taking.report(context)
            case PrepareBundle():
                return await bundles.prepare(context, command)
            case AskAbout():
                return await about(context, command)
            case AskDoctor():
                return await helping.doctor(context)
            case ListRuns():
                return await runs.listing(context)
            case ReopenRun():
                return await runs.reopen(context, command)
            case RenameRun():
                return await runs.rename(context, command)
            case DeleteRun():
                return await runs.delete(context, command)
            case AskForHelp():
                return helping.help_(context)
            case Unclear():
                return helping.unclear(context, command)
            case _:
                return await self._tell(command)

    async def _tell(self, command: Command) -> ChatReply:
        """What needs the run's whole story; a story of a long run is put together in a thread."""
        story = await self._context.story()
        if story is None:
            return ChatReply.of(driving.NO_RUN)
        return await self._context.read(lambda: _told(story, command))


def _told(story: Story, command: Command) -> ChatReply:
    match command:
        case ExplainCandidate():
            return explaining.candidate(story, command)
        case ExplainRound():
            return explaining.round_(story, command)
        case CompareCandidates():
            return explaining.compare(story, command)
        case ShowCode():
            return showing.code(story, command)
        case ShowProfile():
            return showing.profile(story, command)
        case ShowLedger():
            return showing.ledger(story)
        case _:
            raise TypeError(f"no answer is known to {type(command).__name__}")


def _sentence(trouble: Exception) -> str:
    words = one_line(str(trouble), 400)
    return f"{words[:1].upper()}{words[1:]}".rstrip(".") + "."
