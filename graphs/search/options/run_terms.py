"""What holds for a whole run, kept in its archive so that a resume or a replay knows it.

- The person's own kernel.
- How the critic is asked. Runs from before this was kept were asked after their last round too,
  were shown exemplars by speed alone, without measured readings, and explained noise as well.
- Whether what profilers of a device measured steers it, by more than a nudge.
- What suggests settings to its tuner, and whether implementations of an idea have to differ.
- Where it is evaluated: by which executor, chosen by name, here or elsewhere.
- What the search decided by the clock or by a person's steering: once, and kept for a replay.
  Everything else follows from what the archive holds. A step that is taken again after a crash
  finds what it had decided, so a resumed run asks the same questions in the same words.

Which roles a run has is kept with its terms, so that a resume and a replay have the same. A run
without that term has the search's own roles only: it was begun before there were others.
"""

import json
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

from kernelwright.agents.coder.model import CODER
from kernelwright.agents.coder.tuner import By
from kernelwright.agents.critic.critic import Manner
from kernelwright.agents.planner.model import PLANNER
from kernelwright.agents.role import Role, StepRole
from kernelwright.agents.roles import ROLES, AgentSet, GivenCoder, StartingCoder, StartingPlanner
from kernelwright.agents.roles.composed import ComposedPlanner, Compositions
from kernelwright.agents.shared.facts import Start
from kernelwright.profiles.load import Hardware
from kernelwright.tools.archive import Archive, NotRecordedError, RunError, RunRecord, Target
from kernelwright.tools.candidates import ContractError
from kernelwright.tools.candidates.launches import exported, inferred
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.evaluate.executors.base.kind import ExecutorChoice, Order
from kernelwright.tools.evaluate.executors.registry import DEFAULT, EXECUTORS, executor_kind
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.languages import default_language, language_named, parse_kernel
from kernelwright.tools.profile.symptoms import is_later
from kernelwright.tools.types import Refusal, Symptom, Task

_START_TERM = "start"


def launched(start: Start | None, task: Task, *, has_model: bool) -> Start | Refusal | None:
    """The start with plans for a bare kernel, where no model is there to write one.

    What cannot be told of its launch is asked for, by a Refusal.
    """
    if start is None or start.plan or has_model:
        return start
    kernel = exported(start.kernel)
    try:
        source = parse_kernel(kernel, start.language)
    except ContractError as error:
        return Refusal(sentence=f"{start.name}: {error}")
    found = inferred(source, kernel, task)
    if not found.plans:
        return Refusal(sentence=f"{start.name} has no plan, and {found.missing}.")
    first, *others = found.plans
    told = {"kernel": kernel, "plan": first, "others": tuple(others), "inferred": True}
    return start.model_copy(update=told)


def refusal(start: Start | None, hardware: Hardware) -> Refusal | None:
    """Why a search here cannot begin with that kernel; None when it can."""
    if start is None:
        return None
    if language_named(start.language).spec.device != hardware.kind:
        return Refusal(
            sentence=f"{start.name} is {start.language}, but a search on {hardware.name} "
            f"takes {default_language(hardware.kind).spec.name}"
        )
    return None


def keep_start(archive: Archive, start: Start | None) -> None:
    """Make a kernel, if there is one, the beginning of this run."""
    if start is not None:
        archive.record_term(_START_TERM, start.model_dump_json())


def start_of(archive: Archive) -> Start | None:
    """The kernel that this run begins with, if any."""
    kept = archive.term(_START_TERM)
    return Start.model_validate_json(kept) if kept else None


def starting_from(archive: Archive, agents: AgentSet) -> AgentSet:
    """Agents that begin with the person's kernel, where the run has one."""
    start = start_of(archive)
    if start is None:
        return agents
    begun = agents.replaced(PLANNER, StartingPlanner(agents.planner, start))
    return begun.replaced(CODER, StartingCoder(agents.coder, start))


COMPOSED_TERM = "composed"


def keep_composed(archive: Archive, given: Compositions) -> None:
    """Write down what a model's regions were put together to."""
    archive.record_term(COMPOSED_TERM, given.model_dump_json())


def compositions_of(archive: Archive) -> Compositions:
    """What a model's regions were put together to; empty where nothing was."""
    kept = archive.term(COMPOSED_TERM)
    return Compositions.model_validate_json(kept) if kept else Compositions()


