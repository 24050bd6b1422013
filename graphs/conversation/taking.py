"""Taking results home: asked for, approved, made, and handed over."""

from pathlib import Path

from kernelwright.agents.assistant.types.chat import ChatReply, Download, Offer, Table, Words
from kernelwright.agents.assistant.types.commands import CancelTask, ExportResult
from kernelwright.graphs.conversation.driving import NO_RUN
from kernelwright.graphs.conversation.explaining import judged_rows
from kernelwright.graphs.conversation.naming import candidate_of, label, standing_of
from kernelwright.graphs.conversation.place import Place
from kernelwright.graphs.run_view.story import Story
from kernelwright.graphs.run_view.wording import one_line
from kernelwright.graphs.search.material import material_of
from kernelwright.tools.archive import Archive, RunError
from kernelwright.tools.export import (
    ExportRefusedError,
    Material,
    check,
    export_kernelbench,
    export_zip,
)
from kernelwright.tools.types import Verdict

WHAT = {
    "module": "a drop-in `nn.Module` with its kernel, what was verified and one command that "
    "verifies it again, as a zip file",
    "kernelbench": "a single `ModelNew` file for KernelBench's evaluator",
}


async def export(place: Place, wish: ExportResult) -> ChatReply:
    """Ask before the first byte is written; then write, and hand over."""
    story = await place.story()
    if story is None:
        return ChatReply.of(NO_RUN)
    item = candidate_of(story, wish.candidate)
    standing = standing_of(story, item)
    if standing is None or standing.evaluation.verdict is not Verdict.CORRECT:
        return ChatReply.of(f"{label(item)} was not found correct, so it cannot be taken home.")
    if not wish.approved:
        return _asked(story, wish.model_copy(update={"candidate": item.candidate.id}))
    try:
        path = await place.read(lambda: _write(place, story.record.id, item.candidate.id, wish))
    except (ExportRefusedError, RunError) as refusal:
        return ChatReply.of(f"Nothing was exported: {one_line(str(refusal), 400)}.")
    mime = "application/zip" if path.suffix == ".zip" else "text/x-python"
    pieces = (
        Words(text=f"Here is {label(item)}: {WHAT[wish.format]}."),
        Download(path=path, name=path.name, mime=mime),
    )
    return ChatReply(pieces=pieces)


async def report(place: Place) -> ChatReply:
    """The run's report as a file."""
    folder, write = place.folder, place.settings.report
    if folder is None:
        return ChatReply.of(NO_RUN)
    if write is None:
        return ChatReply.of("This server makes no reports.")
    path = place.home / "exports" / f"{folder.name}.html"
    await place.read(lambda: write(folder.name, place.home, path))
    pieces = (
        Words(text="The whole run on one page, which works without a network."),
        Download(path=path, name=path.name, mime="text/html"),
    )
    return ChatReply(pieces=pieces)


def _asked(story: Story, wish: ExportResult) -> ChatReply:
    """What would be exported, how far it can be trusted, and whether it may be made."""
    item = candidate_of(story, wish.candidate)
    standing = standing_of(story, item)
    words = [Words(text=f"I would export {label(item)} as {WHAT[wish.format]}.")]
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
    other = "kernelbench" if wish.format == "module" else "module"
    yes = wish.model_copy(update={"approved": True})
    instead = wish.model_copy(update={"format": other})
    return ChatReply(
        pieces=(*words, Table(title="what is known of it", columns=("", ""), rows=rows)),
        offers=(
            Offer(label="Yes, export it", wish=yes),
            Offer(label=f"As {other} instead", wish=instead),
            Offer(label="No", wish=CancelTask()),
        ),
        question=True,
    )


def _write(place: Place, run: str, candidate: str, wish: ExportResult) -> Path:
    """The file, made anew; what is not faster is exported too, and says so itself."""
    archive = Archive.open(place.home / "runs" / run)
    try:
        material = material_of(archive, candidate, forced=True)
    finally:
        archive.close()
    check(material)
    folder = place.home / "exports"
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{run}-{candidate}"
    return _made(material, folder / name, wish)


def _made(material: Material, path: Path, wish: ExportResult) -> Path:
    if wish.format == "kernelbench":
        return export_kernelbench(material, path.parent / f"{path.name}.py")
    return export_zip(material, path.parent / f"{path.name}.zip")
