"""A bundle: a folder with a manifest of what to measure, and the results beside it.

    003-1f0c9a2b7d/bundle.json      what to do; never changed after it was written
    003-1f0c9a2b7d/results/*.json   one file a job, each written at once when it is known
    003-1f0c9a2b7d/done.json        the list of results with their hashes; the last file written

Every file appears by one rename, so it is complete or it is not there.
"""

import os
from hashlib import sha256
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import ValidationError

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.executors.base.executor import BatchRequest
from kernelwright.tools.types import (
    Baselines,
    Effort,
    Evaluation,
    Profile,
    Refusal,
    Task,
    Value,
)

FORMAT = 1
PROBE = "probe"
_PROFILE = "profile-"
MANIFEST, DONE, RESULTS = "bundle.json", "done.json", "results"


class BundleError(ValueError):
    """A bundle or its results cannot be used; the message says why in one sentence."""


class Manifest(Value):
    """What a bundle is for.

    `device` is the name of the device that the run is measured on, "" before that is known;
    `baselines` what is known of PyTorch's own times there.
    """

    format: int = FORMAT
    run: str
    number: int
    target: Literal["cuda", "cpu"]
    device: str = ""
    seed: int = 0
    task: Task
    baselines: Baselines | None = None
    errand: BatchRequest


class Probed(Value):
    """What the far host said about itself and the task; a refusal where it cannot be judged."""

    hardware: Hardware
    warnings: tuple[str, ...] = ()
    baselines: Baselines | None = None
    refusal: Refusal | None = None


class Result(Value):
    """One job's outcome as JSON text, with what it belongs to."""

    bundle: str
    job: str
    sha256: str
    payload: str


class Entry(Value):
    """A job in the list of what was done."""

    job: str
    sha256: str


class Done(Value):
    """The end of a bundle: all results there are; `seconds` the far host took in its last turn."""

    bundle: str
    device: str
    seconds: float
    entries: tuple[Entry, ...]


Payload = TypeVar("Payload", bound=Value)
Content = TypeVar("Content", bound=Value)


class Bundle:
    """The folder of one bundle, on either side.

    Raises:
        BundleError: From any method, when the folder is not what it should be.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        text = _text(folder / MANIFEST)
        if text is None:
            raise BundleError(f"{folder} is not a bundle: there is no {MANIFEST} in it")
        self.manifest = _parse(folder / MANIFEST, text, Manifest)
        self.digest = digest(text)
        if self.manifest.format != FORMAT:
            raise BundleError(
                f"{folder} has format {self.manifest.format}, this Kernelwright knows {FORMAT}"
            )

    @classmethod
    def write(cls, folder: Path, manifest: Manifest) -> "Bundle":
        """Make the folder of a new bundle; one that is complete there already stays."""
        if not (folder / MANIFEST).exists():
            folder.mkdir(parents=True, exist_ok=True)
            write_durably(folder / MANIFEST, manifest.model_dump_json(indent=1))
        return cls(folder)

    @property
    def done(self) -> Done | None:
        """The list of results, once all of them are there."""
        text = _text(self.folder / DONE)
        if text is None:
            return None
        done = _parse(self.folder / DONE, text, Done)
        if done.bundle != self.digest:
            raise BundleError(f"{self.folder / DONE} belongs to another bundle")
        return done

    @property
    def results(self) -> int:
        """How many results there are so far."""
        return len(list((self.folder / RESULTS).glob("*.json")))

    def is_whole(self, done: Done) -> bool:
        """Whether every result that is listed is there."""
        return all(self._place(entry.job).exists() for entry in done.entries)

    def put(self, job: str, payload: Value) -> None:
        """Keep the outcome of a job."""
        text = payload.model_dump_json()
        result = Result(bundle=self.digest, job=job, sha256=digest(text), payload=text)
        (self.folder / RESULTS).mkdir(exist_ok=True)
        write_durably(self._place(job), result.model_dump_json(indent=1))

    def get(self, job: str, kind: type[Payload]) -> Payload | None:
        """The outcome of a job, None while it is not there."""
        path = self._place(job)
        text = _text(path)
        if text is None:
            return None
        result = _parse(path, text, Result)
        if result.bundle != self.digest or result.job != job:
            raise BundleError(f"{path} is the result of another bundle or job")
        if result.sha256 != digest(result.payload):
            raise BundleError(f"{path} was changed after it was written")
        return _parse(path, result.payload, kind)

    def finish(self, device: str, seconds: float, jobs: list[str]) -> Done:
        """Say that everything was done."""
        entries = tuple(Entry(job=job, sha256=self._payload_digest(job)) for job in jobs)
        done = Done(bundle=self.digest, device=device, seconds=seconds, entries=entries)
        write_durably(self.folder / DONE, done.model_dump_json(indent=1))
        return done

    def evaluations(self, done: Done) -> dict[tuple[str, Effort], Evaluation]:
        """Every evaluation of a finished bundle, by candidate and effort."""
        found: dict[tuple[str, Effort], Evaluation] = {}
        for entry in done.entries:
            if entry.job == PROBE or entry.job.startswith(_PROFILE):
                continue
            evaluation = self.get(entry.job, Evaluation)
            effort, _, candidate = entry.job.partition("-")
            if evaluation is None or self._payload_digest(entry.job) != entry.sha256:
                raise BundleError(f"{self._place(entry.job)} is not what {DONE} lists")
            if evaluation.candidate != candidate:
                raise BundleError(f"{self._place(entry.job)} judges another candidate")
            found[candidate, _effort(effort)] = evaluation
        return found

    def profiles(self, done: Done) -> dict[str, Profile]:
        """What profilers of the device measured for a finished bundle, by candidate."""
        found: dict[str, Profile] = {}
        for entry in done.entries:
            if not entry.job.startswith(_PROFILE):
                continue
            profile = self.get(entry.job, Profile)
            if profile is None or self._payload_digest(entry.job) != entry.sha256:
                raise BundleError(f"{self._place(entry.job)} is not what {DONE} lists")
            if profile.candidate != entry.job.removeprefix(_PROFILE):
                raise BundleError(f"{self._place(entry.job)} is about another candidate")
            found[profile.candidate] = profile
        return found

    def _payload_digest(self, job: str) -> str:
        path = self._place(job)
        text = _text(path)
        if text is None:
            raise BundleError(f"{path} is missing, although the bundle is said to be done")
        return _parse(path, text, Result).sha256

    def _place(self, job: str) -> Path:
        if Path(job).name != job:
            raise BundleError(f"{self.folder} names a job {job!r} that is none")
        return self.folder / RESULTS / f"{job}.json"


def job_name(candidate: str, effort: Effort) -> str:
    """What an evaluation's job is called in a bundle."""
    return f"{effort}-{candidate}"


def profile_name(candidate: str) -> str:
    """What the job of a candidate's profile is called in a bundle."""
    return f"{_PROFILE}{candidate}"


def digest(text: str) -> str:
    """The SHA-256 of a text, in hexadecimal digits."""
    return sha256(text.encode()).hexdigest()


def write_durably(path: Path, text: str) -> None:
    """Let a file appear complete, and stay though the machine dies in the next moment."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    with scratch.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    scratch.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _effort(word: str) -> Effort:
    match word:
        case "screen" | "precise" | "certify":
            return word
    raise BundleError(f"there is no effort {word!r}")


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise BundleError(f"{path} cannot be read ({type(error).__name__})") from None


def _parse(path: Path, text: str, kind: type[Content]) -> Content:
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BundleError(f"{path} cannot be read: {where or 'it'}: {first['msg']}") from None
