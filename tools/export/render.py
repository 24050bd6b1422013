"""Renders module.py from a verified candidate, the package around it, and how it is used."""

import ast
import hashlib
import keyword
import re
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from kernelwright.profiles.load import Hardware
from kernelwright.tools.candidates.plan import Plan, validate_plan
from kernelwright.tools.export import gradients, guards, packed, plan_python, traced
from kernelwright.tools.export.dispatch import Dispatch
from kernelwright.tools.export.guards import Argument, ExportRefusedError, Material
from kernelwright.tools.export.render_parts import in_parts
from kernelwright.tools.languages import language_of
from kernelwright.tools.runtime import kernelwright_version
from kernelwright.tools.tasks.sources.carried import STATE
from kernelwright.tools.types import Task

HERE = Path(__file__).parent
# Between the reference and what is ours in a KernelBench file.
SEPARATOR = "# ---- Kernelwright ----"
# What module.py itself needs of the standard library.
_IMPORTS = (
    "collections", "functools", "importlib.util", "inspect", "math", "sys", "warnings",
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
    """The text of the header that the kernels include; "" where there is none.

    It is one file: what they include of ours besides stands behind the prelude.
    """
    spec = language_of(material.candidate).spec
    if spec.prelude is None:
        return ""
    parts = [spec.prelude.read_text(encoding="utf-8")]
    for path in _further(material):
        text = path.read_text(encoding="utf-8")
        parts.append(text.replace(_include(spec.prelude), "").replace("#pragma once\n", ""))
    return "\n".join(parts)


def kernel(material: Material) -> str:
    """The kernels' text as it is compiled."""
    candidate = material.candidate
    language = language_of(candidate)
    text = language.with_settings(candidate.kernel, candidate.settings)
    if language.spec.prelude is not None:
        for path in _further(material):
            text = text.replace(_include(path), _include(language.spec.prelude))
    return text


def _further(material: Material) -> list[Path]:
    """The headers over the prelude that the kernels include."""
    candidate = material.candidate
    spec = language_of(candidate).spec
    return [path for path in spec.further if _include(path) in candidate.kernel]


def _include(path: Path) -> str:
    return f'#include "{path.name}"\n'


def kernel_file(material: Material) -> str:
    """What the kernels' file is called."""
    return f"kernel{language_of(material.candidate).spec.suffixes[0]}"


def header_file(material: Material) -> str:
    """What the header's file is called; "" where there is none."""
    prelude = language_of(material.candidate).spec.prelude
    return prelude.name if prelude else ""


def module(material: Material) -> str:
    """The text of module.py."""
    if material.task.parts:
        filled = values(material) | in_parts(material)
        return environment().get_template("parts.py.j2").render(filled)
    return environment().get_template("module.py.j2").render(values(material))


def package_name(task: Task) -> str:
    """What an export's folder is called where nobody chose a name that Python can import."""
    return f"faster_{re.sub(r'[^a-z0-9]+', '_', task.name.lower()).strip('_') or 'module'}"


def is_importable(name: str) -> bool:
    """Whether `import name` is possible."""
    return name.isidentifier() and not keyword.iskeyword(name)


def package(material: Material) -> str:
    """The text of __init__.py, so that the folder can be imported."""
    names = sorted({*_offered(material.task), "COUNTS"})
    listed = ", ".join(f'"{name}"' for name in names)
    return (
        f'"""{material.task.entry}, exported by Kernelwright; see README.md."""\n\n'
        f"from .module import {', '.join(names)}\n\n__all__ = [{listed}]\n"
    )


def readme(material: Material, folder: str) -> str:
    """The text of README.md in a folder of that name."""
    printed = language_of(material.candidate).export(material.hardware.architecture)
    known = is_importable(folder)
    return (
        environment()
        .get_template("readme.md.j2")
        .render(
            task=material.task,
            version=kernelwright_version(),
            needs=printed.needs,
            package=folder if known else package_name(material.task),
            rename=not known,
            snippet=snippet(material.task, material.hardware, folder),
            trainable=gradients.gradients_of(material).trainable,
        )
    )


def snippet(task: Task, hardware: Hardware, folder: str = "") -> str:
    """How an export in a folder of that name is used, as Python that runs.

    Where the name is none that Python can import, the usual one stands in its place.
    """
    home = folder if is_importable(folder) else package_name(task)
    name, on = _offered(task)[0], '.to("cuda")' if hardware.kind == "cuda" else ""
    lines = ["import torch", f"from {home} import {name}", *packed.class_imports(task, home), ""]
    made_of = name
    if task.entry_kind != "function":
        made_of = "model"
        made = f"{name}()" if task.entry_kind == "built" else ""
        made = made or (name if _is_ready(task) else f"{name}({_constructed(task)})")
        lines += [f"model = {made}{on}{'' if task.training else '.eval()'}"]
    if task.weights:
        lines += ["# model.load_state_dict(yours.state_dict())  # the names are your own module's"]
    named = [
        (spec.name if is_importable(spec.name) else f"input_{number}", spec)
        for number, spec in enumerate(task.inputs)
    ]
    given = [repr(spec.scalar) if spec.tensor is None else name for name, spec in named]
    like = [
        f"{name}: {spec.tensor.shape} {spec.tensor.dtype.value}"
        for name, spec in named
        if spec.tensor is not None
    ]
    lines += ["with torch.no_grad():  # where gradients are recorded, module.py says what runs"]
    arguments = packed.called(task, given, packed.class_shown)
    return "\n".join([*lines, f"    y = {made_of}({arguments})  # {', '.join(like)}"])


def _offered(task: Task) -> tuple[str, ...]:
    """What the package offers: the entry, and of a function the module of it too."""
    if task.entry_kind in ("function", "built"):
        return (task.entry, _class_name(task))
    return (_class_name(task),)


def _constructor(task: Task) -> ast.FunctionDef | None:
    """The entry's own `__init__`, where the file has it."""
    for node in ast.parse(task.source).body:
        if isinstance(node, ast.ClassDef) and node.name == task.entry:
            found = (item for item in node.body if isinstance(item, ast.FunctionDef))
            return next((item for item in found if item.name == "__init__"), None)
    return None


def _is_ready(task: Task) -> bool:
    """Whether the entry is a module and no class."""
    body = ast.parse(task.source).body
    return any(
        isinstance(node, ast.Assign)
        and any(isinstance(item, ast.Name) and item.id == task.entry for item in node.targets)
        for node in body
    )


def _constructed(task: Task) -> str:
    """The constructor's arguments: the file's own where they are written down, else their names."""
    for node in ast.parse(task.source).body:
        if isinstance(node, ast.FunctionDef) and node.name == "get_init_inputs":
            given = next((item.value for item in node.body if isinstance(item, ast.Return)), None)
            if isinstance(given, ast.List | ast.Tuple) and all(
                isinstance(item, ast.Constant) for item in given.elts
            ):
                return ", ".join(map(ast.unparse, given.elts))
    made = _constructor(task)
    if made is None:
        return ""
    needed = made.args.args[1 : len(made.args.args) - len(made.args.defaults)]
    return ", ".join(item.arg for item in needed)


def values(material: Material) -> dict[str, object]:
    """What the templates are filled with."""
    task, candidate = material.task, material.candidate
    language = language_of(candidate)
    source = language.parse(candidate.kernel)
    printed = language.export(material.hardware.architecture)
    checked = validate_plan(candidate.plan, source)
    names, inputs, weights = _arguments(task, checked)
    tensors = [*inputs, *weights]
    constants = guards.constants_read(task, checked.weights)
    decoding = {"base64"} if constants else set()
    dispatch = Dispatch(task, material.shapes, names)
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
        by_address=candidate.mode == "eager",
    )
    return {
        "mode": candidate.mode,
        "draws": task.draws_random,
        "written": source.written,
        "geometry": 4 if source.has_grid else 0,
        "runner": "run" if candidate.mode == "eager" else "called",
        "entry": task.entry,
        "class_name": _class_name(task),
        "class_words": _class_words(task),
        "instance_name": task.entry,
        "needs": printed.needs,
        "compiled_by": printed.compiled_by,
        "imports": sorted({*_IMPORTS, *printed.imports, *decoding}),
        "launcher_imports": sorted({"math", *printed.imports, *decoding}),
        "constants": constants,
        "is_function": task.entry_kind == "function",
        "is_built": task.entry_kind == "built",
        "state": STATE if task.state is not None else "",
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
        "operator_outputs": [
            *({"shape": dispatch.output(n, o), "dtype": o.dtype} for n, o in enumerate(outputs)),
            *({"shape": item.shape, "dtype": item.dtype} for item in updated),
        ],
        "served": material.shapes is not None,
        "sizes": [dispatch.sizes(item) for item in tensors],
        "schema_results": _schema([*outputs, *updated]),
        "single": single,
        **packed.values(task, names),
        "tensor_names": tensor_names,
        "in_list": len(tensors) > guards.MOST_ARGUMENTS,
        "backward_in_list": _backward_in_list(material),
        "eager_conditions": [
            *scalars,
            *(
                line
                for item in tensors
                for line in guards.eager_conditions(item, device_type, dispatch.condition(item))
            ),
            *together,
        ],
        "traced_conditions": [
            *scalars,
            *(
                line
                for item in tensors
                for line in guards.traced_conditions(item, device_type, dispatch.condition(item))
            ),
            *(condition.replace("get_device()", "device") for condition in together),
        ],
        "gradients": [f"{t.name}.requires_grad" for t in tensors if t.differentiable] or ["False"],
        **gradients.values(material, inputs, weights),
        "training": task.training,
        "traced": traced.printed(task.submodules),
        "ties": traced.ties(
            task.submodules,
            {item.name: item for item in task.weights},
            {ast.literal_eval(item.label): item.name for item in weights},
        ),
        "has_parts": task.submodules is None or len(task.submodules) > 1,
        "apart": material.apart,
        "separator": SEPARATOR,
        "hash": _operator_hash(material),
    }


