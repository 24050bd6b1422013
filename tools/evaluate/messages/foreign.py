"""What the program asks its judge about foreign code."""

from typing import Literal

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.types import Task
from kernelwright.tools.types.value import Value


class Foreign(Value):
    """Foreign code as it was handed in.

    Attributes:
        name: What to call it in reports.
        source: The Python file.
        entry: The class to construct in it.
    """

    name: str
    source: str
    entry: str = "ModelNew"


class ForeignRequest(Value):
    """Verify foreign code, and time it beside PyTorch's own ways.

    `compare_to` names those in the order in which they are tried; none when only verifying.
    `usher` is the descriptor, inherited by the judge, of who brings guests in.
    """

    kind: Literal["foreign"] = "foreign"
    task: Task
    hardware: Hardware
    rules: Rules
    foreign: Foreign
    seed: int
    usher: int | None = None
    compare_to: tuple[str, ...] = ()
