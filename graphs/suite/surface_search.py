"""Search policies on recorded settings spaces: the search itself, and what it must be better than.

The search is the one that a device sees, graph, agents, archive and all; only its judge is a
recording, and its coder and tuner can try recorded settings alone. A candidate that was not asked
about before counts as one evaluation. Limits of time do not hold, and nothing ends a search before
its evaluations are spent, so that policies compare at equal budgets.

Beside it: drawing points by chance, and Optuna's sampler over ways and settings alike, told nothing
but times. Not covered: what evaluations cost in seconds, which differs between candidates.
"""

import random
import tempfile
import warnings
from collections.abc import Sequence
from math import exp, inf, log
from pathlib import Path
from typing import Literal

import optuna

from kernelwright.agents.coder.model import CODER
from kernelwright.agents.coder.sampler import FAILED
from kernelwright.agents.planner.model import PLANNER
from kernelwright.agents.role import RoleSetting
from kernelwright.agents.roles import AgentSet, GivenCoder
from kernelwright.agents.roles.remembered import Memories, RememberingPlanner
from kernelwright.agents.shared.noise import BAND
from kernelwright.graphs.search.context import Circumstances, MakeAgents
from kernelwright.graphs.search.control import Control
from kernelwright.graphs.search.run import start_search
from kernelwright.graphs.suite.ablation import budget
from kernelwright.graphs.suite.surface_memory import memories_for
from kernelwright.profiles.load import Part, SearchProfile, hardware_profile
from kernelwright.tools.codegen.library.kernel_library import repertoire_for
from kernelwright.tools.evaluate.executors.surface import SurfaceExecutor
from kernelwright.tools.evaluate.surfaces import Point, RecordedRepertoire, Surface
from kernelwright.tools.languages import only_measured
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Refusal, Task, TracePolicy, Value

RANDOM, OPTUNA, WHOLE = "random", "optuna", "whole"
# What can be taken away or added: parts of a search, a library of other loops' kernels, and rounds
# that are sized by what is known.
Judged = Part | Literal["memory", "sizes"]
MEMORY, SIZES = "with memory", "sizes"
_WITHOUT, _WITH = "without ", "with "
# A run that nobody will look at need not reach a disk.
_IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
# More than any search needs for its evaluations; fewer than one that finds nothing to try takes.
_ROUNDS = 60


class Trail(Value):
    """What one search asked for, in order: times in ms, infinite where there was none.

    `times_ms` are as recorded, `told_ms` as the search was told them.
    """

    loop: str
    policy: str
    seed: int
    times_ms: tuple[float, ...]
    told_ms: tuple[float, ...]

    def best_ms(self, evaluations: int) -> float:
        """The time of what it takes for the fastest of the first so many; infinite for none."""
        told = self.told_ms[:evaluations]
        return self.times_ms[told.index(min(told))] if told else inf


# A median of so many samples, as a screening's, has this share of a sample's deviation.
_OF_A_SAMPLE = 1.2533 / 3.0


