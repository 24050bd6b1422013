"""The coder by a language model: candidates for ideas in words, and repairs from real messages.

Ideas that carry a recipe of the playbook's are written by the playbook, which costs nothing. Where
the model does not answer, the playbook writes its next best strategy in that place and the notes
say so. The coder as a role of the search is declared here too. Not here: how answers are read
(`agents.coder.answers`) and checked (`agents.coder.repairs`).
"""

from pathlib import Path

from kernelwright.agents.coder.answers import Draft, Source
from kernelwright.agents.coder.coder import (
    Coder,
    CoderAnswer,
    CoderRequest,
    Failure,
    PlaybookCoder,
    spread,
)
from kernelwright.agents.coder.exemplars import exemplars
from kernelwright.agents.coder.repairs import findings
from kernelwright.agents.coder.rounds import (
    Checked,
    Offers,
    Rounds,
    find_source,
    first_choices,
    offers,
    source_of,
)
from kernelwright.agents.coder.tools import DraftDesk
from kernelwright.agents.llm.client import LLMClient, LLMError
from kernelwright.agents.prompting.cards import (
    analysis_card,
    candidate_card,
    fenced,
    hardware_card,
    roofline_card,
    steering_card,
    symptoms_card,
    task_card,
)
from kernelwright.agents.prompting.fitting import fitted
from kernelwright.agents.prompting.templates import (
    contract,
    craft,
    for_device,
    template,
)
from kernelwright.agents.role import Appearance, Role, RoleSetting
from kernelwright.agents.shared.facts import LABELS, PERSON, Start, Steering, choices
from kernelwright.agents.toolbox.workbench import RoleTools, with_tools
from kernelwright.profiles.load import Hardware
from kernelwright.tools.archive.elites import declared
from kernelwright.tools.candidates import valid_settings
from kernelwright.tools.codegen.library.kernel_library import Recipe, Repertoire, in_form
from kernelwright.tools.hardware import floor_ms
from kernelwright.tools.languages import language_named, new_candidate, parse_kernel
from kernelwright.tools.types import Candidate, Message, Prompt, Task

HERE = Path(__file__).parent
_NOTE_CHARACTERS = 600
_LABELS_SHOWN = 8
_MOVES_SHOWN = 6


