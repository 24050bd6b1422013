"""Suites from the command line: run one with a live table, sum one up, compare two."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from rich.text import Text

from kernelwright.graphs.regions.search import RegionsChoice
from kernelwright.graphs.suite import Outcome, Terms, append, contrast, read, task_files
from kernelwright.graphs.suite.outcome import ResultsError, begin
from kernelwright.graphs.suite.runner import Begun, source_sha256
from kernelwright.profiles.load import SearchProfile
from kernelwright.tools.archive import default_home
from kernelwright.tools.evaluate.executors.base.executor import HEARER
from kernelwright.tools.evaluate.executors.cluster.messages import Ground
from kernelwright.tools.evaluate.rules import Depth, Rules
from kernelwright.tools.runtime import kernelwright_version
from kernelwright.ui.cli.cluster import spread_over_cluster
from kernelwright.ui.cli.optimize import SearchOptions, chosen_profile
from kernelwright.ui.complaints import Complaint, writable_file
from kernelwright.ui.model_choice import Choice, chosen_models
from kernelwright.ui.suite import Gpu, Share, chosen_gpus, spread
from kernelwright.ui.terminal.output import console, remarks
from kernelwright.ui.terminal.suite_tables import Board, board, contrast_table, summary_of

INTERRUPTED = 130
# Runs what is left: in this process, by one for each of several GPUs, or on a cluster.
Work = Callable[[Begun], AsyncIterator[Outcome]]
_DIGITS = 12
# Seconds that profilers may take for a file whose counters were asked for.
COUNTING_S = 40.0


@dataclass(frozen=True)
class Suite:
    """What the person wants of a suite; `search` is "" for baselines alone.

    `on` is the cluster that it is run on, None for this machine.
    """

    match: tuple[str, ...] = ()
    search: str = "quick"
    out: Path | None = None
    resume: bool = False
    seconds: float | None = None
    target: Literal["auto", "cuda", "cpu"] = "auto"
    seed: int = 0
    evidence: Depth = "full"
    home: Path | None = None
    gpus: str = ""
    on: Ground | None = None
    load_seconds: float = 60.0
    regions: RegionsChoice = "auto"
    models: Choice = field(default_factory=Choice)


def bench(what: tuple[str, ...], suite: Suite) -> None:
    """Do what the words ask for; a folder called `summary` is meant by `./summary`."""
    match what:
        case ("summary", path):
            console().print(summary_of(results(Path(path))))
        case ("compare", first, second):
            found = contrast(results(Path(first)), results(Path(second)))
            console().print(contrast_table(found, Path(first).name, Path(second).name))
        case ("summary" | "compare", *_):
            raise Complaint("say: bench summary RESULTS, or bench compare RESULTS RESULTS")
        case (folder,):
            run(Path(folder), suite)
        case _:
            raise Complaint("one folder at a time")


def results(path: Path) -> tuple[Outcome, ...]:
    """The outcomes of a result file; Complaint when it is none, or has none."""
    try:
        found = read(path)
    except ResultsError as error:
        raise Complaint(str(error)) from None
    if not found:
        raise Complaint(f"{path} has no outcomes")
    return found


def run(folder: Path, suite: Suite) -> None:
    """Run a suite and sum it up, what an earlier session did included."""
    if not folder.is_dir():
        raise Complaint(f"{folder} is no folder")
    gpus = _chosen(suite)
    files = tuple(path.absolute() for path in task_files(folder, suite.match))
    if not files:
        of = f" that fits {', '.join(suite.match)}" if suite.match else ""
        raise Complaint(f"{folder} holds no Python file{of}")
    profile = _profile(suite)
    terms = _terms(suite, profile)
    known = _known(suite, terms, files)
    done = {(item.file, item.device) for item in known}
    share = Share(
        files=tuple(str(path) for path in files if (path.name, "") not in done),
        profile=profile,
        terms=terms,
        target=suite.target,
        home=str((suite.home or default_home()).absolute()),
        models=chosen_models(suite.models),
        evidence=suite.evidence,
        load_seconds=suite.load_seconds,
        regions=suite.regions,
    )
    kinds = suite.on.kinds if suite.on is not None else ("",)
    known = tuple(item for item in known if item.device in kinds)

    def working(begun: Begun) -> AsyncIterator[Outcome]:
        if suite.on is not None:
            return spread_over_cluster(
                files, tuple(done), profile, terms, share.ground, suite.on, begun
            )
        return spread(share, gpus, begun) if gpus else share.run(begun)

    total = len(files) * len(kinds)
    interrupted = asyncio.run(_see_through(working, known, suite.out, total))
    if interrupted:
        raise Complaint(_go_on(suite), INTERRUPTED)


async def _see_through(work: Work, known: Sequence[Outcome], out: Path | None, total: int) -> bool:
    """Run what is left; answers whether the person interrupted it."""
    found = list(known)
    with board(total, known) as live:
        HEARER.set(lambda words: remarks().print(Text(words, style="dim")))
        working = asyncio.ensure_future(_work(work, found, out, live))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, working.cancel)
        interrupted = False
        try:
            await working
        except asyncio.CancelledError:
            interrupted = True
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
    if found:
        console().print(summary_of(found))
    return interrupted


async def _work(work: Work, found: list[Outcome], out: Path | None, live: Board) -> None:
    """Keep and show every outcome as it comes."""
    outcomes = work(live.begin)
    async with aclosing(outcomes):  # type: ignore[type-var]
        async for outcome in outcomes:
            if out is not None:
                append(out, outcome)
            found.append(outcome)
            live.end(outcome)


def _chosen(suite: Suite) -> tuple[Gpu, ...]:
    if suite.gpus and suite.target == "cpu":
        raise Complaint("--gpus names GPUs, but --target is cpu")
    if suite.gpus and suite.on is not None:
        raise Complaint("--gpus names GPUs of this machine; with --executor ray say --gpu")
    return chosen_gpus(suite.gpus)


def _profile(suite: Suite) -> SearchProfile | None:
    if not suite.search:
        return None
    found = chosen_profile(suite.search, SearchOptions(seconds=suite.seconds, models=suite.models))
    changes: dict[str, object] = {"seconds_hold": "searching"} if suite.seconds is not None else {}
    changes |= {"profiling_seconds": 0.0} if suite.evidence in ("timing", "autotune") else {}
    counting_s = max(found.profiling_seconds, COUNTING_S)
    changes |= {"profiling_seconds": counting_s} if suite.evidence == "counters" else {}
    return found.model_copy(update=changes)


def _terms(suite: Suite, profile: SearchProfile | None) -> Terms:
    figures = Rules.of(suite.evidence).model_dump_json()
    figures += profile.model_dump_json() if profile is not None else ""
    return Terms(
        search=suite.search,
        seconds=suite.seconds,
        seed=suite.seed,
        target=suite.target,
        kernelwright=kernelwright_version(),
        torch=version("torch"),
        evidence=suite.evidence,
        regions=suite.regions if profile is not None else "off",
        figures=sha256(figures.encode()).hexdigest()[:_DIGITS],
    )


def _known(suite: Suite, terms: Terms, files: Sequence[Path]) -> tuple[Outcome, ...]:
    """What `--out` has of these files already; a file that changed since is done again."""
    if suite.out is None:
        if suite.resume:
            raise Complaint("--resume goes on with the file that --out names")
        return ()
    writable_file(suite.out)
    if not suite.out.exists() or not suite.out.stat().st_size:
        return ()
    if not suite.resume:
        raise Complaint(f"{suite.out} is there already: go on with --resume, or name another")
    before = results(suite.out)
    if other := next((item for item in before if item.terms != terms), None):
        raise Complaint(
            f"{suite.out} was made under other terms ({_words(other.terms)}) than these "
            f"({_words(terms)}): name another file"
        )
    shas = {path.name: source_sha256(path) for path in files}
    kept = tuple(item for item in before if shas.get(item.file, item.sha256) == item.sha256)
    begin(suite.out, kept)
    if kept:
        remarks().print(f"{len(kept)} of {len(files)} are there already")
    return tuple(item for item in kept if item.file in shas)


def _words(terms: Terms) -> str:
    limit = f", {terms.seconds:g} s" if terms.seconds else ""
    evidence = f", evidence of {terms.evidence}" if terms.evidence != "full" else ""
    return (
        f"{terms.search or 'baselines only'}{limit}{evidence}, regions {terms.regions}, "
        f"seed {terms.seed}, {terms.target}, kernelwright {terms.kernelwright}, "
        f"torch {terms.torch}, figures {terms.figures or 'not kept'}"
    )


def _go_on(suite: Suite) -> str:
    if suite.out is None:
        return "interrupted; without --out nothing but the runs was kept"
    return "interrupted; go on with the same command and --resume"
