"""Searching from the command line: watch it, stop it cleanly, print and take home what it found."""

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Literal

from rich.text import Text

from kernelwright.graphs.gradients.search import shares, step_share, with_backward
from kernelwright.graphs.regions.search import RegionsChoice, by_regions
from kernelwright.graphs.run_view import story as stories
from kernelwright.graphs.run_view.events import EVENT, Event
from kernelwright.graphs.search.control import Control
from kernelwright.graphs.search.run import measure_again, resume_search, start_search
from kernelwright.graphs.search.summary import material_of
from kernelwright.profiles.load import SearchProfile, search_profile
from kernelwright.tools.archive import Archive, default_home
from kernelwright.tools.evaluate.executors.base.executor import HEARER
from kernelwright.tools.evaluate.executors.base.kind import ExecutorChoice
from kernelwright.tools.export import (
    ExportRefusedError,
    Material,
    check_place,
    export_folder,
    export_kernelbench,
    export_zip,
)
from kernelwright.tools.types import Refusal, TracePolicy
from kernelwright.tools.types.run import Summary
from kernelwright.tools.types.value import AwaitingError
from kernelwright.ui.cli.judge import read_start
from kernelwright.ui.complaints import (
    Complaint,
    allowed_precisions,
    existing_target,
    refused,
    writable_file,
)
from kernelwright.ui.model_choice import Choice, chosen_models, other_models
from kernelwright.ui.terminal.cards import leaderboard, result_card
from kernelwright.ui.terminal.output import STDOUT, check_json, console, remarks, write_json
from kernelwright.ui.terminal.progress import watcher

Listener = Callable[[Event], None]
Search = Callable[[Listener, Control], Coroutine[None, None, Summary | Refusal]]


@dataclass(frozen=True)
class SearchOptions:
    """What the person wants besides the search: limits, and where results go."""

    export: Path | None = None
    force: bool = False
    json: str | None = None
    rounds: int | None = None
    seconds: float | None = None
    wait: bool | None = None
    executor: ExecutorChoice | None = None
    start_from: Path | None = None
    allow: str | None = None
    load_seconds: float = 60.0
    makes: bool = False
    regions: RegionsChoice = "auto"
    fresh: bool = False
    evaluation: bool = False
    shapes: str = ""
    train: bool = False
    evidence: Literal["full", "timing"] = "full"
    models: Choice = field(default_factory=Choice)

    @property
    def patience_s(self) -> float:
        """How long to wait for somebody outside: to the end where somebody watches, else not."""
        waits = sys.stderr.isatty() if self.wait is None else self.wait
        return inf if waits else 0.0


def optimize(
    file: Path,
    entry: str | None,
    inputs: tuple[str, ...],
    target: Literal["auto", "cuda", "cpu"],
    search: str,
    home: Path | None,
    seed: int,
    options: SearchOptions,
) -> None:
    """Start a search over a file and see it through."""
    see_through(prepared(file, entry, inputs, target, search, home, seed, options), home, options)


def prepared(
    file: Path,
    entry: str | None,
    inputs: tuple[str, ...],
    target: Literal["auto", "cuda", "cpu"],
    search: str,
    home: Path | None,
    seed: int,
    options: SearchOptions,
) -> Search:
    """The search over a file, once all that was asked for is known to be possible; or Complaint."""
    file = existing_target(file)
    profile = chosen_profile(search, options)
    policy = TracePolicy(
        entry=entry,
        makes=options.makes,
        inputs=inputs,
        allow=allowed_precisions(options.allow),
        load_seconds=options.load_seconds,
        evaluation=options.evaluation,
        shapes=options.shapes,
    )
    check_places(options, home)
    start = read_start(options.start_from) if options.start_from else None
    models = chosen_models(options.models)

    forward, backward = shares(profile) if options.train else (profile, profile)

    async def begin(listener: Listener, control: Control) -> Summary | Refusal:
        found = await start_search(
            file,
            policy,
            target,
            forward,
            seed=seed,
            home=home,
            listener=listener,
            control=control,
            patience_s=options.patience_s,
            choice=options.executor,
            start=start,
            models=models,
            prepare=None if start else by_regions(options.regions),
            fresh=options.fresh,
            evidence=options.evidence,
        )
        if isinstance(found, Refusal) or not options.train:
            return found
        sys.stderr.write("searching kernels for the gradients\n")
        return await with_backward(
            found,
            step_share(profile, backward, found),
            seed=seed,
            home=home,
            models=models,
            choice=options.executor,
            control=control,
            fresh=options.fresh,
            evidence=options.evidence,
        )

    return begin


def resume(run: str, home: Path | None, options: SearchOptions) -> None:
    """Go on with a run and see it through."""
    check_places(options, home)
    models = other_models(options.models)

    async def go_on(listener: Listener, control: Control) -> Summary | Refusal:
        return await resume_search(
            run,
            home=home,
            rounds=options.rounds,
            seconds=options.seconds,
            tokens=options.models.tokens,
            usd=options.models.usd,
            models=models,
            listener=listener,
            control=control,
            patience_s=options.patience_s,
            prepare=by_regions("auto"),
        )

    see_through(go_on, home, options, told_before(run, home))


def measure(run: str, home: Path | None, json: str | None) -> None:
    """Certify a run's result again and see it through."""
    check_json(json)

    async def again(listener: Listener, control: Control) -> Summary | Refusal:
        return await measure_again(run, home=home, listener=listener, control=control)

    see_through(again, home, SearchOptions(json=json), told_before(run, home))


def told_before(run: str, home: Path | None) -> tuple[Event, ...]:
    """What earlier sessions of a run told, so that its counts go on; RunError if it is unknown."""
    archive = Archive.open(run, home)
    try:
        return tuple(EVENT.validate_json(item.payload) for item in archive.events())
    finally:
        archive.close()


