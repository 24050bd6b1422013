"""What a judge of foreign code keeps between two candidates: the usher, and the reference's guest.

A candidate's guest is always a fresh one. The reference's runs our own code and the user's module;
it serves as long as task and rules are the same, and goes when anything odd happened near it.
"""

from kernelwright.tools.evaluate.foreign.link import Usher
from kernelwright.tools.evaluate.foreign.seat import Seat
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.verify.bench import Bench
from kernelwright.tools.types import Task


class Court:
    """One judge's standing arrangements.

    Args:
        descriptor: of the usher's socket, which was inherited.
    """

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.usher = Usher(descriptor)
        self._reference: Seat | None = None
        self._known: tuple[Task, Rules] | None = None

    def candidate(self, bench: Bench) -> Seat:
        """A seat with a guest that has met nobody."""
        return Seat(bench, self.usher.seated("candidate"))

    def reference(self, bench: Bench) -> Seat:
        """The reference's seat, the one that stands where it is for the same task."""
        wanted = (bench.task, bench.rules)
        if self._reference is None or self._known != wanted:
            self.dismiss()
            self._reference = Seat(bench, self.usher.seated("reference"))
            self._known = wanted
        return self._reference

    def dismiss(self) -> None:
        """The next one who needs the reference gets a fresh guest."""
        self._reference = self._known = None
