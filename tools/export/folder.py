"""Writes an export as a folder to be committed, as a zip file, or as a KernelBench submission.

A submission is one file with `ModelNew`, accepted by KernelBench's own evaluator, which executes
the file's text in the namespace in which it executed the reference; so nothing of ours may take a
name of the reference's. Calls that were not verified raise an error there: a benchmark must never
measure a fallback.
"""

import ast
import io
import os
import zipfile
from pathlib import Path

from kernelwright.tools import candidates, evaluate, tasks
from kernelwright.tools.export import gradients, render, traced
from kernelwright.tools.export.evidence import EVIDENCE, evidence, verification
from kernelwright.tools.export.guards import ExportRefusedError, Material, check
from kernelwright.tools.tasks.sources.carried import STATE, content_of
from kernelwright.tools.types import IN_MODE, RefusedError, Task
from kernelwright.tools.whole_files import UNFINISHED, fill_folder, write_whole

BACKWARD = "backward"  # the folder of the gradients' kernels
FORWARD = "forward"  # the folder of those that keep what the gradients' need
PROJECT = "project"  # the folder of what the reference needs
# What an export holds besides its module, as text: none of it uses anything of ours.
_EXPORTED_VERIFY = Path(__file__).with_name("exported_verify.py")
_EXPORTED_CLOCKS = Path(__file__).with_name("exported_clocks.py")
_EXPORTED_GRADIENTS = Path(__file__).with_name("exported_gradients.py")
_EXPORTED_DRAWS = Path(__file__).with_name("exported_draws.py")
# Read and not imported, as these import torch: what sets a module's modes, and the judge's own.
_EXPORTED_MODES = Path(candidates.__file__).parent / "run" / "modes.py"
_ROUNDINGS = Path(evaluate.__file__).with_name("verify") / "roundings.py"
_WIDENED = Path(tasks.__file__).with_name("widened.py")


def export_folder(material: Material, folder: Path) -> Path:
    """Write the export into a folder, which is made, empty, or an earlier export.

    Raises:
        ExportRefusedError: When nothing may be exported, or the folder holds something else.
    """
    check_place(folder)
    files = export_files(material, folder.absolute().name)
    try:
        # The evidence says that it is an export: it comes last.
        fill_folder(folder, {**project_files(material.task), **files})
    except OSError as error:
        raise ExportRefusedError(f"cannot write to {folder}: {error.strerror}") from None
    return folder


def export_zip(material: Material, path: Path) -> Path:
    """Write the export as a zip file that holds one folder, which Python can import.

    It has the file's name, or `faster_` and the task's where that is no name for Python.

    Raises:
        ExportRefusedError: When nothing may be exported, or the file cannot be written.
    """
    memory = io.BytesIO()
    home = path.stem if render.is_importable(path.stem) else render.package_name(material.task)
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in export_files(material, home).items():
            archive.writestr(f"{home}/{name}", text)
        for name, content in project_files(material.task).items():
            archive.writestr(f"{home}/{name}", content)
    try:
        write_whole(path, memory.getvalue())
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
    if set(held) - {UNFINISHED} and EVIDENCE not in held:
        raise ExportRefusedError(
            f"cannot export to {folder}: it is not empty and is no earlier export"
        )
    nearest = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not nearest.is_dir() or not _writable(nearest):
        raise ExportRefusedError(f"cannot export to {folder}: {nearest} is not writable")


def export_files(material: Material, folder: str = "") -> dict[str, str]:
    """Name and text of every file of the export; `folder` is what the folder is called.

    Raises:
        ExportRefusedError: When nothing may be exported.
    """
    check(material)
    files = {
        "__init__.py": render.package(material),
        "README.md": render.readme(material, folder),
        "module.py": render.module(material),
        "reference.py": reference(material.task),
        traced.WATCH: traced.watch(),
        render.kernel_file(material): render.kernel(material),
        **_header(material),
        **_modes(material),
        "verify.py": _EXPORTED_VERIFY.read_text(encoding="utf-8"),
        "verify_clocks.py": _EXPORTED_CLOCKS.read_text(encoding="utf-8"),
        "verify_gradients.py": _EXPORTED_GRADIENTS.read_text(encoding="utf-8"),
        "verify_roundings.py": _ROUNDINGS.read_text(encoding="utf-8"),
        "verify_widened.py": _WIDENED.read_text(encoding="utf-8"),
        **_draws(material),
        "VERIFICATION.md": verification(material, folder),
        **_backward(material),
    }
    return files | {EVIDENCE: evidence(material, files, project_files(material.task))}


