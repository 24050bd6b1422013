"""What the judge asks the program about its guests, and what it is told."""

from typing import Literal

from pydantic import TypeAdapter

from kernelwright.tools.evaluate.foreign.books import Books
from kernelwright.tools.evaluate.sandbox.ended import Ended
from kernelwright.tools.types.value import Value


class Inquiry(Value):
    """About one guest: what it used, or how it ended (`stop` says what the judge saw of that).

    With `seat` a fresh one takes the place of whoever has the name, and the judge's end of its
    socket comes beside the answer.
    """

    guest: Literal["candidate", "reference"]
    stop: Literal["", "timed_out", "exited"] = ""
    limit_s: float = 0.0
    seat: bool = False


class Finding(Value):
    """The answer: one of the two, or neither where a guest was seated."""

    books: Books | None = None
    ended: Ended | None = None


INQUIRY: TypeAdapter[Inquiry] = TypeAdapter(Inquiry)
FINDING: TypeAdapter[Finding] = TypeAdapter(Finding)