def _operator_hash(material: Material) -> str:
    """What an export's operator is called by: its kernels, and those of the step around it.

    torch.compile keeps what it made, with the operator of the backward in it, by the forward's
    graph alone: a better backward beside the same forward would be looked up by its old name.
    """
    backward = material.backward
    around = (backward.material, backward.forward) if backward is not None else ()
    parts = [f"{one.candidate.id} {one.task.source_sha256}" for one in (material, *around) if one]
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:12]


def _backward_in_list(material: Material) -> bool:
    """Whether the operator of the export's own backward takes one list."""
    if material.backward is None or not gradients.is_own(material):
        return False
    task, candidate = material.backward.material.task, material.backward.material.candidate
    source = language_of(candidate).parse(candidate.kernel)
    _, inputs, weights = _arguments(task, validate_plan(candidate.plan, source))
    return len(inputs) + len(weights) > guards.MOST_ARGUMENTS


def _arguments(task: Task, plan: Plan) -> tuple[list[str], list[Argument], list[Argument]]:
    names = guards.input_names(task)
    inputs = [
        Argument(name, repr(spec.name), spec.tensor)
        for name, spec in zip(names, task.inputs, strict=True)
        if spec.tensor is not None
    ]
    built = {name for name, *_ in guards.constants_read(task, plan.weights)}
    used = {*plan.weights, *plan.updates} - built
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
    if task.entry_kind not in ("function", "built"):
        return task.entry if task.entry.isidentifier() else "Module"
    return "".join(part.capitalize() for part in task.entry.split("_")) + "Module"
