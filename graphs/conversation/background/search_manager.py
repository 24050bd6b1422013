"""The searches of a server: they belong to it, and not to the conversation that began them.

A search goes on when its page is closed and is found again by its run's id. What was going on when
the server ended, however it ended, is taken up by `revive`. A `SearchSession` is one session of one
search as its server sees it.
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
from kernelwright.graphs.conversation.background.judges import (
    Engine,
    Judges,
    MakeExecutor,
    audited_by,
)
from kernelwright.graphs.conversation.background.store import (
    ConversationStore,
    every_folder,
    is_going,
    keep_end,
    keep_going,
    keep_profile,
    keep_steering,
    kept_spent,
    kept_steering,
)
from kernelwright.graphs.conversation.background.subscribers import Notifier
from kernelwright.graphs.regions.search import by_regions
from kernelwright.graphs.run_view.events import Event, ModelCalled, RunStarted, Speeches
from kernelwright.graphs.search.context import Listener, MakeAgents
from kernelwright.graphs.search.control import Control
from kernelwright.graphs.search.pace import Spent
from kernelwright.graphs.search.run import measure_again, resume_search, start_search
from kernelwright.graphs.search.session import import_beforehand
from kernelwright.profiles.load import Models, SearchProfile
from kernelwright.tools.archive import RunError, Target, default_home, run_folders
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.types import EnvironmentLacksError, Prompt, Refusal, Task, TracePolicy
from kernelwright.tools.types.run import Summary

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
        make_agents: Who thinks, instead of a run's models or the playbook.
        idle_s: How long an unused worker stays.
        ready: How many workers stand ready for files.
    """

    def __init__(
        self,
        home: Path | None = None,
        *,
        target: Target = "auto",
        make_executor: MakeExecutor | None = None,
        make_agents: MakeAgents | None = None,
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
        self._make_agents = make_agents
        self._sessions: dict[Path, SearchSession] = {}
        # What changed with a person's searches, and what their models say more.
        self.news, self.speech = Notifier(), Notifier()
        # As long as somebody sits at it; kept in its file, it is laid anew for the next.
        self._stores: WeakValueDictionary[Path, ConversationStore] = WeakValueDictionary()
        self._warming: asyncio.Task[None] | None = None
        self._leaving = False

    @property
    def going(self) -> tuple[SearchSession, ...]:
        """The searches that run right now."""
        return tuple(
            search_session for search_session in self._sessions.values() if search_session.goes_on
        )

    def store_of(self, home: Path, thread: str) -> ConversationStore:
        """The store of a conversation; the same one for every page that shows it."""
        store = ConversationStore.of(home, thread)
        return self._stores.setdefault(store.path, store)

    def find(self, folder: Path) -> SearchSession | None:
        """The live search of a run's folder; None when nobody works on it here."""
        search_session = self._sessions.get(folder)
        return search_session if search_session is not None and search_session.goes_on else None

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
            judge: Executor, hear: Listener, search_session: SearchSession
        ) -> Summary | Refusal:
            known = task if audited else await audited_by(judge, task)
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
                control=search_session.control,
                executor=judge,
                models=models,
                make_agents=self._make_agents,
                task=known,
                overhear=partial(self._overheard, search_session, home),
                prepare=by_regions("auto"),
            )

        search_session = await self._live(home, session, steering=steering)
        if search_session.run and steering is not None:
            await self.steer(home / "runs" / search_session.run, steering)
        return search_session

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
            judge: Executor, hear: Listener, search_session: SearchSession
        ) -> Summary | Refusal:
            return await resume_search(
                folder,
                home=home,
                rounds=rounds,
                seconds=seconds,
                listener=hear,
                control=search_session.control,
                executor=judge,
                make_agents=self._make_agents,
                overhear=partial(self._overheard, search_session, home),
                prepare=by_regions("auto"),
            )

        return await self._live(home, session, folder, steering)

    async def measure_again(self, folder: Path) -> SearchSession:
        """Certify a finished run's result anew."""
        home = folder.parent.parent

        async def session(
            judge: Executor, hear: Listener, search_session: SearchSession
        ) -> Summary | Refusal:
            control = search_session.control
            return await measure_again(
                folder, home=home, listener=hear, control=control, executor=judge
            )

        return await self._live(home, session, folder)

    def pause(self, search_session: SearchSession) -> None:
        """End a search at its present step's end."""
        search_session.state = "pausing"
        self.engine.tell(search_session.control.pause)

    def stop(self, search_session: SearchSession) -> None:
        """End a search now, with the best so far."""
        search_session.state = "stopping"
        self.engine.tell(search_session.control.stop)

    async def steer(self, folder: Path, steering: Steering) -> None:
        """Keep steering with a run, and tell it to its search where it runs."""
        await asyncio.to_thread(keep_steering, folder, steering)
        if search_session := self.find(folder):
            self.engine.tell(lambda: search_session.control.steer(widened(steering)))

    async def allow(self, folder: Path, profile: SearchProfile) -> None:
        """Let a run spend that from now on, in rounds, time, tokens and money."""
        search_session = self.find(folder)
        if search_session is None:
            await asyncio.to_thread(keep_profile, folder, profile)
            return
        control = search_session.control

        async def tell() -> None:
            control.allow(profile)

        await self.engine.call(tell())

    async def spent(self, folder: Path) -> Spent:
        """The time that a run has spent."""
        search_session = self.find(folder)
        if search_session is None:
            return await asyncio.to_thread(kept_spent, folder)
        control = search_session.control

        async def asked() -> Spent:
            return control.spent

        return await self.engine.call(asked())

    async def revive(self) -> tuple[SearchSession, ...]:
        """Take up every search that was going on when the server ended, as it begins."""
        found = await asyncio.to_thread(self._interrupted)
        taken = [folder for folder in found if self.find(folder) is None]
        search_manager = await asyncio.gather(*map(self.go_on, taken), return_exceptions=True)
        for folder, search_session in zip(taken, search_manager, strict=True):
            if isinstance(search_session, BaseException):  # one run's trouble is not the others'
                log.error("run %s was not taken up again: %s", folder.name, search_session)
        return tuple(
            search_session
            for search_session in search_manager
            if isinstance(search_session, SearchSession)
        )

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
        sessions = [
            search_session for search_session in self._sessions.values() if search_session.goes_on
        ]
        for search_session in sessions:
            if search_session.session is not None:
                search_session.session.cancel()
        await asyncio.gather(
            *(asyncio.wrap_future(search_session.done) for search_session in sessions),
            return_exceptions=True,
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
        search_session = SearchSession(person=home.name)
        if steering is not None:
            search_session.control.steer(widened(steering))
        if folder is not None:
            search_session.run = folder.name
            self._sessions[folder] = search_session
        search_session.session = self.engine.submit(
            self._see_through(search_session, home, session)
        )
        await asyncio.shield(asyncio.wrap_future(search_session.named))
        return search_session

    async def _see_through(
        self, search_session: SearchSession, home: Path, session: Session
    ) -> None:
        """One session from its beginning to its end, whatever that is."""
        try:
            async with self.judges.of(search_session.person) as judge:
                search_session.outcome = await session(
                    judge, partial(self._heard, search_session, home), search_session
                )
        except asyncio.CancelledError:
            search_session.problem = "" if self._leaving else "it was cancelled"
        except (RunError, EnvironmentLacksError) as error:
            search_session.problem = str(error)
        except Exception as error:
            log.exception("the search of run %s failed", search_session.run or "(none yet)")
            search_session.problem = f"{type(error).__name__}: {error}".splitlines()[0]
        finally:
            self._ended(search_session, home)

    def _heard(self, search_session: SearchSession, home: Path, event: Event) -> None:
        if isinstance(event, RunStarted):
            search_session.run = event.run
            folder = home / "runs" / event.run
            self._sessions[folder] = search_session
            if search_session.state == "starting":
                search_session.state = "running"
            keep_going(folder, going=True)
            search_session.name(event.run)
        if isinstance(event, ModelCalled):
            search_session.speeches.end(event.key)
            self.speech.notify(home)
        self.news.notify(home)

    def _overheard(
        self, search_session: SearchSession, home: Path, prompt: Prompt, piece: str
    ) -> None:
        search_session.speeches.hear(prompt, piece)
        self.speech.notify(home)

    def _ended(self, search_session: SearchSession, home: Path) -> None:
        folder = home / "runs" / search_session.run
        if search_session.run:
            _aftermath(search_session, folder, leaving=self._leaving)
        # Only now, so that whoever sees the end finds kept how it ended.
        search_session.state = "ended"
        if self._sessions.get(folder) is search_session:
            del self._sessions[folder]
        search_session.speeches.clear()
        self.speech.notify(home)
        self.news.notify(home)
        search_session.name(search_session.run)
        search_session.done.set_result(None)


def _aftermath(search_session: SearchSession, folder: Path, *, leaving: bool) -> None:
    """Keep with the run how its session ended; nothing here may end worse than it."""
    refused = search_session.outcome.sentence if isinstance(search_session.outcome, Refusal) else ""
    try:
        keep_end(folder, search_session.problem or refused, going=leaving)
    except Exception:
        log.exception("how run %s ended could not be kept", search_session.run)