class ModelCoder:
    """Writes with a model.

    Args:
        client: Who is asked.
        task: What is implemented.
        hardware: What for.
        fallback: Writes the playbook's recipes, and where the model does not answer.
        repertoire: What the playbook could write.
        start: The person's own kernel, where there is one.
        tools: What the model may find out about a draft before it hands it in; None for nothing.
    """

    def __init__(
        self,
        client: LLMClient,
        task: Task,
        hardware: Hardware,
        fallback: Coder,
        repertoire: Repertoire,
        start: Start | None = None,
        tools: RoleTools | None = None,
    ) -> None:
        self._client, self._task, self._tools = client, task, tools
        self._fallback = fallback
        self._repertoire = repertoire
        self._start = start
        self._language, self._architecture = repertoire.language, hardware.architecture
        self._device = hardware.kind
        self._coder = template(
            HERE / "coder.md",
            "contract", "craft", "fence", "task", "hardware", "roofline", "strategy",
            "steering", "learnt", "sources", "idea", "expected_ms", "start", "wrap", "count",
        )  # fmt: skip
        self._repair = template(
            HERE / "repair.md",
            "contract", "fence", "task", "hardware", "idea", "steering", "failed",
            "candidate", "verdict", "reason", "errors", "places", "resources", "passed", "before",
        )  # fmt: skip
        self._improve = template(
            HERE / "improve.md",
            "contract", "fence", "task", "hardware", "roofline", "idea", "steering", "candidate_id",
            "candidate", "flaw", "resources",
        )  # fmt: skip
        self._standing: dict[str, object] = {
            "contract": contract(self._language, hardware.architecture),
            "fence": language_named(self._language).spec.fences[0],
            "task": task_card(task),
            "hardware": hardware_card(hardware),
        }
        floor = floor_ms(task.bytes_moved, task.flops, hardware)
        self._roofline = roofline_card(task, hardware, floor)

    async def write(self, request: CoderRequest) -> CoderAnswer:
        """Candidates for an idea, by the model unless the playbook knows how."""
        if request.idea.recipe:
            answer = await self._fallback.write(_with_recipe(request, request.idea.recipe))
            if answer.candidates or request.idea.origin == "playbook":
                return answer
        shown = offers(request, self._repertoire, self._start)
        prompt = self._prompt(request, self._words(request, shown))
        base = shown.start or (shown.items[0].name if len(shown.items) == 1 else "")
        try:
            checked = await self._ask(request, prompt, base, shown, request.count)
        except LLMError as error:
            return _noted(await self._stand_in(request, str(error), ()), shown.notes)
        made = [self._candidate(draft, request, checked.said) for draft in checked.drafts]
        candidates = _new(made, request)
        filled = (*candidates, *self._variants(candidates, request))
        notes = _notes(checked, request, len(made) - len(candidates))
        return CoderAnswer(candidates=filled, notes=(*shown.notes, *notes))

    async def repair(self, request: CoderRequest, failure: Failure) -> CoderAnswer:
        """A corrected candidate, from the compiler's or the judge's own words.

        Or a faster one, where it was right already and has a flaw; nobody stands in for that.
        """
        failed = failure.candidate
        if failed.origin == "playbook":
            return await self._fallback.repair(request, failure)
        words = self._improve_words if failure.flaw else self._repair_words
        prompt = self._prompt(request, words(request, failure))
        shown = Offers()
        try:
            checked = await self._ask(_knowing(request, failed), prompt, failed.id, shown, 1)
        except LLMError as error:
            if failure.flaw:
                return CoderAnswer(candidates=(), notes=(str(error),))
            return await self._stand_in(request, str(error), (failed.id,))
        verdict = failure.flaw or failure.evaluation.verdict.words
        said = f"after {failed.id} ({verdict}): {checked.said}"
        made = [
            self._candidate(draft, request, said, repaired=failed).model_copy(
                update={"parents": (failed.id,)}
            )
            for draft in checked.drafts
        ]
        candidates = _new(made, request)
        notes = _notes(checked, request, len(made) - len(candidates))
        return CoderAnswer(candidates=candidates, notes=notes)

    async def _ask(
        self, request: CoderRequest, prompt: Prompt, base: str, shown: Offers, count: int
    ) -> Checked:
        """Drafts from the model, which may try them beforehand where there are tools."""
        client, desk = self._client, None
        if self._tools is not None:
            desk = DraftDesk(self._tools.bench, request, self._language, base)
            client = with_tools(client, self._tools, desk.tools())

        def find(name: str) -> Source | None:
            tried = desk.source(name) if desk is not None else None
            return tried or find_source(name, shown, request)

        others = _of_idea(request) if request.distinct else None
        rounds = Rounds(client, self._task, self._language, others)
        return await rounds.ask(prompt, base, find, count)

    def _prompt(self, request: CoderRequest, messages: tuple[Message, ...]) -> Prompt:
        return Prompt(
            key=f"coder:{request.idea.id}:{request.attempt}",
            role="coder",
            messages=fitted(messages),
            round=request.round or request.idea.round,
        )

    def _words(self, request: CoderRequest, shown: Offers) -> tuple[Message, ...]:
        wrap = request.idea.origin == PERSON and self._start is not None and not self._start.plan
        return self._coder.messages(
            **self._standing,
            craft=craft(self._language, self._architecture),
            roofline=self._roofline,
            strategy=for_device(request.strategy.text, self._device) if request.strategy else "",
            steering=_steering(request.steering),
            learnt=_learnt(request),
            sources=shown.items,
            idea=request.idea,
            expected_ms=f"{request.idea.predicted_ms:.4g}" if request.idea.predicted_ms else "",
            start=shown.start if not wrap else "",
            wrap=wrap,
            count=request.count,
        )

    def _repair_words(self, request: CoderRequest, failure: Failure) -> tuple[Message, ...]:
        found = findings(failure.candidate, failure.evaluation)
        return self._repair.messages(
            **self._standing,
            idea=request.idea,
            steering=_steering(request.steering),
            failed=failure.candidate.id,
            candidate=candidate_card(failure.candidate),
            verdict=found.verdict,
            reason=found.reason,
            errors=fenced("", found.errors) if found.errors else "",
            places=fenced("", found.places) if found.places else "",
            resources=found.resources,
            passed=found.passed,
            before=_attempts(request, failure.candidate),
        )

    def _improve_words(self, request: CoderRequest, failure: Failure) -> tuple[Message, ...]:
        found = findings(failure.candidate, failure.evaluation)
        return self._improve.messages(
            **self._standing,
            roofline=self._roofline,
            idea=request.idea,
            steering=_steering(request.steering),
            candidate_id=failure.candidate.id,
            candidate=candidate_card(failure.candidate, failure.evaluation),
            flaw=failure.flaw,
            resources=found.resources,
        )

    def _candidate(
        self, draft: Draft, request: CoderRequest, said: str, repaired: Candidate | None = None
    ) -> Candidate:
        known = {item.id for item in request.written}
        parents = (
            (draft.base,) if draft.base in known else tuple(filter(None, (request.idea.parent,)))
        )
        labels = draft.labels or (source_of(repaired).labels if repaired else ())
        candidate = new_candidate(
            self._language,
            draft.kernel,
            draft.plan,
            idea=request.idea.id,
            parents=parents,
            origin="model",
            strategies=labels,
            note=said[:_NOTE_CHARACTERS],
        )
        strategy = request.strategy.id if request.strategy else ""
        return candidate.model_copy(update={"strategy": strategy})

    def _variants(
        self, candidates: tuple[Candidate, ...], request: CoderRequest
    ) -> list[Candidate]:
        """Other settings of the first candidate, where fewer were written than asked for."""
        if not candidates or len(candidates) >= request.count:
            return []
        first = candidates[0]
        valid = valid_settings(parse_kernel(first.kernel, first.language))
        used = {item.settings for item in (*request.written, *candidates) if _same(item, first)}
        preferences = request.analysis.heeded if request.analysis else ((), ())
        missing = request.count - len(candidates)
        return [
            new_candidate(
                first.language, first.kernel, first.plan, settings=settings, idea=first.idea,
                parents=first.parents, origin="model", strategies=first.strategies, note=first.note,
            ).model_copy(update={"strategy": first.strategy})
            for settings in spread(valid, missing, used, preferences, request.seed)
        ]  # fmt: skip

    async def _stand_in(
        self, request: CoderRequest, why: str, parents: tuple[str, ...]
    ) -> CoderAnswer:
        """What the playbook has not written yet, in the place of a model that does not answer."""
        recipe = self._unwritten(request)
        if recipe is None:
            words = f"{why}; the playbook has nothing to put in its place"
            return CoderAnswer(candidates=(), notes=(words,))
        answer = await self._fallback.write(_with_recipe(request, recipe.model_dump_json()))
        words = f"{why}; the playbook wrote {', '.join(recipe.about)} in its place"
        made = answer.candidates
        if parents:
            made = tuple(item.model_copy(update={"parents": parents}) for item in made)
        return CoderAnswer(candidates=made, notes=(words, *answer.notes))

    def _unwritten(self, request: CoderRequest) -> Recipe | None:
        """A recipe that no candidate has, the best by the roofline for the first idea."""
        first, options = first_choices(self._repertoire), self._repertoire.options()
        if not first:
            return None
        written = [choices(item) for item in _settled(request)]
        changes = (option.change for option in options if option.loop in first)
        ways = [first, *(in_form(options, first | change) for change in changes)]
        left = [way for n, way in enumerate(ways) if way not in (*written, *ways[:n])] or [first]
        # Ideas of one round are written side by side, and each should stand for something else.
        return Recipe.of(left[_number(request.idea.id) % len(left)], roofline_ms=0.0)


