"""A person's runs: list, reopen, name and delete them, and take home what is in one.

An export is asked for, approved, written, and handed over as a download. For a GPU that is
elsewhere a run's first bundle is, with what to do with it there: the run is begun here and waits
for results. What comes back is read on this machine at the command line, where the run goes on and
writes its next bundle; a page has no way to take a bundle back.
"""

import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelwright.agents.assistant.types import (
    CancelTask,
    ChatReply,
    ContinueSearch,
    DeleteRun,
    ExportResult,
    Offer,
    PrepareBundle,
    RenameRun,
    ReopenRun,
    ShowProgress,
)
from kernelwright.agents.assistant.types.pieces import Code, Download, Table, Words
from kernelwright.graphs.conversation.about import usage
from kernelwright.graphs.conversation.background.store import TITLE, ConversationState, keep_title
from kernelwright.graphs.conversation.context import ConversationContext
from kernelwright.graphs.conversation.explaining import (
    candidate_of,
    judged_rows,
    label,
    standing_of,
)
from kernelwright.graphs.conversation.steering import NO_RUN, STOP
from kernelwright.graphs.run_view.events import one_line, quiet
from kernelwright.graphs.run_view.figures import summed_up
from kernelwright.graphs.run_view.story import Story
from kernelwright.graphs.search.run import start_search
from kernelwright.graphs.search.summary import material_of
from kernelwright.profiles.load import Hardware, hardware_profile, search_profile
from kernelwright.tools.archive import Archive, RunError, RunRecord, run_folders
from kernelwright.tools.evaluate.executors.base.kind import ExecutorChoice
from kernelwright.tools.export import (
    ExportRefusedError,
    Material,
    check,
    export_kernelbench,
    export_zip,
)
from kernelwright.tools.types import EnvironmentLacksError, Refusal, Verdict
from kernelwright.tools.types.speed_words import STATUS

WHAT = {
    "module": "a drop-in `nn.Module` with its kernel, what was verified and one command that "
    "verifies it again, as a zip file",
    "kernelbench": "a single `ModelNew` file for KernelBench's evaluator",
}


async def export(context: ConversationContext, command: ExportResult) -> ChatReply:
    """Ask before the first byte is written; then write, and hand over."""
    story = await context.story()
    if story is None:
        return ChatReply.of(NO_RUN)
    item = candidate_of(story, command.candidate)
    standing = standing_of(story, item)
    if standing is None or standing.evaluation.verdict is not Verdict.CORRECT:
        return ChatReply.of(f"{label(item)} was not found correct, so it cannot be taken home.")
    if not command.approved:
        return _asked(story, command.model_copy(update={"candidate": item.candidate.id}))
    try:
        path = await context.read(
            lambda: _write(context, story.record.id, item.candidate.id, command)
        )
    except (ExportRefusedError, RunError) as refusal:
        return ChatReply.of(f"Nothing was exported: {one_line(str(refusal), 400)}.")
    mime = "application/zip" if path.suffix == ".zip" else "text/x-python"
    pieces = (
        Words(text=f"Here is {label(item)}: {WHAT[command.format]}."),
        Download(path=path, name=path.name, mime=mime),
    )
    shown = (usage(story),) if command.format == "module" else ()
    return ChatReply(pieces=(*pieces, *shown))


async def report(context: ConversationContext) -> ChatReply:
    """The run's report as a file."""
    folder, write = context.folder, context.settings.report
    if folder is None:
        return ChatReply.of(NO_RUN)
    if write is None:
        return ChatReply.of("This server makes no reports.")
    path = context.home / "exports" / f"{folder.name}.html"
    await context.read(lambda: write(folder.name, context.home, path))
    pieces = (
        Words(text="The whole run on one page, which works without a network."),
        Download(path=path, name=path.name, mime="text/html"),
    )
    return ChatReply(pieces=pieces)


def _asked(story: Story, command: ExportResult) -> ChatReply:
    """What would be exported, how far it can be trusted, and whether it may be made."""
    item = candidate_of(story, command.candidate)
    standing = standing_of(story, item)
    words = [Words(text=f"I would export {label(item)} as {WHAT[command.format]}.")]
    rows = judged_rows(standing) if standing is not None else ()
    if standing is not None and standing.effort != "certify":
        words.append(
            Words(
                text="It is not certified: that happens at the end of a search, on fresh values "
                "in a fresh process. The export will say so."
            )
        )
    if standing is not None and (apart := standing.evaluation.verification.apart):
        words.append(
            Words(
                text=f"**It {one_line(apart, 200)}, and you did not allow that.** Its times are no "
                "speed-up of the task as it was asked. The export will say so."
            )
        )
    other = "kernelbench" if command.format == "module" else "module"
    yes = command.model_copy(update={"approved": True})
    instead = command.model_copy(update={"format": other})
    return ChatReply(
        pieces=(*words, Table(title="what is known of it", columns=("", ""), rows=rows)),
        offers=(
            Offer(label="Yes, export it", wish=yes),
            Offer(label=f"As {other} instead", wish=instead),
            Offer(label="No", wish=CancelTask()),
        ),
        question=True,
    )


