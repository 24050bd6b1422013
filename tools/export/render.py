"""Renders module.py from a verified candidate."""

import ast
import hashlib
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from kernelwright.tools.candidates.plan import Plan, validate_plan
from kernelwright.tools.export import guards, plan_python
from kernelwright.tools.export.guards import Argument, ExportRefusedError, Material
from kernelwright.tools.languages import language_of
from kernelwright.tools.runtime import kernelwright_version
from kernelwright.tools.types import Task

HERE = Path(__file__).parent
# Between the reference and what is ours in a KernelBench file.
SEPARATOR = "# ---- Kernelwright ----"
# What module.py itself needs of the standard library.
_IMPORTS = (
    "collections", "copy", "functools", "importlib.util", "inspect", "math", "sys", "warnings",
)  # fmt: skip


@cache
def environment() -> Environment:
    """The templates' engine; a name that is missing is an error."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Python and Markdown, not HTML
    )
    made.filters |= {
        "literal": repr,
        "prefix": lambda text, with_: f"{with_}{text}",
        "suffix": lambda text, with_: f"{text}{with_}",
    }
    return made


def header(material: Material) -> str:
    """The text of the header that the kernels include; "" where there is none."""
    prelude = language_of(material.candidate).spec.prelude
    return prelude.read_text(encoding="utf-8") if prelude else ""


def kernel(material: Material) -> str:
    """The kernels' text as it is compiled."""
    candidate = material.candidate
    return language_of(candidate).with_settings(candidate.kernel, candidate.settings)


def kernel_file(material: Material) -> str:
    """What the kernels' file is called."""
    return f"kernel{language_of(material.candidate).spec.suffixes[0]}"


def header_file(material: Material) -> str:
    """What the header's file is called; "" where there is none."""
    prelude = language_of(material.candidate).spec.prelude
    return prelude.name if prelude else ""


def module(material: Material) -> str:
    """The text of module.py."""
    return environment().get_template("module.py.j2").render(values(material))


def values(material: Material) -> dict[str, object]:
    """What the templates are filled with."""
    task, candidate = material.task, material.candidate
    language = language_of(candidate)
    source = language.parse(candidate.kernel)
    printed = language.export(material.hardware.architecture)
    checked = validate_plan(candidate.plan, source)
    names, inputs, weights = _arguments(task, checked)
    tensors = [*inputs, *weights]
    if not names or not tensors:
        raise ExportRefusedError("a forward without inputs cannot be exported")
    device_type = language.spec.device
    scalars = [
        guards.scalar_condition(name, spec)
        for name, spec in zip(names, task.inputs, strict=True)
        if spec.tensor is None
    ]
    updated = [item for item in weights if ast.literal_eval(item.label) in checked.updates]
    outputs = [Argument("", "", spec.model_copy(update={"strides": None})) for spec in task.outputs]
    single = task.graph.output_structure == "tensor"
    together = guards.same_device(tensors) if device_type == "cuda" else []
    tensor_names = [item.name for item in tensors]
    plan = plan_python.print_plan(
        candidate.plan,
        source.pointers,
        {item.name: item.value for item in candidate.settings},
        has_grid=source.has_grid,
    )
    return {
        "entry": task.entry,
        "class_name": _class_name(task),
        "class_words": _class_words(task),
        "instance_name": task.entry,
        "needs": printed.needs,
        "compiled_by": printed.compiled_by,
        "imports": sorted({*_IMPORTS, *printed.imports}),
        "launcher_imports": sorted({"math", *printed.imports}),
        "is_function": task.entry_kind == "function",
        "version": kernelwright_version(),
        "device_type": device_type,
        "dispatch_key": device_type.upper(),
        "kernel_file": kernel_file(material),
        "header_file": header_file(material),
        "signatures": source.letters,
        "launcher": printed.launcher,
        "loader": printed.loader,
        "plan": plan,
        "prepare": checked.prepared is not None,
        "prepare_reads": plan_python.prepare_reads(candidate.plan),
        "uses_ceil_div": "ceil_div(" in plan,
        "alignment": guards.ALIGNMENT_BYTES,
        "input_names": tuple(spec.name for spec in task.inputs),
        "inputs": names,
        "scalars": [
            (name, spec.scalar)
            for name, spec in zip(names, task.inputs, strict=True)
            if spec.tensor is None
        ],
        "tensors": tensors,
        "tensor_inputs": inputs,
        "weights": weights,
        "weight_names": [item.name for item in weights],
        "has_buffers": any(item.is_buffer for item in weights),
        "updated": updated,
        "outputs": outputs,
        "operator_outputs": [*outputs, *updated],
        "schema_results": _schema([*outputs, *updated]),
        "single": single,
        "as_list": task.graph.output_structure == "list",
        "tensor_names": tensor_names,
        "eager_conditions": [
            *scalars,
            *(line for item in tensors for line in guards.eager_conditions(item, device_type)),
            *together,
        ],
        "traced_conditions": [
            *scalars,
            *(line for item in tensors for line in guards.traced_conditions(item, device_type)),
            *(condition.replace("get_device()", "device") for condition in together),
        ],
        "gradients": [f"{t.name}.requires_grad" for t in tensors if t.differentiable] or ["False"],
        "training": task.training,
        "apart": material.apart,
        "separator": SEPARATOR,
        "hash": hashlib.sha256(f"{candidate.id} {task.source_sha256}".encode()).hexdigest()[:12],
    }


def _arguments(task: Task, plan: Plan) -> tuple[list[str], list[Argument], list[Argument]]:
    names = guards.input_names(task)
    inputs = [
        Argument(name, repr(spec.name), spec.tensor)
        for name, spec in zip(names, task.inputs, strict=True)
        if spec.tensor is not None
    ]
    used = {*plan.weights, *plan.updates}
    weights = tuple(item for item in task.weights if item.name in used)
    missing = used - {item.name for item in weights}
    if missing:
        raise ExportRefusedError(f"the plan reads {min(missing)!r}, which the module does not have")
    return names, inputs, guards.weight_arguments(weights, names)


def _schema(results: list[Argument]) -> str:
    return "Tensor" if len(results) == 1 else f"({', '.join('Tensor' for _ in results)})"


def _class_words(task: Task) -> str:
    if task.entry_kind == "function":
        return f"The reference's `{task.entry}` as a module that runs kernels where it can."
    return "The reference with another forward: constructor, parameters and state dict are its own."


def _class_name(task: Task) -> str:
    """The entry's own name for a class; one of its own for a function or a ready module."""
    if task.entry_kind != "function":
        return task.entry if task.entry.isidentifier() else "Module"
    return "".join(part.capitalize() for part in task.entry.split("_")) + "Module"
