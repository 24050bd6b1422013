"""One way to evaluate, as it is chosen by name: what may be said of it, and how one is made."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field, model_validator

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.types import Value


class ExecutorChoice(Value):
    """Which executor evaluates a run.

    Attributes:
        name: Its name in the registry.
        hardware: The device it is for, from a profile, where it is elsewhere; what it really is
            the first results tell.
        bundles: The folder for the files it sends; "" for one in the run's own folder.
        kind: Which devices of a cluster, as `H200` or `cpu`; "" for any.
        cluster: The address of a cluster that is joined; "" for this machine's own.
        cpus: How many processes of a cluster share the processors of this machine.
    """

    name: str
    hardware: Hardware | None = None
    bundles: str = ""
    kind: str = ""
    cluster: str = ""
    cpus: int = Field(default=1, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _from_unnamed(cls, given: object) -> object:
        # Runs from before executors had names kept a choice of bundles only.
        if isinstance(given, dict) and "name" not in given:
            return {**given, "name": "batch"}
        return given


@dataclass(frozen=True)
class Options:
    """What was said of an executor at the command line.

    Attributes:
        target: Which kind of device: `auto`, `cuda` or `cpu`.
        gpu: The name of a GPU that is elsewhere, if any.
        bundles: The folder for files that are sent, if any.
        cluster: The address of a cluster to join, if any.
    """

    target: str
    gpu: str | None = None
    bundles: Path | None = None
    cluster: str = ""


@dataclass(frozen=True)
class Order:
    """What an executor is made from.

    Attributes:
        choice: What was chosen.
        target: Which kind of device: `auto`, `cuda` or `cpu`.
        scratch: A folder of its own.
        seed: Of what a far host draws by chance.
        rules: The judge's figures on this machine; the defaults if None.
    """

    choice: ExecutorChoice
    target: str
    scratch: Path
    seed: int = 0
    rules: Rules | None = None


class ExecutorKind(ABC):
    """One way to evaluate. What the registry names holds one as `KIND`.

    What evaluates is imported by `make`, so that options are read without waiting for it.
    """

    @abstractmethod
    def make(self, order: Order) -> Executor:
        """An executor; nothing is started before it is asked.

        Raises:
            EnvironmentLacksError: When this machine lacks what it needs.
        """

    def chosen(self, name: str, options: Options) -> ExecutorChoice:
        """The choice that the options of a command line mean.

        Raises:
            ValueError: When they contradict each other; the message says how.
        """
        if options.bundles is not None or options.gpu is not None:
            raise ValueError("--bundles and --gpu need --executor batch")
        if options.cluster:
            raise ValueError("--cluster needs --executor ray")
        return ExecutorChoice(name=name)