def _write(context: ConversationContext, run: str, candidate: str, command: ExportResult) -> Path:
    """The file, made anew; what is not faster is exported too, and says so itself."""
    archive = Archive.open(context.home / "runs" / run)
    try:
        material = material_of(archive, candidate, forced=True)
    finally:
        archive.close()
    check(material)
    folder = context.home / "exports"
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{run}-{candidate}"
    return _made(material, folder / name, command)


def _made(material: Material, path: Path, command: ExportResult) -> Path:
    if command.format == "kernelbench":
        return export_kernelbench(material, path.parent / f"{path.name}.py")
    return export_zip(material, path.parent / f"{path.name}.zip")


SHOWN = 20


@dataclass(frozen=True)
class Run:
    """One of a person's runs; `title` is the name that they gave it, "" for none."""

    folder: Path
    record: RunRecord
    title: str = ""


async def listing(context: ConversationContext) -> ChatReply:
    """The person's runs, the newest first."""
    runs = await context.read(lambda: runs_of(context.home))
    if not runs:
        return ChatReply.of("You have no runs yet. Attach a file or paste a module to begin one.")
    rows = tuple(_row(context, run) for run in runs[:SHOWN])
    columns = ("run", "task", "begun (UTC)", "status", "speed-up")
    table = Table(title="your runs", columns=columns, rows=rows)
    return ChatReply(pieces=(table,), offers=_openings(runs))


async def reopen(context: ConversationContext, command: ReopenRun) -> ChatReply:
    """Talk about an earlier run from now on."""
    found = await context.read(lambda: _found(context, command.run))
    if isinstance(found, ChatReply):
        return found
    record = found.record
    await context.store.put(
        ConversationState(
            file=record.task.path,
            name=record.task.name,
            policy=record.policy,
            task=record.task,
            audited=True,
            run=record.id,
        )
    )
    goes_on = context.search_session is not None
    offers: tuple[Offer, ...] = (Offer(label="Where does it stand?", wish=ShowProgress()),)
    if not goes_on:
        offers += (Offer(label="Continue", wish=ContinueSearch()),)
    state = "it is running" if goes_on else _state(record)
    return ChatReply.of(f"We are talking about run `{record.id}` now; {state}.", *offers)


async def rename(context: ConversationContext, command: RenameRun) -> ChatReply:
    """Give a run of the person's another name; its id stays what it is."""
    title = one_line(command.name, 60).strip()
    found = await context.read(lambda: _found(context, command.run))
    if isinstance(found, ChatReply):
        return found
    if not title:
        return ChatReply.of("What shall it be called?")
    await context.read(lambda: keep_title(found.folder, title))
    return ChatReply.of(f"Run `{found.record.id}` is called {quiet(title, 60)} now.")


async def delete(context: ConversationContext, command: DeleteRun) -> ChatReply:
    """Ask first; then delete all of a run of the person's that nobody works on."""
    found = await context.read(lambda: _found(context, command.run))
    if isinstance(found, ChatReply):
        return found
    id, folder = found.record.id, found.folder
    if context.search_manager.find(folder) is not None:
        return ChatReply.of(f"Run `{id}` is running; stop it first.", STOP)
    if not command.approved:
        return _ask_about_run(found)
    if context.now.run == id:
        await context.store.put(ConversationState(gpu=context.now.gpu))
    try:
        await context.read(lambda: shutil.rmtree(folder))
    except OSError as error:
        return ChatReply.of(
            f"Run `{id}` could not be deleted: {one_line(str(error.strerror), 100)}."
        )
    return ChatReply.of(f"Run `{id}` is deleted. What you exported of it stays where you put it.")


def _ask_about_run(found: Run) -> ChatReply:
    record, name = found.record, quiet(found.title or found.record.task.name, 60)
    words = (
        f"Shall I delete run `{record.id}` ({name}, {_state(record)}) for good? Its candidates, "
        "measurements and events would be gone."
    )
    yes = Offer(label="Yes, delete it", wish=DeleteRun(run=record.id, approved=True))
    no = Offer(label="No", wish=CancelTask())
    return ChatReply(pieces=(Words(text=words),), offers=(yes, no), question=True)