def _draws(material: Material) -> dict[str, str]:
    """How random numbers are compared, where the module draws any."""
    if not material.task.draws_random:
        return {}
    return {"verify_draws.py": _EXPORTED_DRAWS.read_text(encoding="utf-8")}


def _backward(material: Material) -> dict[str, str]:
    """The directions of a step as exports of their own, in folders inside, where it uses them."""
    if material.backward is None or not gradients.is_own(material):
        return {}
    inner = {BACKWARD: material.backward.material, FORWARD: material.backward.forward}
    return {
        f"{folder}/{name}": text
        for folder, part in inner.items()
        if part is not None
        for name, text in export_files(part, folder).items()
    }


def reference(task: Task) -> str:
    """The user's file, or where it needs others a file that imports it from beside them."""
    if task.project is None:
        return task.source
    project, found = task.project, project_files(task)
    tops = {name for name in project.names if any(_is_in(name, path) for path in found)}
    return (
        render.environment()
        .get_template("reference.py.j2")
        .render(
            file=project.file,
            module=project.module,
            roots=list(project.roots),
            names=sorted(tops),
        )
    )


def _is_in(name: str, path: str) -> bool:
    return name in path.removesuffix(".py").split("/")


def project_files(task: Task) -> dict[str, bytes]:
    """Name and content of the files that the reference needs, itself among them.

    Raises:
        ExportRefusedError: One that is too large to be kept with a run is gone or another by now.
    """
    try:
        files = {} if task.state is None else {STATE: content_of(task.state)}
        if task.project is None:
            return files
        carried = {item.path: content_of(item) for item in task.project.files}
    except RefusedError as refused:
        raise ExportRefusedError(refused.refusal.sentence) from None
    carried |= {task.project.file: task.source.encode()}
    return files | {f"{PROJECT}/{path}": content for path, content in carried.items()}


def _header(material: Material) -> dict[str, str]:
    name = render.header_file(material)
    return {name: render.header(material)} if name else {}


def _modes(material: Material) -> dict[str, str]:
    """What calls the plan in another way than launch by launch, where that is its mode."""
    if material.candidate.mode == "eager":
        return {}
    return {"modes.py": _EXPORTED_MODES.read_text(encoding="utf-8")}


def _writable(folder: Path) -> bool:
    return os.access(folder, os.W_OK | os.X_OK)


def export_kernelbench(material: Material, path: Path) -> Path:
    """Write the file.

    Raises:
        ExportRefusedError: When nothing may be exported, or the task has another form.
    """
    text = kernelbench(material)
    try:
        write_whole(path, text)
    except OSError as error:
        raise ExportRefusedError(f"cannot write {path}: {error.strerror}") from None
    return path


def kernelbench(material: Material) -> str:
    """The file's text.

    Raises:
        ExportRefusedError: When nothing may be exported, or the task has another form.
    """
    check(material)
    task = material.task
    if task.project is not None:
        raise ExportRefusedError(
            f"the KernelBench format is one file, and {task.name} imports others of its project; "
            "export a folder or a .zip file instead"
        )
    if task.parts:
        raise ExportRefusedError(
            f"the KernelBench format is one forward, and {task.name} is faster in parts; export a "
            "folder or a .zip file instead"
        )
    if material.candidate.mode != "eager":
        raise ExportRefusedError(
            f"the KernelBench format calls kernels one by one, and {task.name} was timed"
            f"{IN_MODE[material.candidate.mode].replace(',', '')}; export a folder or a .zip file"
        )
    if task.call is not None or task.returns is not None:
        raise ExportRefusedError(
            f"the KernelBench format takes and returns plain tensors, which {task.name} does not; "
            "export a folder or a .zip file instead"
        )
    if task.entry_kind != "kernelbench" or task.entry != "Model":
        raise ExportRefusedError("the KernelBench format needs a task whose entry is `class Model`")
    text = (
        render.environment()
        .get_template("kernelbench.py.j2")
        .render(
            render.values(material)
            | {
                "reference": task.source.rstrip(),
                "kernel": literal(render.kernel(material)),
                "header": literal(render.header(material)),
            }
        )
    )
    if clash := names(task.source) & names(text.partition(render.SEPARATOR)[2]):
        raise ExportRefusedError(f"the reference defines {min(clash)!r}, and so does the export")
    return text


def literal(text: str) -> str:
    """A text as a Python literal, readable where that is possible."""
    plain = "\\" not in text and '"""' not in text and not text.endswith('"')
    raw = '"""' not in text and not text.endswith(("\\", '"'))
    if plain:
        return f'"""{text}"""'
    return f'r"""{text}"""' if raw else repr(text)


def names(source: str) -> set[str]:
    """What a module's text binds at its top level, modules apart."""
    found: set[str] = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign):
            found |= {n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    return found
