"""What a search takes out of the user's library of verified kernels, and what it puts in.

What was taken is kept with the run, so that a resume or a replay begins alike whatever the library
holds by then. A library that cannot be read or written costs a search nothing but a note.
"""

import logging
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from kernelwright.agents.coder.model import CODER
from kernelwright.agents.planner.model import PLANNER
from kernelwright.agents.roles import AgentSet, GivenCoder
from kernelwright.agents.roles.composed import Compositions
from kernelwright.agents.roles.remembered import Memories, RememberingPlanner
from kernelwright.agents.roles.remembered import memories as remembered
from kernelwright.graphs.search.options.run_terms import (
    composed,
    compositions_of,
    keep_composed,
    starting_from,
)
from kernelwright.profiles.load import Hardware, SearchProfile
from kernelwright.tools.archive import Archive, Standing
from kernelwright.tools.codegen.library.kernel_library import Repertoire
from kernelwright.tools.memory import (
    BROKEN,
    Kept,
    KernelLibrary,
    Proof,
    Shaped,
    device_of,
    is_near,
    key_of,
)
from kernelwright.tools.runtime import kernelwright_version
from kernelwright.tools.types import Task, Verdict

log = logging.getLogger(__name__)

_TERM = "library"
_NO_FAULT = (Verdict.CORRECT, Verdict.TIMED_OUT, Verdict.OUT_OF_MEMORY)
# What has a part in how fast a kernel is, beside our own version.
_PACKAGES = ("torch", "nvidia-cuda-nvrtc", "cuda-core")


def keep_fresh(archive: Archive) -> None:
    """Let a new run, and the searches over its regions, begin without the library."""
    archive.record_term(_TERM, Memories(fresh=True).model_dump_json())


def keep_memories(archive: Archive, task: Task, hardware: Hardware, profile: SearchProfile) -> None:
    """Look the task up in the library, and keep with a new run what it begins with."""
    key = key_of(task)
    if key is None:
        return
    library, device = KernelLibrary(_home(archive)), device_of(hardware)
    try:
        exactly = library.exactly(key, hardware.kind, device)
        like = () if exactly else library.like(key, hardware.kind, device)
        if "memory" not in profile.rules_steer_by:
            like = tuple(item for item in like if is_near(item.key, key))
        found = remembered(
            [item for item in exactly if _fits(item, hardware)],
            [item for item in like if _fits(item, hardware)],
            key,
            lambda: _repertoire(task, hardware),
            device=device,
            seconds=profile.seconds,
        )
        if found.items:
            taken = {item.kept for item in found.items}
            library.used(item for item in (*exactly, *like) if item.id in taken)
    except BROKEN as error:
        log.warning("the library of kernels cannot be read: %s", error)
        return
    if found.items or found.notes:
        archive.record_term(_TERM, found.model_dump_json())
    if found.alone:
        # What is known of the whole stands for its regions too.
        keep_composed(archive, Compositions())


def _home(archive: Archive) -> Path:
    return archive.folder.parent.parent


def memories_of(archive: Archive) -> Memories:
    """What a run begins with out of the library."""
    kept = archive.term(_TERM)
    return Memories.model_validate_json(kept) if kept else Memories()


def begun_with(archive: Archive, agents: AgentSet) -> AgentSet:
    """Agents that begin with the person's kernel, regions and the library's, as a run has them."""
    agents, given = composed(archive, starting_from(archive, agents)), memories_of(archive)
    if not given.items:
        return agents
    begun = agents.replaced(PLANNER, RememberingPlanner(agents.planner, given))
    return begun.replaced(CODER, GivenCoder(agents.coder, given.candidates))


def is_settled(archive: Archive, candidate: str) -> bool:
    """Whether that is a kernel which an equally thorough search tuned for this task and device."""
    items = memories_of(archive).items
    return any(item.settled and item.candidate.id == candidate for item in items)


