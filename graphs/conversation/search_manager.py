"""The searches of a server: they belong to it, and not to the conversation that began them.

A search goes on when its page is closed and is found again by its run's id. What was going on when
the server ended, however it ended, is taken up by `revive`. A `SearchSession` is one session of one
search as its server sees it; a `Notifier` calls a person's pages whenever there may be something
new for them.
"""

import asyncio
import logging
import tempfile
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, TypeVar
from weakref import WeakValueDictionary

from kernelwright.agents.assistant.parsing.steering import widened
from kernelwright.agents.shared.facts import Steering
from kernelwright.graphs.conversation.judges import Engine, Judges, MakeExecutor
from kernelwright.graphs.conversation.store import (
    ConversationStore,
    every_folder,
    is_going,
    keep_end,
    keep_going,
    keep_steering,
    kept_steering,
)
from kernelwright.graphs.run_view.events import Event, ModelCalled, RunStarted, Speeches
from kernelwright.graphs.search.context import Control, Listener, MakeAgents
from kernelwright.graphs.search.run import resume_search, start_search
from kernelwright.graphs.search.session import import_beforehand
from kernelwright.profiles.load import SearchProfile
from kernelwright.profiles.models import Models
from kernelwright.tools.archive import RunError, Target, default_home, run_folders
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.types import EnvironmentLacksError, Prompt, Refusal, Task, TracePolicy
from kernelwright.tools.types.run import Summary

Wake = Callable[[], None]


class Notifier:
    """The listeners of every person, known by the person's folder.

    They are rung from whatever thread the news comes from, and say nothing of what it is.
    """

    def __init__(self) -> None:
        self._of: dict[Path, set[Wake]] = {}

    def hang(self, home: Path, wake: Wake) -> None:
        """Have something called whenever this person's bells are rung."""
        self._of.setdefault(home, set()).add(wake)

    def take_down(self, home: Path, wake: Wake) -> None:
        """The opposite of `hang`; nothing happens where it hangs no longer."""
        self._of.get(home, set()).discard(wake)

    def ring(self, home: Path) -> None:
        """Call everything that this person's pages hung up."""
        for wake in tuple(self._of.get(home, ())):
            wake()


State = Literal["starting", "running", "pausing", "stopping", "ended"]


@dataclass(eq=False)
class SearchSession:
    """A search that runs.

    `named` has the id of the run as soon as there is one, "" where it ended before that; `done`
    comes at the end of the session. `outcome` is what came of it, `problem` what went wrong.
    `session` is its task; `speeches` are what models are saying right now.
    """

    person: str
    run: str = ""
    state: State = "starting"
    control: Control = field(default_factory=Control)
    outcome: Summary | Refusal | None = None
    problem: str = ""
    session: Future[None] | None = None
    speeches: Speeches = field(default_factory=Speeches)
    named: Future[str] = field(default_factory=Future)
    done: Future[None] = field(default_factory=Future)

    @property
    def goes_on(self) -> bool:
        """Whether the session has not ended yet."""
        return self.state != "ended"

    def name(self, run: str) -> None:
        """Say which run it is, the first time; "" where there never was one."""
        if not self.named.done():
            self.named.set_result(run)


# Whose worker measures the device before anybody is there; no person's folder is called so.
NOBODY = ".nobody"

log = logging.getLogger(__name__)

Result = TypeVar("Result")
Ask = Callable[[Executor], Coroutine[object, object, Result]]
Session = Callable[[Executor, Listener, SearchSession], Awaitable[Summary | Refusal]]