def composed(archive: Archive, agents: AgentSet) -> AgentSet:
    """Agents that begin with a model's compositions, where the run has some."""
    given = compositions_of(archive)
    if not given.items:
        return agents
    begun = agents.replaced(PLANNER, ComposedPlanner(agents.planner, given))
    return begun.replaced(CODER, GivenCoder(agents.coder, given.candidates))


_PREPARE_TERM = "prepare"


def keep_prepare(archive: Archive, choice: str) -> None:
    """Write down what is done before a new run's first plan, in the person's word."""
    archive.record_term(_PREPARE_TERM, choice)


def prepare_of(archive: Archive) -> str:
    """That word; "" in runs from before it was kept."""
    return archive.term(_PREPARE_TERM) or ""


_CRITIC_TERM = "critic"


def keep_manner(archive: Archive) -> None:
    """Let the critic of a new run be asked as is done now."""
    manner = Manner(relatives=True, after_the_last=False, noise=True, readings=True, advice=True)
    archive.record_term(_CRITIC_TERM, manner.model_dump_json())


_MODES_TERM = "call modes"


def keep_call_modes(archive: Archive) -> None:
    """Let the best plans of a new run be called otherwise too; in earlier ones they were not."""
    archive.record_term(_MODES_TERM, "best")


def calls_otherwise(archive: Archive) -> bool:
    """Whether they are in this run."""
    return archive.term(_MODES_TERM) is not None


_TUNER_TERM = "tuner"


def keep_tuner(archive: Archive, by: By = "surrogate") -> None:
    """Let a new run be tuned as is done now."""
    archive.record_term(_TUNER_TERM, by)


def tuned_by(archive: Archive) -> By:
    """What suggests settings in this run; Optuna's sampler in those from before there was more."""
    return "surrogate" if archive.term(_TUNER_TERM) == "surrogate" else "sampler"


_COUNTERS_TERM = "counters"


def keep_counters(archive: Archive) -> None:
    """Let what profilers of the device measured steer a new run."""
    archive.record_term(_COUNTERS_TERM, "steer")


def counters_steer(archive: Archive) -> bool:
    """Whether they do in this run; before this was kept, a symptom was a nudge of 5 %."""
    return archive.term(_COUNTERS_TERM) is not None


def steering_symptoms(archive: Archive, candidate: str) -> tuple[Symptom, ...]:
    """What bounds a candidate, as far as it steers this run; () where it was not profiled."""
    profiled = archive.profile(candidate) if candidate else None
    found = profiled[1] if profiled else ()
    if counters_steer(archive):
        return found
    plain = {"kernel": "", "worth": None, "turns": ()}
    return tuple(item.model_copy(update=plain) for item in found if not is_later(item))


_HELD_TERM = "profiling"


def keep_held_profiling(archive: Archive) -> None:
    """Let a new run whose seconds hold everything profile only where a round can follow."""
    archive.record_term(_HELD_TERM, "held")


def holds_profiling(archive: Archive) -> bool:
    """Whether it does; before this was kept a search profiled behind its end as well."""
    return archive.term(_HELD_TERM) is not None


_DISTINCT_TERM = "distinct"


def keep_distinct(archive: Archive) -> None:
    """Let the implementations of one idea in a new run differ in what they do."""
    archive.record_term(_DISTINCT_TERM, "structure")


def is_distinct(archive: Archive) -> bool:
    """Whether they do in this run; before this was kept they differed in their text."""
    return archive.term(_DISTINCT_TERM) is not None


def manner_of(archive: Archive) -> Manner:
    """How the critic of this run is asked."""
    kept = archive.term(_CRITIC_TERM)
    return Manner.model_validate_json(kept) if kept else Manner()


EXECUTOR_TERM = "executor"


class KeptChoice(ExecutorChoice):
    """The choice of a run, as its archive holds it: with whether the device is elsewhere."""

    remote: bool = True