def put_into_library(
    archive: Archive,
    hardware: Hardware,
    winner: Standing | None,
    *,
    floor_ms: float,
    certified: bool,
    whole: bool = True,
) -> None:
    """Keep the result of a search that ended, if it was found right and timed in turns.

    What the search had out of the library and the judge refused is in there no more.

    Args:
        archive: of the run.
        hardware: the device.
        winner: what the run's summary stands for.
        floor_ms: of the task.
        certified: whether the judge certified it, rather than looked at it precisely.
        whole: whether it went on as far as it was allowed, and no near task's result ended it.
    """
    library = KernelLibrary(_home(archive))
    try:
        library.drop(_refused(archive))
        if winner is None or winner.effort != "certify" or not winner.evaluation.comparisons:
            return
        kept = _kept(archive, hardware, winner, floor_ms, certified=certified, whole=whole)
        if kept is not None:
            library.keep([kept])
        # Of a model its regions' kernels; any other parent is none that runs in it.
        known = {item.candidate.id for item in compositions_of(archive).items}
        parts = winner.candidate.parents if winner.candidate.id in known else ()
        claim = winner.evaluation.claim
        if certified and parts and claim is not None and claim.outcome == "faster":
            library.certify(parts, device_of(hardware))
    except BROKEN as error:
        log.warning("the library of kernels cannot be written: %s", error)


def _refused(archive: Archive) -> list[str]:
    """The kernels of this very task that did not hold; a busy device is no reason."""
    found = []
    for item in memories_of(archive).items:
        evaluation = archive.evaluation(item.candidate.id)
        if item.exact and evaluation is not None and evaluation.verdict not in _NO_FAULT:
            found.append(item.kept)
    return found


def _kept(
    archive: Archive,
    hardware: Hardware,
    winner: Standing,
    floor_ms: float,
    *,
    certified: bool,
    whole: bool,
) -> Kept | None:
    record, evaluation = archive.record(), winner.evaluation
    key, hardest = key_of(record.task), evaluation.hardest
    if key is None or hardest is None:
        return None
    found = evaluation.verification
    screened = archive.evaluation(winner.candidate.id, "screen")
    screened_ms = screened.median_ms if screened is not None else None
    proof = Proof(
        median_ms=hardest.candidate_ms,
        baseline=hardest.baseline,
        ratio=hardest.ratio,
        ci95=(hardest.ci95_low, hardest.ci95_high),
        floor_fraction=floor_ms / hardest.candidate_ms,
        method=found.method,
        coverage=found.coverage,
        precision=found.precision,
        certified=certified,
        outcome=evaluation.claim.outcome if evaluation.claim is not None else "",
        seconds=record.profile.seconds if whole else archive.spent_s(),
        screened_share=floor_ms / screened_ms if whole and screened_ms else 0.0,
        conditions=hardest.conditions,
    )
    tensors = (item.tensor for item in record.task.inputs if item.tensor is not None)
    return Kept.of(
        winner.candidate,
        key,
        inputs=tuple(Shaped(shape=spec.shape, dtype=spec.dtype.value) for spec in tensors),
        device=device_of(hardware),
        kind=hardware.kind,
        architecture=hardware.architecture or "",
        proof=proof,
        versions=_versions(),
        at=datetime.now(UTC),
        task=record.task.name,
        run=record.id,
    )


def _fits(item: Kept, hardware: Hardware) -> bool:
    """Whether a kernel for that device can be built for this one at all."""
    return item.architecture in ("", hardware.architecture)


def _versions() -> tuple[tuple[str, str], ...]:
    found: list[tuple[str, str]] = [("kernelwright", kernelwright_version())]
    for name in _PACKAGES:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:
            continue
    return tuple(found)


def _repertoire(task: Task, hardware: Hardware) -> Repertoire:
    from kernelwright.tools.codegen.library.kernel_library import repertoire_for

    return repertoire_for(task, hardware)