def chosen_profile(name: str, options: SearchOptions) -> SearchProfile:
    """The search profile with the person's limits; Complaint when there is none of that name."""
    try:
        profile = search_profile(name)
    except ValueError as error:
        raise Complaint(str(error)) from None
    return profile.limited(
        rounds=options.rounds,
        seconds=options.seconds,
        tokens=options.models.tokens,
        usd=options.models.usd,
    )


def check_places(options: SearchOptions, home: Path | None) -> None:
    """Say before any work is done that a result could not be written."""
    check_json(options.json)
    if options.export is not None:
        check_output(options.export)
    folder = home or default_home()
    try:
        (folder / "runs").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Complaint(f"cannot keep runs in {folder}: {error.strerror}") from None


def see_through(
    search: Search, home: Path | None, options: SearchOptions, earlier: tuple[Event, ...] = ()
) -> None:
    """Run a search with progress, then print, export and write what came of it."""
    try:
        summary = asyncio.run(watched(search, earlier))
    except AwaitingError as awaited:  # before there is a run
        sys.stderr.write(f"{awaited.words}; then give the same command again\n")
        return
    if options.export is not None and summary.status != "waiting":
        summary = exported(summary, home, options.export, force=options.force)
    if options.json is not None:
        write_json(summary, options.json)
    tell(summary, home, quiet=options.json == STDOUT)


async def watched(search: Search, earlier: tuple[Event, ...] = ()) -> Summary:
    """Run a search under a watcher; Ctrl-C stops it with the best so far, a second one at once."""
    control = Control()
    loop = asyncio.get_running_loop()
    with watcher() as progress:
        progress.recall(earlier)
        HEARER.set(progress.say)
        task = asyncio.ensure_future(search(progress.show, control))

        def interrupted() -> None:
            # Before there is a run there is nothing to keep, and a second Ctrl-C means it.
            if control.stopped_because or not progress.view.run:
                task.cancel()
            control.stop("you interrupted it")

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, interrupted)
        try:
            result = await task
        except asyncio.CancelledError:
            raise Complaint(cancelled_words(progress.view.run), 130) from None
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
    if isinstance(result, Refusal):
        raise refused(result)
    return result


def cancelled_words(run: str) -> str:
    """What a person needs to know after an abrupt end."""
    if not run:
        return "interrupted before the search began; nothing was kept"
    return f"interrupted; go on with: kernelwright resume {run}"


def exported(summary: Summary, home: Path | None, output: Path, *, force: bool) -> Summary:
    """Export the best; where nothing may be exported, say why and leave the search's result be."""
    try:
        return with_export(summary, home, output, force=force)
    except ExportRefusedError as refusal:
        remarks().print(Text(f"nothing exported: {refusal}", style="yellow"), soft_wrap=True)
        return summary


def with_export(summary: Summary, home: Path | None, output: Path, *, force: bool) -> Summary:
    """Export the best, and say so in the summary; ExportRefusedError where that may not be."""
    archive = Archive.open(summary.run, home)
    try:
        material = material_of(archive, forced=force)
        path = take_home(material, output)
        if summary.shapes is not None and summary.shapes.verified and material.shapes is None:
            words = "what serves other sizes is not shown to be faster, and was not exported"
            remarks().print(Text(f"for the example's sizes only: {words}", style="yellow"))
        summary = summary.model_copy(update={"export": str(path)})
        archive.record_summary(summary, archive.record().status)
        return summary
    finally:
        archive.close()


def tell(summary: Summary, home: Path | None, *, quiet: bool) -> None:
    """Print the result, and what can be done next."""
    story = stories.load(summary.run, home)
    out = remarks() if quiet else console()
    out.print(result_card(story))
    if len(story.leaders) > 1:
        out.print(leaderboard(story))
    if summary.training is not None:
        out.print(Text(summary.training.words), soft_wrap=True)
    where = "" if home is None else f" --run-dir {home}"
    steps = {"all of it as a page": f"report {summary.run}"}
    if summary.status == "stopped":
        steps = {"go on with": f"resume {summary.run}"}
    if summary.status == "waiting":
        sys.stderr.write(f"{summary.stopped_because}\n")
        steps = {"then go on with": f"resume {summary.run}"}
    if summary.status == "not_settled":
        steps = {"measure again": f"measure {summary.run}", **steps}
    if summary.shapes is not None:
        sys.stderr.write(f"sizes: {summary.shapes.words}\n")
        if summary.shapes.interrupted:
            steps["go on with the sizes"] = f"resume {summary.run}"
    if summary.status == "improved" and summary.export is None:
        steps["take it home"] = f"export {summary.run} -o FOLDER"
    for words, step in steps.items():
        sys.stderr.write(f"{words}: kernelwright {step}{where}\n")


def export(
    run: str, output: Path, format: str, candidate: str | None, force: bool, home: Path | None
) -> None:
    """Export from a finished, stopped or running search."""
    archive = Archive.open(run, home)
    try:
        material = material_of(archive, candidate, forced=force)
    finally:
        archive.close()
    if format == "kernelbench":
        target = output / "model_new.py" if output.is_dir() else output
        path = export_kernelbench(material, writable_file(target))
    else:
        path = take_home(material, output)
    console().print(f"exported to {path}", markup=False)


def take_home(material: Material, output: Path) -> Path:
    """Write a module export into a folder, or a zip file where the path ends so."""
    if output.suffix == ".zip":
        return export_zip(material, writable_file(output))
    return export_folder(material, output)


def check_output(output: Path) -> None:
    """Say before any work is done that an export could not be written there."""
    if output.suffix == ".zip":
        writable_file(output)
    else:
        check_place(output)
