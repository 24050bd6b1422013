"""The search's side: an executor whose device is elsewhere.

Files are traced and sources compiled here, so that what a compiler refuses needs no trip; all
else is written into a bundle. While its results are missing `AwaitingError` says what to do; once
the folder is filled in, the same question is answered from it.
"""

from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.executors.base.executor import BatchRequest, Capabilities, Executor
from kernelwright.tools.evaluate.executors.batch.bundle import (
    DONE,
    PROBE,
    Bundle,
    BundleError,
    Done,
    Manifest,
    Probed,
)
from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.executors.local.workshop import task_key
from kernelwright.tools.evaluate.profiling.local import not_asked
from kernelwright.tools.evaluate.sandbox.worker import not_compiled
from kernelwright.tools.languages import CompileFailure, compile_candidate
from kernelwright.tools.types import (
    UNBUILT,
    Baselines,
    Candidate,
    Effort,
    EnvironmentLacksError,
    Evaluation,
    Isolation,
    Profile,
    Refusal,
    Task,
    TracePolicy,
    WallKind,
)
from kernelwright.tools.types.value import AwaitingError

_COUNTERS = {"profiled", "profiling_s"}


class BatchExecutor(Executor):
    """An executor that writes bundles. Close it with `aclose`.

    Args:
        hardware: The device as far as it is known; a profile's figures before the first results.
        scratch: A folder of its own, for the worker that traces.
        seed: Every draw of inputs and weights on the far host follows from it.
    """

    capabilities = Capabilities(remote=True)

    def __init__(self, hardware: Hardware, scratch: Path, *, seed: int = 0) -> None:
        self._hardware = hardware
        self._here = LocalExecutor.create("cpu", scratch, seed)
        self._seed = seed
        self._run = ""
        self._folder = scratch / "bundles"
        self._baselines: dict[str, Baselines] = {}
        self._warnings: dict[str, tuple[str, ...]] = {}
        self._known: dict[tuple[str, Effort], Evaluation] = {}
        self._profiles: dict[str, Profile] = {}

    @property
    def isolation(self) -> Isolation:
        """How workers are kept apart."""
        return Isolation(
            kind=WallKind.UNKNOWN, words="workers on another host; each evaluation says how"
        )

    def attach(self, run: str, folder: Path) -> None:
        """Say which run asks, and in which folder its bundles live; take in what is there."""
        self._run, self._folder = run, folder
        for path in sorted(folder.glob("[0-9]*-*")):
            # One that cannot be read is refused when it is wanted.
            with suppress(BundleError):
                self._take_in(Bundle(path))

    async def hardware(self) -> Hardware:
        """The device: what the far host said, or a profile before it did."""
        return self._hardware

    async def trace(self, path: Path, policy: TracePolicy) -> Task | Refusal:
        """Read a user's file here; whether it proves anything is found on the far host."""
        task = await self._here.read(path, policy)
        large = task.project.elsewhere if isinstance(task, Task) and task.project else ()
        if not large:
            return task
        listed = ", ".join(f"{item.path} ({item.size_bytes / 1e6:.1f} MB)" for item in large)
        return Refusal(
            sentence=f"{path.name} reads {listed}, which is too large to be carried in a bundle; "
            "let the file make such data itself, or search on the host with the GPU."
        )

    async def baselines(self, task: Task, *, eager_only: bool = False) -> Baselines | Refusal:
        """What PyTorch itself does there; all baselines are measured in one trip.

        Raises:
            AwaitingError: While the far host has not answered.
        """
        key = task_key(task)
        if key in self._baselines:
            return self._baselines[key]
        bundle, _ = self._trip(task, BatchRequest(probe=True))
        probed = bundle.get(PROBE, Probed)
        if probed is None:
            raise BundleError(f"{bundle.folder} is said to be done, but has no {PROBE}")
        if probed.refusal is not None or probed.baselines is None:
            return probed.refusal or Refusal(sentence=f"{task.name} has no baselines.")
        self._hardware = probed.hardware
        self._warnings[key] = probed.warnings
        self._baselines[key] = probed.baselines
        return probed.baselines

    def audited(self, task: Task) -> Task:
        """The task with what the far host's audit found worth a warning."""
        new = [item for item in self._warnings.get(task_key(task), ()) if item not in task.warnings]
        return task.model_copy(update={"warnings": (*task.warnings, *new)})

    def remember(self, task: Task, baselines: Baselines) -> None:
        """Take baselines that an earlier session learnt as known."""
        self._baselines[task_key(task)] = baselines

    async def check(self, candidate: Candidate) -> Evaluation | None:
        """Compile here: why the candidate cannot be built, or None when a trip is worth it."""
        limit_s = self._here.rules.compile_s
        try:
            built = await compile_candidate(
                candidate, architecture=self._hardware.architecture, timeout_s=limit_s
            )
        except EnvironmentLacksError:
            return None  # the far host will say
        if isinstance(built, CompileFailure):
            failed = not_compiled(candidate, built, UNBUILT)
            self._known[candidate.id, "screen"] = failed
            return failed
        return None

    async def fetch(self, task: Task, request: BatchRequest) -> None:
        """Make one trip for all of a request; `known` has its results afterwards.

        Raises:
            AwaitingError: While the far host has not answered.
            BundleError: When what came back is not what was sent.
        """
        bundle, done = self._trip(task, request)
        self._known |= bundle.evaluations(done)
        self._profiles |= bundle.profiles(done)

    def known(self, candidate: str, effort: Effort) -> Evaluation | None:
        """What trips of the run brought."""
        return self._known.get((candidate, effort))

    async def evaluate(self, task: Task, candidate: Candidate, effort: Effort) -> Evaluation:
        """What a trip brought, or a trip for this candidate alone.

        Raises:
            AwaitingError: While the far host has not answered.
        """
        if (known := self.known(candidate.id, effort)) is not None:
            return known
        if (failed := await self.check(candidate)) is not None:
            return failed
        await self.fetch(task, BatchRequest.model_validate({effort: (candidate,)}))
        return self._known[candidate.id, effort]

    async def profile(self, task: Task, candidate: Candidate) -> Profile:
        """What a trip brought along; none is made for that alone."""
        return self._profiles.get(candidate.id) or not_asked(
            candidate, "the far host was not asked for counters"
        )

    async def aclose(self) -> None:
        """End the worker that traces."""
        await self._here.aclose()

    def _take_in(self, bundle: Bundle) -> None:
        done = bundle.done
        if done is not None and bundle.manifest.run == self._run:
            self._known |= bundle.evaluations(done)
            self._profiles |= bundle.profiles(done)

    def _trip(self, task: Task, request: BatchRequest) -> tuple[Bundle, Done]:
        bundle = self._posted(task, request)
        done = bundle.done
        # Copied file by file, the list may arrive before what it lists.
        if done is None or not bundle.is_whole(done):
            raise self._awaiting(bundle)
        return bundle, done

    def _posted(self, task: Task, request: BatchRequest) -> Bundle:
        """The bundle of that request; it is written unless it is there."""
        plain = task.model_copy(update={"warnings": ()})
        key = _request_key(self._run, plain, request)
        there = sorted(self._folder.glob(f"*-{key[:12]}"))
        if there:
            bundle = Bundle(there[0])
            sent = bundle.manifest
            if _request_key(sent.run, sent.task, sent.errand) != key:
                raise BundleError(f"{bundle.folder} was changed, or belongs to another run")
            return bundle
        number = len(list(self._folder.glob("[0-9]*-*"))) + 1
        manifest = Manifest(
            run=self._run,
            number=number,
            target=self._hardware.kind,
            device="" if request.probe else self._hardware.name,
            seed=self._seed,
            task=plain,
            baselines=self._baselines.get(task_key(task)),
            errand=request,
        )
        return Bundle.write(self._folder / f"{number:03d}-{key[:12]}", manifest)

    def _awaiting(self, bundle: Bundle) -> AwaitingError:
        there = f" ({bundle.results} results are there)" if bundle.results else ""
        words = (
            f"the run waits for a bundle{there}: run `kernelwright work "
            f"{bundle.folder.absolute()}` on the host with {self._hardware.name}, bring the "
            f"folder back, and resume {self._run}"
        )
        return AwaitingError(words, (bundle.folder / DONE,))


def _request_key(run: str, task: Task, request: BatchRequest) -> str:
    """What tells requests apart."""
    # Requests from before profilers were asked keep their bundles.
    plain = request.model_dump_json(exclude=None if request.profiled else _COUNTERS)
    text = "\0".join((run, task_key(task), plain))
    return sha256(text.encode()).hexdigest()