@asynccontextmanager
async def opened(
    given: Executor | None,
    target: Target,
    choice: ExecutorChoice | None = None,
    seed: int = 0,
    rules: Rules | None = None,
) -> AsyncIterator[Executor]:
    """The given executor, which stays its owner's; or one that is made, closed at the end.

    Args:
        given: An executor of somebody's, if any.
        target: Which kind of device.
        choice: Which one is made; worker processes on this machine if None.
        seed: Of what a far host draws by chance.
        rules: The judge's figures, for one on this machine.
    """
    if given is not None:
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="kernelwright-", ignore_cleanup_errors=True) as scratch:
        wanted = choice or ExecutorChoice(name=DEFAULT)
        order = Order(wanted, target, Path(scratch), seed, rules)
        executor = executor_kind(wanted.name).make(order)
        try:
            yield executor
        finally:
            await executor.aclose()


def attach(executor: Executor, archive: Archive, choice: ExecutorChoice | None) -> None:
    """Tell an executor whom it works for, and keep with the run how it is evaluated."""
    remote = executor.capabilities.remote
    if not remote and (choice is None or choice.name == DEFAULT):
        return
    hardware = archive.record().hardware
    known = choice or ExecutorChoice(name="batch", hardware=hardware)
    kept = KeptChoice.model_validate(known.model_dump() | {"remote": remote})
    archive.record_term(EXECUTOR_TERM, kept.model_dump_json())
    bundles = Path(known.bundles) / archive.id if known.bundles else archive.folder / "bundles"
    executor.attach(archive.id, bundles)


def choice_of(archive: Archive, record: RunRecord) -> ExecutorChoice | None:
    """How a run goes on; the device is what it is known to be now. None for the default.

    Raises:
        RunError: When the run was evaluated by an executor that is not registered here.
    """
    kept = kept_choice(archive)
    if kept is None:
        return None
    if kept.name not in EXECUTORS:
        raise RunError(f"run {archive.id} needs the executor {kept.name!r}, which is not here")
    chosen = kept.model_dump(exclude={"remote"}) | {"hardware": record.hardware}
    return ExecutorChoice.model_validate(chosen)


def kept_choice(archive: Archive) -> KeptChoice | None:
    """What a run keeps of its executor; None where it is this machine's own."""
    stored = archive.term(EXECUTOR_TERM)
    return None if stored is None else KeptChoice.model_validate_json(stored)


class Decisions(Protocol):
    """Decides things once."""

    def known(self, key: str) -> str | None:
        """What was decided under that key; None where nothing was."""
        ...

    def once(self, key: str, now: Callable[[], str]) -> str:
        """What was decided under that key; `now` decides it if nothing was."""
        ...


class KeptDecisions:
    """The decisions of a run, kept in its archive."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._known: dict[str, str] | None = None

    def known(self, key: str) -> str | None:
        """See the protocol."""
        return self._all().get(key)

    def once(self, key: str, now: Callable[[], str]) -> str:
        """See the protocol; what is decided is durable before anyone acts upon it."""
        known = self._all()
        if key not in known:
            known[key] = now()
            self._archive.record_decision(key, known[key])
        return known[key]

    def _all(self) -> dict[str, str]:
        if self._known is None:
            self._known = dict(self._archive.decisions())
        return self._known


class PastDecisions:
    """The decisions of a recorded run, for a replay of it."""

    def __init__(self, past: Mapping[str, str]) -> None:
        self._past = past

    def known(self, key: str) -> str | None:
        """See the protocol."""
        return self._past.get(key)

    def once(self, key: str, now: Callable[[], str]) -> str:
        """See the protocol; never decides anything anew.

        Raises:
            NotRecordedError: When the run did not come to that decision.
        """
        if key not in self._past:
            raise NotRecordedError(f"the decision {key!r}")
        return self._past[key]


ROLES_TERM = "roles"


def keep_roles(archive: Archive) -> None:
    """Let the roles that have a step of their own now be those of a new run."""
    if names := [role.name for role in ROLES.steps]:
        archive.record_term(ROLES_TERM, json.dumps(names))


def roles_of(archive: Archive) -> tuple[Role[object], ...]:
    """The roles of this run.

    Raises:
        RunError: When the run has a role that is not known here.
    """
    kept = archive.term(ROLES_TERM)
    named: list[str] = json.loads(kept) if kept else []
    if unknown := [name for name in named if name not in ROLES.names]:
        raise RunError(f"run {archive.id} has a role {unknown[0]!r}, which is not known here")
    return tuple(role for role in ROLES if not isinstance(role, StepRole) or role.name in named)
