"""One implementation: device code plus a plan."""

from typing import Annotated, Literal

from pydantic import StringConstraints

from kernelwright.tools.types.value import Value

# What the kernel source is written in, as in "cuda" or "cpp"; `tools.languages` knows which are
# there, so that a new one needs no line here.
LanguageName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,31}$")]


class Setting(Value):
    """One tunable and the value chosen for it."""

    name: str
    value: int


class Candidate(Value):
    """One implementation of a task.

    `kernel` declares its tunables (`// tune: THREADS in 128, 256`) and requirements
    (`// require: THREADS * VECTOR <= 4096`) in comments; `settings` are the values chosen, the
    first declared value standing in for any that is missing. `plan` is the host side in the
    subset of Python that `tools.candidates` validates. `id` is a hash of what runs:
    language, kernel, plan and settings. `strategy` names the version of the evolving prompt under
    which a model wrote it.
    """

    id: str
    language: LanguageName
    kernel: str
    plan: str
    settings: tuple[Setting, ...] = ()
    idea: str = ""
    parents: tuple[str, ...] = ()
    origin: Literal["playbook", "model", "person"] = "playbook"
    strategies: tuple[str, ...] = ()
    note: str = ""
    strategy: str = ""
