"""How a process that ran code of others was kept apart, as one value for every report."""

from enum import StrEnum

from pydantic import model_validator

from kernelwright.tools.types.value import Value


class WallKind(StrEnum):
    """What stood between the code and this machine, the strongest first."""

    BUBBLEWRAP = "bubblewrap"
    NAMESPACES = "namespaces"
    NONE = "none"
    NOT_RUN = "not_run"  # nothing of the candidate ran
    UNKNOWN = "unknown"  # an older record, or a worker of which nothing is known


class Isolation(Value):
    """The wall and one sentence on what exactly it gave; `str` is the sentence.

    Records from before there were kinds hold the sentence alone; they can still be read.
    """

    kind: WallKind
    words: str

    @model_validator(mode="before")
    @classmethod
    def _from_words(cls, given: object) -> object:
        if not isinstance(given, str):
            return given
        kind = WallKind.NONE if "not isolated" in given else WallKind.UNKNOWN
        return {"kind": WallKind.NOT_RUN if given == UNBUILT_WORDS else kind, "words": given}

    def __str__(self) -> str:
        """The sentence, for whoever prints it."""
        return self.words

    @property
    def is_a_wall(self) -> bool:
        """Whether anything was kept out at all."""
        return self.kind in (WallKind.BUBBLEWRAP, WallKind.NAMESPACES)


UNBUILT_WORDS = "compiled, not run"
NOT_ISOLATED = Isolation(kind=WallKind.NONE, words="not isolated")
# The isolation of a candidate that was refused before anything of it ran.
UNBUILT = Isolation(kind=WallKind.NOT_RUN, words=UNBUILT_WORDS)
