"""Prints a KernelBench submission: one file with `ModelNew`, accepted by its own evaluator.

The evaluator executes the file's text in the namespace in which it executed the reference, so
nothing of ours may take a name of the reference's. Calls that were not verified raise an error:
a benchmark must never measure a fallback.
"""

import ast
from pathlib import Path

from kernelwright.tools.export import render
from kernelwright.tools.export.material import ExportRefusedError, Material, check


def export_kernelbench(material: Material, path: Path) -> Path:
    """Write the file.

    Raises:
        ExportRefusedError: When nothing may be exported, or the task has another form.
    """
    text = kernelbench(material)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
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