def _of_idea(request: CoderRequest) -> tuple[tuple[str, Draft], ...]:
    """What was written for the idea before, which new candidates have to differ from."""
    before = (item for item in request.written if item.idea == request.idea.id)
    kernels = {(item.kernel, item.plan): item.id for item in before}
    return tuple((f"`{id}`", Draft(kernel=of[0], plan=of[1])) for of, id in kernels.items())


def _with_recipe(request: CoderRequest, recipe: str) -> CoderRequest:
    idea = request.idea.model_copy(update={"origin": "playbook", "recipe": recipe})
    return request.model_copy(update={"idea": idea})


def _knowing(request: CoderRequest, failed: Candidate) -> CoderRequest:
    return request.model_copy(update={"written": (*request.written, failed)})


def _attempts(request: CoderRequest, failed: Candidate) -> tuple[str, ...]:
    """What was tried on the way to a candidate that failed, the first attempt first."""
    written = {item.id: item for item in request.written}
    notes: list[str] = []
    at: Candidate | None = failed
    while at is not None and at.idea == failed.idea and len(notes) <= request.attempt:
        notes.append(at.note)
        at = next((written[id] for id in at.parents if id in written), None)
    return tuple(note for note in reversed(notes) if note)


def _new(made: list[Candidate], request: CoderRequest) -> tuple[Candidate, ...]:
    """Each candidate once, and none that was written before."""
    known = {item.id for item in request.written}
    return tuple({item.id: item for item in made if item.id not in known}.values())


