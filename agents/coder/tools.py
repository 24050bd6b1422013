"""What a coder's model can find out about its draft before it hands it in.

It compiles, checks and times a draft on the real judge, and reads registers, spills and machine
code. A draft is known by its name from then on (`draft-1`, in the order in which they were first
sent), so that the answer may be an edit of one. What the judge said of a draft stands when the
same text is handed in.
"""

from pydantic import BaseModel, Field

from kernelwright.agents.coder.answers import Draft, Source
from kernelwright.agents.coder.coder import CoderRequest
from kernelwright.agents.coder.repairs import compiler_errors, excerpt, findings, problems
from kernelwright.agents.llm.tools import Tool, ToolError, tool
from kernelwright.agents.prompting.cards import milliseconds, resources
from kernelwright.agents.toolbox.code_words import loop_words, readings_words, serialised
from kernelwright.agents.toolbox.workbench import Workbench
from kernelwright.tools.languages import CompileFailure, new_candidate
from kernelwright.tools.types import Candidate, Evaluation, LanguageName, Verdict

_LOG_CHARACTERS = 2_500


class DraftGiven(BaseModel):
    """A draft as a call gives it."""

    kernel: str = Field(
        default="", description="the whole kernel source; left out, that of the last call"
    )
    plan: str = Field(default="", description="the whole plan; left out, that of the last call")


class CodeOf(DraftGiven):
    """A draft, or a candidate of the search."""

    candidate: str = Field(
        default="", description="the id of an earlier candidate, instead of a draft"
    )


