"""A person's own kernel, with which a search may begin.

With its plan it is a candidate and is judged as it is, before anything else; without one (a bare
`.cu`) a language model is asked to wrap it. Either way it is an idea of the person's in the first
round. Reading the file is the command line's business.
"""

from kernelwright.tools.types import Idea, LanguageName, Value

PERSON = "person"


class Start(Value):
    """A kernel and its plan; the plan is "" for a bare kernel. `name` is the file's."""

    language: LanguageName
    kernel: str
    plan: str = ""
    name: str = ""

    @property
    def idea(self) -> Idea:
        """The idea of the first round under which it is judged."""
        words = "as it is" if self.plan else "given a plan that launches it"
        return Idea(
            id="r1i0",
            title=f"Your own kernel, {words}",
            mechanism=f"the kernel of {self.name or 'the person'}, {words}",
            reason="the person gave it to start from",
            category="given",
            metric="time",
            round=1,
            origin=PERSON,
        )
