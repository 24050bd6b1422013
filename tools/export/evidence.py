"""evidence.json: everything behind an export's claims, raw samples included."""

import hashlib
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from pydantic import BaseModel, ConfigDict

from kernelwright.profiles.load import Hardware
from kernelwright.tools.export.material import Material
from kernelwright.tools.types import (
    Baselines,
    Candidate,
    Evaluation,
    InputSpec,
    TensorSpec,
    Value,
    WeightSpec,
)
from kernelwright.tools.types.run import Summary
from kernelwright.tools.version import kernelwright_version

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
    """The whole file. `versions` and `platform` are of the machine that wrote the export."""

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
    versions: dict[str, str]
    platform: str
    python: str
    files_sha256: dict[str, str]


def evidence(material: Material, files: Mapping[str, str]) -> str:
    """The file's text.

    Args:
        material: What is exported.
        files: Name and text of every other file of the export, for their hashes.
    """
    task = material.task
    fields = {name: getattr(task, name) for name in TaskEvidence.model_fields}
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
        versions={name: found for name in PACKAGES if (found := _version(name))},
        platform=platform.platform(),
        python=platform.python_version(),
        files_sha256={name: sha256(text) for name, text in sorted(files.items())},
    ).model_dump_json(indent=1)


def sha256(text: str) -> str:
    """The hash of a text file."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