class SearchManager:
    """All live searches, by the folder of their run.

    Args:
        home: Where everybody's folders are.
        target: The kind of device that searches run on.
        make_executor: Who judges; worker processes on this machine by default.
        make_minds: Who thinks, instead of a run's models or the playbook.
        idle_s: How long an unused worker stays.
        ready: How many workers stand ready for files.
    """

    def __init__(
        self,
        home: Path | None = None,
        *,
        target: Target = "auto",
        make_executor: MakeExecutor | None = None,
        make_minds: MakeAgents | None = None,
        idle_s: float = 120.0,
        ready: int = 4,
    ) -> None:
        self.home = (home or default_home()).absolute()
        self.engine = Engine()
        self._target: Target = target
        self._scratch = tempfile.TemporaryDirectory(
            prefix="kernelwright-chat-", ignore_cleanup_errors=True
        )
        self.judges = Judges(target, Path(self._scratch.name), make_executor, idle_s, ready)
        self._make_minds = make_minds
        self._lives: dict[Path, SearchSession] = {}
        # What changed with a person's searches, and what their models say more.
        self.news, self.speech = Notifier(), Notifier()
        # As long as somebody sits at it; kept in its file, it is laid anew for the next.
        self._tables: WeakValueDictionary[Path, ConversationStore] = WeakValueDictionary()
        self._warming: asyncio.Task[None] | None = None
        self._leaving = False

    @property
    def going(self) -> tuple[SearchSession, ...]:
        """The searches that run right now."""
        return tuple(life for life in self._lives.values() if life.goes_on)

    def table(self, home: Path, thread: str) -> ConversationStore:
        """The table of a conversation; the same one for every page that shows it."""
        table = ConversationStore.of(home, thread)
        return self._tables.setdefault(table.path, table)

    def find(self, folder: Path) -> SearchSession | None:
        """The live search of a run's folder; None when nobody works on it here."""
        life = self._lives.get(folder)
        return life if life is not None and life.goes_on else None

    def ahead(self, home: Path) -> int:
        """How many other people's questions to the device a person's search waits for."""
        return self.judges.ahead(home.name)

    async def ask(self, home: Path, what: Ask[Result]) -> Result:
        """Put questions to a person's judge."""

        async def asking() -> Result:
            async with self.judges.of(home.name) as judge:
                return await what(judge)

        return await self.engine.call(asking())

    async def begin(
        self,
        home: Path,
        file: Path,
        policy: TracePolicy,
        task: Task | None,
        profile: SearchProfile,
        *,
        audited: bool = True,
        models: Models | None = None,
        seed: int = 0,
        steering: Steering | None = None,
    ) -> SearchSession:
        """Start a search; answers as soon as the run has an id, or could not begin.

        A task that was read and not `audited` yet is audited first, instead of read once more.
        """

        async def session(
            judge: Executor, hear: Listener, life: SearchSession
        ) -> Summary | Refusal:
            known = task if audited else await _audited(judge, task)
            if isinstance(known, Refusal):
                return known
            return await start_search(
                file,
                policy,
                "auto",
                profile,
                seed=seed,
                home=home,
                listener=hear,
                control=life.control,
                executor=judge,
                models=models,
                make_minds=self._make_minds,
                task=known,
                overhear=partial(self._overheard, life, home),
            )

        life = await self._live(home, session, steering=steering)
        if life.run and steering is not None:
            await self.steer(home / "runs" / life.run, steering)
        return life

    async def go_on(
        self,
        folder: Path,
        *,
        rounds: int | None = None,
        seconds: float | None = None,
    ) -> SearchSession:
        """Resume a run, with other totals of rounds and seconds if given.

        A search that is on its way to an end is waited for; one that simply runs stays as it is.
        """
        current = self.find(folder)
        if current is not None:
            if current.state in {"starting", "running"}:
                return current
            await asyncio.shield(asyncio.wrap_future(current.done))
        home = folder.parent.parent
        steering = await asyncio.to_thread(kept_steering, folder)

        async def session(
            judge: Executor, hear: Listener, life: SearchSession
        ) -> Summary | Refusal:
            return await resume_search(
                folder,
                home=home,
                rounds=rounds,
                seconds=seconds,
                listener=hear,
                control=life.control,
                executor=judge,
                make_minds=self._make_minds,
                overhear=partial(self._overheard, life, home),
            )

        return await self._live(home, session, folder, steering)

    def pause(self, life: SearchSession) -> None:
        """End a search at its present step's end."""
        life.state = "pausing"
        self.engine.tell(life.control.pause)

    def stop(self, life: SearchSession) -> None:
        """End a search now, with the best so far."""
        life.state = "stopping"
        self.engine.tell(life.control.stop)

    async def steer(self, folder: Path, steering: Steering) -> None:
        """Keep wishes with a run, and tell them to its search where it runs."""
        await asyncio.to_thread(keep_steering, folder, steering)
        if life := self.find(folder):
            self.engine.tell(lambda: life.control.steer(widened(steering)))

    async def revive(self) -> tuple[SearchSession, ...]:
        """Take up every search that was going on when the server ended, as it begins."""
        found = await asyncio.to_thread(self._interrupted)
        taken = [folder for folder in found if self.find(folder) is None]
        lives = await asyncio.gather(*map(self.go_on, taken), return_exceptions=True)
        for folder, life in zip(taken, lives, strict=True):
            if isinstance(life, BaseException):  # one run's trouble is not the others'
                log.error("run %s was not taken up again: %s", folder.name, life)
        return tuple(life for life in lives if isinstance(life, SearchSession))

    def make_ready(self) -> None:
        """Make ready for the first visitor, in the background."""
        self._warming = asyncio.create_task(self._warm())

    async def _warm(self) -> None:
        """Do beforehand what the first visitor would wait for: imports, workers, ceilings."""

        async def measure() -> None:
            async with self.judges.of(NOBODY) as judge:
                await judge.hardware()

        found = await asyncio.gather(
            asyncio.to_thread(import_beforehand, self._target),
            self.engine.call(measure()),
            return_exceptions=True,
        )
        for problem in found:
            if isinstance(problem, BaseException):
                log.warning("not warmed up: %s", problem)

    async def aclose(self) -> None:
        """End every session so that `revive` takes it up again, and every worker."""
        self._leaving = True
        if self._warming is not None:
            self._warming.cancel()
        sessions = [life for life in self._lives.values() if life.goes_on]
        for life in sessions:
            if life.session is not None:
                life.session.cancel()
        await asyncio.gather(
            *(asyncio.wrap_future(life.done) for life in sessions), return_exceptions=True
        )
        await self.engine.call(self.judges.aclose())
        self.engine.close()
        self._scratch.cleanup()

    def _interrupted(self) -> tuple[Path, ...]:
        homes = every_folder(self.home)
        return tuple(run for home in homes for run in run_folders(home) if is_going(run))

    async def _live(
        self,
        home: Path,
        session: Session,
        folder: Path | None = None,
        steering: Steering | None = None,
    ) -> SearchSession:
        life = SearchSession(person=home.name)
        if steering is not None:
            life.control.steer(widened(steering))
        if folder is not None:
            life.run = folder.name
            self._lives[folder] = life
        life.session = self.engine.submit(self._see_through(life, home, session))
        await asyncio.shield(asyncio.wrap_future(life.named))
        return life

    async def _see_through(self, life: SearchSession, home: Path, session: Session) -> None:
        """One session from its beginning to its end, whatever that is."""
        try:
            async with self.judges.of(life.person) as judge:
                life.outcome = await session(judge, partial(self._heard, life, home), life)
        except asyncio.CancelledError:
            life.problem = "" if self._leaving else "it was cancelled"
        except (RunError, EnvironmentLacksError) as error:
            life.problem = str(error)
        except Exception as error:
            log.exception("the search of run %s failed", life.run or "(none yet)")
            life.problem = f"{type(error).__name__}: {error}".splitlines()[0]
        finally:
            self._ended(life, home)

    def _heard(self, life: SearchSession, home: Path, event: Event) -> None:
        if isinstance(event, RunStarted):
            life.run = event.run
            folder = home / "runs" / event.run
            self._lives[folder] = life
            if life.state == "starting":
                life.state = "running"
            keep_going(folder, going=True)
            life.name(event.run)
        if isinstance(event, ModelCalled):
            life.speeches.end(event.key)
            self.speech.ring(home)
        self.news.ring(home)

    def _overheard(self, life: SearchSession, home: Path, prompt: Prompt, piece: str) -> None:
        life.speeches.hear(prompt, piece)
        self.speech.ring(home)

    def _ended(self, life: SearchSession, home: Path) -> None:
        folder = home / "runs" / life.run
        if life.run:
            _aftermath(life, folder, leaving=self._leaving)
        # Only now, so that whoever sees the end finds kept how it ended.
        life.state = "ended"
        if self._lives.get(folder) is life:
            del self._lives[folder]
        life.speeches.clear()
        self.speech.ring(home)
        self.news.ring(home)
        life.name(life.run)
        life.done.set_result(None)


async def _audited(judge: Executor, task: Task | None) -> Task | Refusal | None:
    """The task with the judge's audit; None where the search has to read the file itself."""
    if task is None or not judge.capabilities.reads_apart:
        return None
    return await judge.audit(task)


def _aftermath(life: SearchSession, folder: Path, *, leaving: bool) -> None:
    """Keep with the run how its session ended; nothing here may end worse than it."""
    refused = life.outcome.sentence if isinstance(life.outcome, Refusal) else ""
    try:
        keep_end(folder, life.problem or refused, going=leaving)
    except Exception:
        log.exception("how run %s ended could not be kept", life.run)