class DraftDesk:
    """The drafts of one question, and the tools that look at them.

    Args:
        bench: Of the search.
        request: What is asked for.
        language: What drafts are written in.
        start: The id of the candidate that the idea starts from; "" for none.
    """

    def __init__(
        self, bench: Workbench, request: CoderRequest, language: LanguageName, start: str = ""
    ) -> None:
        self._bench, self._request, self._language = bench, request, language
        self._start = start
        self._drafts: list[tuple[str, str]] = []
        self._kernel = self._plan = ""

    def tools(self) -> tuple[Tool, ...]:
        """Compile always; check and time where the device is at hand."""
        known = {item.id for item in self._request.written}
        first = (CodeOf(candidate=self._start),) if self._start in known else ()
        found = [
            tool(
                "compile",
                "Compiles a draft in a moment and says what the compiler says: errors with their "
                "lines, or registers, spills and shared memory of every kernel. Drafts are named "
                "draft-1, draft-2, ...: your answer may be an edit of one, by `base: draft-2`.",
                DraftGiven,
                self._compile,
                heed=self._heed,
            ),
            tool(
                "machine_code",
                "Shows what a draft (or an earlier candidate) was compiled to: load widths, "
                "tensor and asynchronous instructions, and its innermost loops.",
                CodeOf,
                self._machine_code,
                heed=self._heed,
                beforehand=first,
            ),
        ]
        if self._bench.judges:
            found[1:1] = [
                tool(
                    "check",
                    "Runs a draft on the device against float64 on two distributions of inputs: "
                    "right, or wrong where and by how much. Do that before you answer.",
                    DraftGiven,
                    self._check,
                    heed=self._heed,
                ),
                tool(
                    "time",
                    "Times a draft briefly on the device, and says how it stands beside the best, "
                    "PyTorch and the floor.",
                    DraftGiven,
                    self._time,
                    heed=self._heed,
                ),
            ]
        return tuple(found)

    def source(self, name: str) -> Source | None:
        """A draft by its name."""
        number = name.strip().removeprefix("draft-")
        if not number.isdigit() or not 0 < int(number) <= len(self._drafts):
            return None
        kernel, plan = self._drafts[int(number) - 1]
        return Source(kernel=kernel, plan=plan)

    def _heed(self, given: DraftGiven) -> None:
        self._kernel, self._plan = given.kernel or self._kernel, given.plan or self._plan
        draft = (self._kernel, self._plan)
        if self._kernel and draft not in self._drafts:
            self._drafts.append(draft)

    def _candidate(self, given: DraftGiven) -> Candidate:
        kernel, plan = given.kernel or self._kernel, given.plan or self._plan
        if not kernel:
            raise ToolError("there is no draft yet: give the kernel and its plan")
        draft = Draft(kernel=kernel, plan=plan)
        if why := problems(draft, self._bench.task, self._language):
            raise ToolError(f"{self._name(kernel, plan)} breaks the contract: {why}")
        idea = self._request.idea.id
        return new_candidate(self._language, kernel, plan, idea=idea, origin="model")

    def _name(self, kernel: str, plan: str) -> str:
        draft = (kernel, plan)
        return f"draft-{self._drafts.index(draft) + 1}" if draft in self._drafts else "the draft"

    async def _compile(self, given: DraftGiven) -> str:
        candidate = self._candidate(given)
        name, built = self._name(candidate.kernel, candidate.plan), None
        built = await self._bench.compiled(candidate)
        if isinstance(built, CompileFailure):
            errors, lines = compiler_errors(built.log)
            told = "\n".join(errors)[:_LOG_CHARACTERS] or built.log.strip()[-_LOG_CHARACTERS:]
            places = excerpt(candidate.kernel, lines)
            parts = (f"`{name}` does not compile: {built.message}", told, places)
            return "\n".join(part for part in parts if part)
        parts = (
            f"`{name}` compiles with its first settings.",
            resources(built.reports),
            serialised(built.log),
        )
        return "\n".join(part for part in parts if part)

    async def _check(self, given: DraftGiven) -> str:
        candidate = self._candidate(given)
        name = self._name(candidate.kernel, candidate.plan)
        return _checked(name, candidate, await self._screened(candidate))

    async def _time(self, given: DraftGiven) -> str:
        candidate = self._candidate(given)
        name = self._name(candidate.kernel, candidate.plan)
        evaluation = await self._screened(candidate)
        if evaluation.verdict is not Verdict.CORRECT or evaluation.median_ms is None:
            return _checked(name, candidate, evaluation)
        return f"`{name}`: {self._timed(evaluation)}"

    async def _screened(self, candidate: Candidate) -> Evaluation:
        request = self._request
        return await self._bench.screened(candidate, request.round or request.idea.round)

    def _timed(self, evaluation: Evaluation) -> str:
        taken, screen = evaluation.median_ms or 0.0, evaluation.screen
        band = (
            f" ({milliseconds(screen.p10_ms)} to {milliseconds(screen.p90_ms)})" if screen else ""
        )
        said = [f"{milliseconds(taken)}{band}"]
        best = self._bench.archive.best()
        if best is not None and best.evaluation.median_ms:
            said.append(f"the best so far takes {milliseconds(best.evaluation.median_ms)}")
        if self._request.idea.predicted_ms:
            said.append(f"the planner expects {milliseconds(self._request.idea.predicted_ms)}")
        said.append(f"the floor is {milliseconds(self._bench.floor_ms)}")
        return "; ".join(said)

    async def _machine_code(self, given: CodeOf) -> str:
        named = self._bench.candidate(given.candidate) if given.candidate else None
        candidate = named or self._candidate(given)
        readings = await self._bench.readings(candidate)
        lines = await self._bench.code(candidate)
        told = lines if isinstance(lines, str) else loop_words(lines)
        return "\n".join(part for part in (readings_words(readings), told) if part)


def _checked(name: str, candidate: Candidate, evaluation: Evaluation) -> str:
    """What the judge found, in the words that a repair would be told."""
    if evaluation.verdict is Verdict.CORRECT:
        ratio = evaluation.verification.error_ratio
        error = f": its error is {ratio:.2g} times PyTorch's own" if ratio is not None else ""
        return f"`{name}` is right on what was tried{error}."
    found = findings(candidate, evaluation)
    parts = [f"`{name}`: {found.verdict}: {found.reason}", found.errors, found.places]
    parts += [f"It was right on {found.passed}."] if found.passed else []
    return "\n".join(part for part in parts if part)
