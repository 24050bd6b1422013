"""Writes an export: a folder that a person can commit, or the same as a zip file."""

import io
import os
import zipfile
from pathlib import Path

from kernelwright.tools.export import parts, render
from kernelwright.tools.export.evidence import evidence
from kernelwright.tools.export.material import ExportRefusedError, Material, check
from kernelwright.tools.export.words import verification

# What marks a folder as an earlier export, which may be replaced.
EVIDENCE = "evidence.json"


def export_folder(material: Material, folder: Path) -> Path:
    """Write the export into a folder, which is made, empty, or an earlier export.

    Raises:
        ExportRefusedError: When nothing may be exported, or the folder holds something else.
    """
    check_place(folder)
    files = export_files(material)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ExportRefusedError(f"cannot write to {folder}: {error.strerror}") from None
    return folder


def export_zip(material: Material, path: Path) -> Path:
    """Write the export as a zip file that holds one folder of the file's name.

    Raises:
        ExportRefusedError: When nothing may be exported, or the file cannot be written.
    """
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in export_files(material).items():
            archive.writestr(f"{path.stem}/{name}", text)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(memory.getvalue())
    except OSError as error:
        raise ExportRefusedError(f"cannot write {path}: {error.strerror}") from None
    return path


def check_place(folder: Path) -> None:
    """Say before any work is done that an export could not be written there.

    Raises:
        ExportRefusedError: When the path is a file, not writable, or a folder of something else.
    """
    if folder.exists() and not folder.is_dir():
        raise ExportRefusedError(f"cannot export to {folder}: it is a file")
    try:
        held = [item.name for item in folder.iterdir()] if folder.exists() else []
    except OSError as error:
        raise ExportRefusedError(f"cannot export to {folder}: {error.strerror}") from None
    if held and EVIDENCE not in held:
        raise ExportRefusedError(
            f"cannot export to {folder}: it is not empty and is no earlier export"
        )
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not nearest.is_dir() or not _writable(nearest):
        raise ExportRefusedError(f"cannot export to {folder}: {nearest} is not writable")


def export_files(material: Material) -> dict[str, str]:
    """Name and text of every file of the export.

    Raises:
        ExportRefusedError: When nothing may be exported.
    """
    check(material)
    verify = Path(parts.__file__).parent / "verify.py"
    files = {
        "__init__.py": f'"""{material.task.entry}, exported by Kernelwright; see module.py."""\n',
        "module.py": render.module(material),
        "reference.py": material.task.source,
        render.kernel_file(material): render.kernel(material),
        **_header(material),
        "verify.py": verify.read_text(encoding="utf-8"),
        "VERIFICATION.md": verification(material),
    }
    return files | {EVIDENCE: evidence(material, files)}


def _header(material: Material) -> dict[str, str]:
    name = render.header_file(material)
    return {name: render.header(material)} if name else {}


def _writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)
