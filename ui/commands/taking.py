"""Taking results home: the best of a run, or a candidate of the person's choice, as an export."""

from pathlib import Path

from graphs.material import material_of
from tools.archive import Archive
from tools.export import (
    Material,
    check_place,
    export_folder,
    export_kernelbench,
    export_zip,
)
from ui.commands.output import console
from ui.complaints import writable_file


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
