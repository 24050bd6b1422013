"""Models as the commands name them: loaded, or one sentence on why not."""

from pathlib import Path

from kernelwright.tools.learning.training.policy import Policy, UnusableModelError, load_policy
from kernelwright.tools.learning.training.serving import unpack
from kernelwright.ui.complaints import Complaint


def model_of(path: Path, adapter: Path | None = None, *, trains: bool = False) -> Policy:
    """A model from a folder; Complaint where it cannot be used."""
    try:
        return load_policy(path, adapter, trains=trains)
    except UnusableModelError as error:
        raise Complaint(str(error)) from None


def unpacked(file: Path, out: Path) -> Policy:
    """A GGUF file as a model's folder; Complaint where it cannot be read."""
    try:
        return unpack(file, out)
    except UnusableModelError as error:
        raise Complaint(str(error)) from None