def _noted(answer: CoderAnswer, notes: tuple[str, ...]) -> CoderAnswer:
    """The same with other notes before its own."""
    return answer.model_copy(update={"notes": (*notes, *answer.notes)})


def _notes(checked: Checked, request: CoderRequest, known: int) -> tuple[str, ...]:
    notes = [f"idea {request.idea.id}: {words}" for words in checked.notes]
    if known:
        notes.append(
            f"idea {request.idea.id}: {known} of the model's candidates are written already"
        )
    if checked.gave_up:
        notes.append(f"idea {request.idea.id}: the model gave up: {checked.gave_up}")
    elif not checked.drafts:
        notes.append(f"idea {request.idea.id}: the model wrote nothing that can be judged")
    return tuple(notes)


def _settled(request: CoderRequest) -> tuple[Candidate, ...]:
    """Candidates of earlier rounds and of this idea: what siblings write meanwhile is left out.

    So a step that is taken again, or replayed, asks and does the same.
    """
    judged = {entry.idea for entry in request.ledger} | {request.idea.id}
    return tuple(item for item in request.written if item.idea in judged)


def _number(idea: str) -> int:
    """An idea's place in its round, from 0: the number that its id ends in."""
    digits = idea[len(idea.rstrip("0123456789")) :]
    return max(0, int(digits) - 1) if digits else 0


def _same(candidate: Candidate, other: Candidate) -> bool:
    return candidate.kernel == other.kernel and candidate.plan == other.plan


def _steering(steering: Steering) -> str:
    return steering_card(steering) if steering != Steering() else ""


def _learnt(request: CoderRequest) -> str:
    """The critic's contrast, what bounds the best, which moves paid: whatever there is of it."""
    parts = [analysis_card(request.analysis)] if request.analysis else []
    parts += [symptoms_card(request.symptoms)] if request.symptoms else []
    if request.moves:
        lines = (f"- {line}" for line in request.moves[:_MOVES_SHOWN])
        parts.append("\n".join(("Moves between behaviours, and what they brought:", *lines)))
    parts += [pair] if (pair := exemplars(request.judged)) else []
    parts += [words] if (words := _labels_in_use(request)) else []
    return "\n\n".join(parts)


def _labels_in_use(request: CoderRequest) -> str:
    """The words that earlier candidates gave their labels, so that the same thing is said alike."""
    used: dict[str, dict[str, None]] = {name: {} for name in LABELS}
    for candidate in _settled(request):
        for name, value in declared(candidate).items():
            if name in used:
                used[name][value] = None
    lines = [f"- {name}: {'; '.join(list(of)[-_LABELS_SHOWN:])}" for name, of in used.items() if of]
    return "\n".join(("Labels that earlier candidates have:", *lines)) if lines else ""


def _by_rules(setting: RoleSetting) -> Coder:
    return PlaybookCoder(setting.repertoire)


def _by_model(client: LLMClient, setting: RoleSetting) -> Coder:

    behind, repertoire = _by_rules(setting), setting.repertoire
    task, hardware, start = setting.task, setting.hardware, setting.start
    return ModelCoder(client, task, hardware, behind, repertoire, start, setting.tools)


CODER: Role[Coder] = Role(
    name="coder",
    by_rules=_by_rules,
    by_model=_by_model,
    shown=Appearance("Coder", "blue", "code"),
)