class Noise:
    """Tells recorded measurements as another search would have made them."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def __call__(self, point: Point) -> Point:
        """The same with a time drawn around the recorded one; the same seed draws the same."""
        if point.median_ms is None or not point.p10_ms or not point.p90_ms:
            return point
        deviation = log(point.p90_ms / point.p10_ms) / BAND * _OF_A_SAMPLE
        dice = random.Random(f"{self._seed}:{point.key}")
        factor = exp(dice.gauss(0.0, deviation))
        times = (point.median_ms, point.p10_ms, point.p90_ms)
        names = ("median_ms", "p10_ms", "p90_ms")
        moved = {name: ms * factor for name, ms in zip(names, times, strict=True)}
        return point.model_copy(update=moved)


def policies(parts: Sequence[Judged], profile: SearchProfile) -> tuple[str, ...]:
    """What is compared: chance, Optuna alone, the search, and it without each part.

    Parts that rules do not steer by as a rule are added instead of taken away, and so is memory:
    searches of recordings begin with nothing.
    """
    idle = {"contrast", "archive", "memory"} - {*profile.rules_steer_by}
    idle |= {SIZES} if profile.round_size == "fixed" else set()
    changed = (f"{_WITH if part in idle else _WITHOUT}{part}" for part in parts)
    return (RANDOM, OPTUNA, WHOLE, *changed)


def changed(profile: SearchProfile, policy: str) -> SearchProfile:
    """The profile of a policy that is a search."""
    if policy.endswith(SIZES):
        size = "by what is known" if policy.startswith(_WITH) else "fixed"
        return budget(SearchProfile.model_validate(profile.model_dump() | {"round_size": size}), ())
    if policy.startswith(_WITH) and policy != MEMORY:
        steering = {"rules_steer_by": (policy.removeprefix(_WITH),)}
        profile = SearchProfile.model_validate(profile.model_dump() | steering)
    without = (policy.removeprefix(_WITHOUT),) if policy.startswith(_WITHOUT) else ()
    return budget(profile, without)


async def follow(
    surface: Surface,
    policy: str,
    profile: SearchProfile,
    seed: int,
    evaluations: int,
    others: Sequence[Surface] = (),
) -> Trail:
    """Let a policy spend so many evaluations on a recorded loop; `others` may be remembered.

    Raises:
        ValueError: When the loop's module cannot be traced any more.
    """
    noise = Noise(seed)
    if policy == RANDOM:
        asked = _by_chance(surface, seed, evaluations)
    elif policy == OPTUNA:
        asked = _by_optuna(surface, seed, evaluations, noise)
    else:
        remembered = others if policy == MEMORY else ()
        asked = await _by_search(surface, changed(profile, policy), seed, evaluations, remembered)
    return Trail(
        loop=surface.space.name,
        policy=policy,
        seed=seed,
        times_ms=tuple(map(_time_ms, asked)),
        told_ms=tuple(_time_ms(noise(point)) for point in asked),
    )


def _time_ms(point: Point) -> float:
    return inf if point.median_ms is None else point.median_ms


def _by_chance(surface: Surface, seed: int, evaluations: int) -> Sequence[Point]:
    dice = random.Random(f"{seed}:{surface.space.name}")
    return dice.sample(surface.points, min(evaluations, len(surface.points)))


def _by_optuna(surface: Surface, seed: int, evaluations: int, noise: Noise) -> Sequence[Point]:
    """A way first, then its settings; the nearest open point of that way is taken."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, group=True)
    study = optuna.create_study(sampler=sampler)
    open_ones: dict[int, list[Point]] = {}
    for point in surface.points:
        open_ones.setdefault(point.way, []).append(point)
    values = {
        way: [tuple(sorted({*of})) for of in zip(*(p.values for p in points), strict=True)]
        for way, points in open_ones.items()
    }
    told: list[Point] = []
    while len(told) < evaluations and any(open_ones.values()):
        trial = study.ask()
        way = trial.suggest_categorical("way", sorted(values))
        wanted = tuple(
            trial.suggest_categorical(f"{way}:{number}", of)
            for number, of in enumerate(values[way])
        )
        if not open_ones[way]:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            way = random.Random(f"{seed}:{len(told)}").choice(
                [w for w, of in open_ones.items() if of]
            )
        point = min(open_ones[way], key=lambda one: _unlike(one.values, wanted))
        open_ones[way].remove(point)
        told.append(point)
        if trial.params["way"] == way:
            median_ms = noise(point).median_ms
            study.tell(trial, log(median_ms) if median_ms else FAILED)
    return told


def _unlike(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    return sum(a != b for a, b in zip(one, other, strict=False))


async def _by_search(
    surface: Surface,
    profile: SearchProfile,
    seed: int,
    evaluations: int,
    others: Sequence[Surface],
) -> Sequence[Point]:
    task, repertoire = _known(surface)
    hardware, control = hardware_profile(surface.space.hardware), Control()
    told: list[Point] = []

    def asked(point: Point) -> None:
        told.append(point)
        if len(told) >= evaluations:
            control.stop("the evaluations are spent")

    judge = SurfaceExecutor(surface, task, hardware, asked, Noise(seed))
    with (
        tempfile.TemporaryDirectory(dir=_IN_MEMORY) as home,
        only_measured(surface.settings_of),
    ):
        known = memories_for(surface, others, hardware, lambda: repertoire)
        await start_search(
            Path(task.path),
            TracePolicy(),
            hardware.kind,
            profile,
            seed=seed,
            home=Path(home),
            control=control,
            executor=judge,
            make_agents=_agents(repertoire, known),
            task=task,
            fresh=True,
        )
    return told[:evaluations]


def _agents(repertoire: RecordedRepertoire, known: Memories) -> MakeAgents:
    """The playbook's agents over a recording's repertoire; they begin with what is known."""

    def make(around: Circumstances) -> AgentSet:
        setting = RoleSetting(around.task, around.hardware, repertoire, None)
        agents = AgentSet({role.name: role.agent(setting, None) for role in around.roles})
        if not known.items:
            return agents
        begun = agents.replaced(PLANNER, RememberingPlanner(agents.planner, known))
        return begun.replaced(CODER, GivenCoder(agents.coder, known.candidates))

    return make


_traced: dict[str, tuple[Task, RecordedRepertoire]] = {}


def _known(surface: Surface) -> tuple[Task, RecordedRepertoire]:
    """The loop as a task, and what it may be written as; worked out once in a process."""
    space = surface.space
    if space.module not in _traced:
        found = trace(space.module, f"{space.name}.py", TracePolicy(device="cpu"))
        if isinstance(found, Refusal):
            raise ValueError(f"{space.name}: {found.sentence}")
        today = repertoire_for(found, hardware_profile(space.hardware))
        _traced[space.module] = found, RecordedRepertoire(space, today)
    return _traced[space.module]


def endless(profile: SearchProfile) -> SearchProfile:
    """The profile without what ends a search before its evaluations are spent."""
    limits = {
        "seconds": 1e9,
        "rounds": _ROUNDS,
        "stop_at_floor_fraction": 1.0,
        "profiling_seconds": 0,
    }
    return SearchProfile.model_validate(profile.model_dump() | limits)