def _found(context: ConversationContext, name: str) -> Run | ChatReply:
    """The person's run of that id, beginning of one, or name; or what to say of it."""
    runs = runs_of(context.home)
    wanted = name.strip().lower() or context.now.run
    if not wanted:
        return ChatReply.of("Which run?", *_openings(runs))
    found = [run for run in runs if wanted in (run.record.id, run.title.lower())]
    found = found or [run for run in runs if run.record.id.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    words = "Several of your runs begin with that" if found else "I know no such run of yours"
    return ChatReply.of(f"{words}.", *_openings(found or list(runs)))


def _openings(runs: Sequence[Run]) -> tuple[Offer, ...]:
    return tuple(
        Offer(label=f"Open {run.record.id}", wish=ReopenRun(run=run.record.id)) for run in runs[:5]
    )


def runs_of(home: Path) -> tuple[Run, ...]:
    """The person's runs, the newest first; those that cannot be read left out."""
    found = []
    for folder in run_folders(home):
        try:
            archive = Archive.open(folder)
        except RunError:
            continue
        try:
            found.append(Run(folder, archive.record(), archive.term(TITLE) or ""))
        finally:
            archive.close()
    return tuple(sorted(found, key=lambda run: run.record.created_at, reverse=True))


def _row(context: ConversationContext, run: Run) -> tuple[str, ...]:
    record = run.record
    live = context.search_manager.find(run.folder) is not None
    best = record.summary.best if record.summary else None
    task = one_line(record.task.name, 40)
    return (
        record.id,
        f"{one_line(run.title, 60)} ({task})" if run.title else task,
        f"{record.created_at:%Y-%m-%d %H:%M}",
        "running" if live else _state(record),
        summed_up(best),
    )


def _state(record: RunRecord) -> str:
    if record.summary is not None and record.status == "finished":
        return STATUS[record.summary.status]
    return "stopped; it can go on" if record.status != "finished" else "its module does not run"


def wanted_gpu(gpu: str) -> Hardware | None:
    """The GPU of that name, as far as profiles know it."""
    try:
        found = hardware_profile(gpu) if gpu else None
    except ValueError:
        return None
    return found if found is not None and found.kind == "cuda" else None


def bundle_offers(gpu: str, present: Hardware) -> tuple[Offer, ...]:
    """The button that makes a bundle, where the person named a GPU that is not the one here."""
    wanted = wanted_gpu(gpu)
    if wanted is None or wanted.name == present.name:
        return ()
    hint = "A file to carry there, with the command that measures it"
    return (Offer(label=f"Bundle for {wanted.name}", wish=PrepareBundle(gpu=gpu), hint=hint),)


async def prepare(context: ConversationContext, command: PrepareBundle) -> ChatReply:
    """Begin a run for the GPU and hand over the bundle that it waits for."""
    now = context.now
    wanted = wanted_gpu(command.gpu or now.gpu)
    if now.task is None:
        return ChatReply.of("There is no task yet. Attach a file or paste a module.")
    if wanted is None:
        return ChatReply.of("For which GPU? Name one that I know, such as L40S or H200.")
    begun = start_search(
        Path(now.file),
        now.policy,
        "cuda",
        search_profile(context.settings.search),
        seed=context.settings.seed,
        home=context.home,
        models=context.settings.models,
        patience_s=0.0,
        choice=ExecutorChoice(name="batch", hardware=wanted),
    )
    try:
        found = await context.search_manager.engine.call(begun)
    except EnvironmentLacksError as lack:
        return ChatReply.of(f"No bundle could be made: {one_line(str(lack), 300)}.")
    if isinstance(found, Refusal):
        return ChatReply.of(f"No bundle could be made: {quiet(found.sentence, 600)}")
    folder = context.home / "runs" / found.run / "bundles"
    bundles = await context.read(lambda: sorted(folder.glob("*/bundle.json")))
    if not bundles:
        return ChatReply.of(f"No bundle was made: {one_line(found.stopped_because, 300)}.")
    path = await context.read(lambda: _packed(context.home, found.run, bundles[-1].parent))
    return _handed_over(context, found.run, bundles[-1].parent, path, wanted)


def _packed(home: Path, run: str, bundle: Path) -> Path:
    """The bundle's folder as a zip file of the run's name."""
    base = home / "exports" / f"{run}-bundle"
    base.parent.mkdir(parents=True, exist_ok=True)
    return Path(shutil.make_archive(str(base), "zip", bundle.parent, bundle.name))


def _handed_over(
    context: ConversationContext, run: str, bundle: Path, path: Path, wanted: Hardware
) -> ChatReply:
    there = f"unzip {path.name}\nkernelwright work {bundle.name}"
    back = shlex.join(["kernelwright", "resume", run, "--run-dir", str(context.home)])
    words = (
        f"Here is the first bundle of run `{run}` for {wanted.name}: it measures PyTorch there, "
        "which needs neither this machine nor a network. Times from here would tell nothing."
    )
    after = (
        "Then put the folder back in its place on this machine, under its own name, and let the "
        "run go on: it writes kernels compiled for that GPU into the next bundle."
    )
    pieces = (
        Words(text=words),
        Download(path=path, name=path.name, mime="application/zip"),
        Code(title=f"on the host with {wanted.name}", text=there, language="bash"),
        Words(text=after),
        Code(title="here, afterwards", text=f"# in {bundle.parent}\n{back}", language="bash"),
    )
    return ChatReply(pieces=pieces)
