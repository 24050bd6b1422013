"""What is kept of a loop's settings space, and the folder that it is kept in.

`spaces.jsonl` has a line for each loop: what a planner may choose among, with predicted times, and
what a coder would write for each of these ways. `points-N.jsonl` has a line for each measurement:
a way under settings, with its time or with why it has none. Lines are only ever added, so that a
recording which is cut short is whole as far as it came; a file is not much larger than 12 MiB. To
be kept, files may be packed (`.gz`); what comes later goes into plain ones.

What is not covered: other inputs than those drawn under one seed, and noise that lasts longer than
one timing. A time is a screening's.
"""

import gzip
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import ValidationError

from kernelwright.tools.codegen.library.kernel_library import LibraryDraft, Option, Pick
from kernelwright.tools.types import (
    Candidate,
    CompileReport,
    LaunchShape,
    Setting,
    Value,
    Verdict,
)

SPACES, POINTS = "spaces.jsonl", "points-{}.jsonl"
FILE_BYTES = 12 << 20


class Way(Value):
    """One choice of strategies for a task, as it is written down.

    `valid` counts the settings that its kernel declares (4,096 at most), `drawn` those of them that
    are to be measured; `values` of points are of `tunables`, in that order.
    """

    picks: tuple[Pick, ...]
    draft: LibraryDraft
    tunables: tuple[str, ...]
    valid: int
    drawn: int

    @property
    def choices(self) -> dict[str, str]:
        """Loop to strategy."""
        return {pick.loop: pick.strategy for pick in self.picks}


class Space(Value):
    """One loop: its module's text, its options and ways; what it moves and counts."""

    name: str
    module: str
    hardware: str
    language: str
    fixed_ms: float
    floor_ms: float
    options: tuple[Option, ...]
    ways: tuple[Way, ...]

    @property
    def drawn(self) -> int:
        """How many points there are when the recording is complete."""
        return sum(way.drawn for way in self.ways)


class Point(Value):
    """One measurement; `p10_ms`, `median_ms` and `p90_ms` are None for what has no time.

    `way` is its number among the space's, -1 for PyTorch's eager mode. `error_ratio` is that of the
    judge: the candidate's error over PyTorch's own.
    """

    loop: str
    way: int
    values: tuple[int, ...] = ()
    verdict: Verdict = Verdict.CORRECT
    median_ms: float | None = None
    p10_ms: float | None = None
    p90_ms: float | None = None
    samples: int = 0
    error_ratio: float | None = None
    reason: str = ""
    reports: tuple[CompileReport, ...] = ()
    launches: tuple[LaunchShape, ...] = ()

    @property
    def key(self) -> tuple[str, int, tuple[int, ...]]:
        """What was measured."""
        return self.loop, self.way, self.values


@dataclass(frozen=True)
class Surface:
    """A loop with everything that was measured of it; `eager_ms` is PyTorch's own time."""

    space: Space
    points: tuple[Point, ...]
    eager_ms: float

    @cached_property
    def best_ms(self) -> float:
        """The optimum of what was measured."""
        return min(p.median_ms for p in self.points if p.median_ms is not None)

    def settings_of(self, kernel: str) -> tuple[tuple[Setting, ...], ...] | None:
        """The settings that were measured of a kernel's text; None for one that is not known."""
        way = self._number.get(kernel)
        return None if way is None else tuple(self._settings[way])

    def point_of(self, candidate: Candidate) -> Point | None:
        """What was measured of a candidate; None where nothing was."""
        way = self._number.get(candidate.kernel)
        return None if way is None else self._settings[way].get(candidate.settings)

    @cached_property
    def _number(self) -> dict[str, int]:
        return {way.draft.kernel: number for number, way in enumerate(self.space.ways)}

    @cached_property
    def _settings(self) -> list[dict[tuple[Setting, ...], Point]]:
        found: list[dict[tuple[Setting, ...], Point]] = [{} for _ in self.space.ways]
        for point in self.points:
            names = self.space.ways[point.way].tunables
            values = zip(names, point.values, strict=True)
            settings = tuple(Setting(name=name, value=value) for name, value in values)
            found[point.way][settings] = point
        return found


def append(folder: Path, line: Space | Point) -> None:
    """Add a line at the end; a full file of points is followed by another one."""
    if isinstance(line, Space):
        path = folder / SPACES
    else:
        path = points_files(folder)[-1] if points_files(folder) else folder / POINTS.format(0)
        if path.suffix == ".gz" or (path.exists() and path.stat().st_size > FILE_BYTES):
            path = folder / POINTS.format(len(points_files(folder)))
    with path.open("ab+") as file:
        # A process that was ended may have left half a line.
        if file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":
            file.write(b"\n")
        file.write(line.model_dump_json(exclude_defaults=True).encode() + b"\n")


def points_files(folder: Path) -> list[Path]:
    """The files of points, in the order in which they were written."""
    found = [*folder.glob("points-*.jsonl"), *folder.glob("points-*.jsonl.gz")]
    return sorted(found, key=lambda path: int(path.name[7:].partition(".")[0]))


def _lines(path: Path) -> list[str]:
    """The lines of a file, packed or not."""
    if path.suffix == ".gz":
        return gzip.decompress(path.read_bytes()).decode().splitlines()
    return path.read_text(encoding="utf-8").splitlines()


def known_spaces(folder: Path) -> dict[str, Space]:
    """Every loop of a folder by its name."""
    files = [path for path in (folder / SPACES, folder / f"{SPACES}.gz") if path.exists()]
    spaces = [Space.model_validate_json(line) for path in files for line in _lines(path)]
    return {space.name: space for space in spaces}


def read_points(folder: Path) -> Iterator[Point]:
    """Every measurement; lines that were cut off are left out."""
    for path in points_files(folder):
        for number, line in enumerate(_lines(path), start=1):
            try:
                yield Point.model_validate_json(line)
            except ValidationError as error:
                if line.endswith("}"):
                    raise ValueError(f"{path}: line {number} is no measurement") from error


def load_surfaces(folder: Path) -> tuple[Surface, ...]:
    """The loops of a folder of which something correct was measured.

    Raises:
        ValueError: When the folder holds no recording.
    """
    spaces = known_spaces(folder)
    if not spaces:
        raise ValueError(f"{folder} holds no recorded surfaces: there is no {SPACES}")
    points: dict[str, dict[tuple[str, int, tuple[int, ...]], Point]] = {n: {} for n in spaces}
    for point in read_points(folder):
        points[point.loop][point.key] = point
    return tuple(_surfaces(spaces, {n: list(of.values()) for n, of in points.items()}))


def _surfaces(
    spaces: Mapping[str, Space], points: Mapping[str, Iterable[Point]]
) -> Iterator[Surface]:
    for name, space in spaces.items():
        eager = [p.median_ms for p in points[name] if p.way < 0]
        ours = tuple(p for p in points[name] if p.way >= 0)
        if eager and eager[-1] and any(p.median_ms is not None for p in ours):
            yield Surface(space=space, points=ours, eager_ms=eager[-1])
