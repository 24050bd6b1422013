"""An export's claims and everything behind them: evidence.json and VERIFICATION.md.

evidence.json holds everything behind the claims, raw samples included. VERIFICATION.md says what
was verified, how and on what, and what was not.
"""

import hashlib
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.findings import timed, verified
from kernelwright.tools.export import gradients
from kernelwright.tools.export.dispatch import served_words
from kernelwright.tools.export.guards import Material
from kernelwright.tools.languages import language_of
from kernelwright.tools.runtime import kernelwright_version
from kernelwright.tools.types import (
    Baselines,
    Candidate,
    Conditions,
    Evaluation,
    InputSpec,
    TensorSpec,
    Value,
    WeightSpec,
)
from kernelwright.tools.types.run import Summary
from kernelwright.tools.types.shapes import VerifiedShapes
from kernelwright.tools.types.training import TrainingSummary

# What marks a folder as an earlier export, which may be replaced.
EVIDENCE = "evidence.json"
_NOTHING: Mapping[str, bytes] = {}
PACKAGES = ("kernelwright", "torch", "numpy", "cuda-core", "cuda-bindings", "nvidia-cuda-nvrtc")


class TaskEvidence(Value):
    """The task without its source, which lies beside as reference.py."""

    name: str
    entry: str
    entry_kind: str
    source_sha256: str
    training: bool
    input_override: tuple[str, ...]
    inputs: tuple[InputSpec, ...]
    outputs: tuple[TensorSpec, ...]
    weights: tuple[WeightSpec, ...]
    bytes_moved: int
    flops: int
    warnings: tuple[str, ...]


class EvidenceFile(BaseModel):
    """The whole file. `versions` and `platform` are of the machine that wrote the export.

    `gradients_refused` says why only the reference can run where autograd records; "" where the
    kernels may.
    """

    model_config = ConfigDict(frozen=True, ser_json_inf_nan="strings")

    kernelwright: str
    created_at: datetime
    improved: bool
    forced: bool
    apart: str
    task: TaskEvidence
    candidate: Candidate
    evaluation: Evaluation
    baselines: Baselines
    hardware: Hardware
    summary: Summary | None
    shapes: VerifiedShapes | None
    training: TrainingSummary | None
    gradients_refused: str
    versions: dict[str, str]
    platform: str
    python: str
    files_sha256: dict[str, str]


def evidence(
    material: Material, files: Mapping[str, str], project: Mapping[str, bytes] = _NOTHING
) -> str:
    """The file's text.

    Args:
        material: What is exported.
        files: Name and text of every other file of the export, for their hashes.
        project: Name and content of what the reference needs, likewise.
    """
    task = material.task
    fields = {name: getattr(task, name) for name in TaskEvidence.model_fields}
    step = gradients.gradients_of(material)
    return EvidenceFile(
        kernelwright=kernelwright_version(),
        created_at=datetime.now(UTC),
        improved=material.improved,
        forced=material.forced,
        apart=material.apart,
        task=TaskEvidence(**fields),
        candidate=material.candidate,
        evaluation=material.evaluation,
        baselines=material.baselines,
        hardware=material.hardware,
        summary=material.summary,
        shapes=material.shapes,
        training=step.training,
        gradients_refused=step.refused,
        versions={name: found for name in PACKAGES if (found := _version(name))},
        platform=platform.platform(),
        python=platform.python_version(),
        files_sha256={name: sha256(text) for name, text in sorted(files.items())}
        | {name: hashlib.sha256(held).hexdigest() for name, held in sorted(project.items())},
    ).model_dump_json(indent=1)


class ExportedTask(BaseModel):
    """What of the task somebody needs who reads an export's evidence."""

    model_config = ConfigDict(frozen=True)

    entry: str
    input_override: tuple[str, ...] = ()


class ExportedEvidence(BaseModel):
    """What is read of an export's evidence again; the rest is for people and other programs."""

    model_config = ConfigDict(frozen=True)

    task: ExportedTask
    candidate: Candidate
    files_sha256: dict[str, str]

    def changed(self, folder: Path) -> tuple[str, ...]:
        """The files of the export that are not as they were written; what is gone included."""
        return tuple(
            name
            for name, digest in self.files_sha256.items()
            if not (folder / name).is_file()
            or hashlib.sha256((folder / name).read_bytes()).hexdigest() != digest
        )


def read_evidence(folder: Path) -> ExportedEvidence | None:
    """The evidence of the export in a folder; None where it holds none.

    Raises:
        ValueError: It cannot be read, or is not as this version writes it.
        OSError: Likewise.
    """
    file = folder / EVIDENCE
    if not file.is_file():
        return None
    return ExportedEvidence.model_validate_json(file.read_text(encoding="utf-8"))


def sha256(text: str) -> str:
    """The hash of a text file."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def verification(material: Material, folder: str = "") -> str:
    """The file's text, in a folder of that name."""
    from kernelwright.tools.export.render import environment, snippet

    evaluation = material.evaluation
    comparisons = evaluation.comparisons
    return (
        environment()
        .get_template("verification.md.j2")
        .render(
            material=material,
            task=material.task,
            candidate=material.candidate,
            verification=evaluation.verification,
            apart=material.apart,
            verified=verified(evaluation.verification),
            timed=timed(evaluation),
            snippet=snippet(material.task, material.hardware, folder),
            comparisons=comparisons,
            conditions=condition_words(comparisons[0].conditions) if comparisons else [],
            reads=_reads(material),
            gradients=gradients.words(material),
            shapes=material.shapes,
            served=served_words(material.shapes, material.task) if material.shapes else [],
            training=gradients.gradients_of(material).training,
            unverified=language_of(material.candidate)
            .export(material.hardware.architecture)
            .not_verified,
        )
    )


def condition_words(found: Conditions) -> list[str]:
    """The conditions of a measurement, one a line."""
    lines = [f"device: {found.device}", f"input sets rotated: {found.input_sets}"]
    lines.append(f"last-level cache flushed between runs: {'yes' if found.l2_flushed else 'no'}")
    known = {
        "threads": found.threads,
        "SM clock (MHz)": found.sm_clock_mhz,
        "memory clock (MHz)": found.memory_clock_mhz,
        "temperature (°C)": found.temperature_c,
        "power (W)": found.power_w,
        "other processes on the device": found.other_processes,
        "load average": found.load_average,
    }
    lines += [f"{name}: {value}" for name, value in known.items() if value is not None]
    lines += [f"throttled: {reason}" for reason in found.throttle_reasons]
    return lines + list(found.notes)


def _reads(material: Material) -> list[str]:
    """The inputs and weights that it was verified for, in words."""
    lines = []
    for spec in material.task.inputs:
        if spec.tensor is None:
            lines.append(f"`{spec.name}` = `{spec.scalar!r}`")
            continue
        layout = "contiguous" if spec.tensor.strides is None else f"strides {spec.tensor.strides}"
        lines.append(f"`{spec.name}`: {spec.tensor.shape}, {spec.tensor.dtype.value}, {layout}")
    for weight in material.task.weights:
        kind = "buffer" if weight.is_buffer else "parameter"
        lines.append(
            f"`{weight.name}` ({kind}): {weight.tensor.shape}, {weight.tensor.dtype.value}"
        )
    return lines
