"""A run with a thousand candidates, as a long search with a language model would leave it.

Kernels are the playbook's for one example on one device profile, under all their settings and
with each idea's words in a comment, so that every idea has a source of its own. Verdicts,
samples, profiles, analyses, calls and events have the sizes that real runs have.
What is not covered: that times and texts mean anything.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernelwright.graphs.run_view.events import (
    CandidateJudged,
    CandidateWritten,
    Critiqued,
    Event,
    IdeasProposed,
    ModelCalled,
    Profiled,
    RoundFinished,
)
from kernelwright.profiles.load import Hardware, search_profile
from kernelwright.tools.archive import Archive, Author
from kernelwright.tools.candidates import valid_settings
from kernelwright.tools.codegen.library.kernel_library import PlaybookRepertoire
from kernelwright.tools.languages import new_candidate, parse_kernel
from kernelwright.tools.types import (
    Analysis,
    Baseline,
    Baselines,
    Call,
    Candidate,
    Claim,
    Comparison,
    CompileReport,
    Conditions,
    Evaluation,
    Evidence,
    Idea,
    LedgerEntry,
    Measurement,
    Message,
    OutputError,
    Prediction,
    Prompt,
    Rank,
    Reply,
    Symptom,
    Task,
    TracePolicy,
    Verdict,
    Verification,
)
from kernelwright.tools.types.run import TokenCounts

IDEAS_A_ROUND, CANDIDATES_AN_IDEA, TUNED_A_ROUND = 4, 2, 12
A_ROUND = IDEAS_A_ROUND * CANDIDATES_AN_IDEA + TUNED_A_ROUND
CONDITIONS = Conditions(device="a device", l2_flushed=True, input_sets=4, sm_clock_mhz=1980)
LOG = 'kernel.cu(31): error: identifier "lane" is undefined\n      total += lane;\n' * 6


@dataclass
class Thousand:
    """Writes the run; the same seed writes the same run."""

    task: Task
    hardware: Hardware
    repertoire: PlaybookRepertoire
    dice: random.Random

    def write(self, home: Path, candidates: int) -> Archive:
        """A run with at least that many candidates, claimed by nobody."""
        profile = search_profile("deep").model_copy(update={"rounds": 10_000, "seconds": 1e9})
        archive = Archive.create(
            home, self.task, policy=TracePolicy(), profile=profile, hardware=self.hardware
        )
        archive.record_baselines(baselines())
        for round in range(1, -(-candidates // A_ROUND) + 1):
            self._round(archive, round)
        return archive

    def _round(self, archive: Archive, round: int) -> None:
        ideas = tuple(self._idea(round, number) for number in range(1, IDEAS_A_ROUND + 1))
        archive.record_ideas(ideas)
        _tell(archive, IdeasProposed(round=round, ideas=ideas, reasoning="why these " * 60))
        self._called(archive, "planner", f"planner:{round}", round)
        written: list[Candidate] = []
        for idea in ideas:
            self._called(archive, "coder", f"coder:{idea.id}:0", round)
            written += self._written(archive, idea, CANDIDATES_AN_IDEA, "coder")
        written += self._written(archive, ideas[0], TUNED_A_ROUND, "tuner")
        for candidate in written:
            self._judged(archive, candidate, round)
        for candidate in written[:3]:
            _profiled(archive, candidate, round)
        for idea in ideas:
            archive.record_ledger(self._entry(idea))
        self._called(archive, "critic", f"critic:{round}", round)
        analysis = _analysis(round, written)
        archive.record_analysis(analysis)
        _tell(archive, Critiqued(round=round, analysis=analysis))
        _tell(archive, RoundFinished(round=round, best_ms=0.1, elites=20, elapsed_s=9.0 * round))

    def _idea(self, round: int, number: int) -> Idea:
        options = self.repertoire.options()
        strategy = options[(round * IDEAS_A_ROUND + number) % len(options)].strategy
        return Idea(
            id=f"r{round}i{number}",
            title=f"{strategy.title}, variation {round} by {number}",
            mechanism=f"{strategy.mechanism}; stages {round % 7} and unrolls by {number}",
            reason=f"{strategy.reason}. " * 3,
            category=strategy.category,
            metric=strategy.metric,
            predicted_ms=0.05 + self.dice.random() / 10,
            risk="registers may not suffice",
            round=round,
            origin="model",
        )

    def _written(self, archive: Archive, idea: Idea, count: int, author: Author) -> list[Candidate]:
        candidates = list(self.candidates(idea, count))
        archive.record_candidates(candidates, idea.round, author)
        for candidate in candidates:
            by = "tuner" if author == "tuner" else "coder"
            _tell(archive, CandidateWritten(round=idea.round, candidate=candidate, by=by))
        return candidates

    def candidates(self, idea: Idea, count: int) -> Iterator[Candidate]:
        """Candidates of an idea under settings that no earlier call of this idea gave."""
        options = self.repertoire.options()
        option = options[hash_of(idea.id) % len(options)]
        draft = self.repertoire.draft({option.loop: option.strategy.name})
        kernel = f"// {idea.title} ({count})\n{draft.kernel}"
        settings = list(valid_settings(parse_kernel(kernel, self.repertoire.language)))
        for number in range(count):
            yield new_candidate(
                self.repertoire.language,
                kernel if number < len(settings) else f"// again, {number}\n{kernel}",
                draft.plan,
                settings=settings[number % len(settings)],
                idea=idea.id,
                origin="model",
                strategies=(
                    *draft.strategies[:-3],
                    f"memory=way {hash_of(idea.id) % 7}",
                    f"compute=way {hash_of(idea.title) % 5}",
                    f"parallel=way {number % 3}",
                ),
                note="written for the benchmark",
            )

    def _judged(self, archive: Archive, candidate: Candidate, round: int) -> None:
        evaluation = self.evaluation(candidate, precise=False)
        archive.record_evaluation(evaluation, "screen", round)
        _tell(archive, CandidateJudged(round=round, evaluation=evaluation))
        if evaluation.verdict is Verdict.CORRECT and self.dice.random() < 0.15:
            precise = self.evaluation(candidate, precise=True)
            archive.record_evaluation(precise, "precise", round)
            _tell(archive, CandidateJudged(round=round, evaluation=precise))

    def evaluation(self, candidate: Candidate, *, precise: bool) -> Evaluation:
        """What a judge might say; one candidate in eight does not compile."""
        if not precise and hash_of(candidate.id) % 8 == 0:
            found = Verification(verdict=Verdict.COMPILE_ERROR, reason="identifier undefined")
            return Evaluation(candidate=candidate.id, verification=found, compiler_log=LOG)
        ms = 0.08 + (hash_of(candidate.id) % 1000) / 5000
        return Evaluation(
            candidate=candidate.id,
            verification=_correct(),
            reports=(CompileReport(kernel="l0", registers=24 + hash_of(candidate.id) % 100,
                                   spill_bytes=0, shared_bytes=1024, stack_bytes=0),),
            screen=measurement(ms, 20),
            comparisons=tuple(_compared(name, ms) for name in ("eager", "compile") if precise),
        )  # fmt: skip

    def _entry(self, idea: Idea) -> LedgerEntry:
        return LedgerEntry(
            idea=idea.id,
            category=idea.category,
            predicted_ms=idea.predicted_ms,
            measured_ms=0.08 + self.dice.random() / 5,
            best_before_ms=0.12,
            candidates=CANDIDATES_AN_IDEA,
            correct=CANDIDATES_AN_IDEA,
            round=idea.round,
        )

    def _called(self, archive: Archive, role: str, key: str, round: int) -> None:
        tokens = TokenCounts(input=6000, output=1500)
        text = self.repertoire.draft({}).kernel
        prompt = Prompt.model_validate({
            "key": key, "role": role, "round": round,
            "messages": (
                Message(author="system", text=text * 4), Message(author="person", text=key + text),
            ),
        })  # fmt: skip
        reply = Reply(text=text, reasoning="because " * 400, model="a model", tokens=tokens)
        archive.record_call(Call(prompt=prompt, reply=reply))
        event = {"key": key, "role": role, "model": "a model", "tokens": tokens, "round": round}
        _tell(archive, ModelCalled.model_validate(event | {"reasoning": reply.reasoning}))


def hash_of(text: str) -> int:
    """A number that is the same in every process."""
    return int.from_bytes(text.encode()[-4:], "big") * 2654435761 >> 7


def measurement(ms: float, samples: int) -> Measurement:
    """So many samples around a time."""
    times = tuple(ms * (1.0 + (number % 5) / 100) for number in range(samples))
    return Measurement(
        median_ms=ms, p10_ms=ms * 0.98, p90_ms=ms * 1.04, samples_ms=times, conditions=CONDITIONS
    )


def baselines() -> Baselines:
    """Eager and compiled."""
    return Baselines(
        items=tuple(
            Baseline(name=name, measurement=measurement(ms, 20))
            for name, ms in (("eager", 0.4), ("compile", 0.2))
        )
    )


def _correct() -> Verification:
    errors = tuple(
        OutputError(output=0, distribution=name, error=7e-8, reference_error=1e-7, error_ratio=1.0,
                    worst_index=(1601, 683), worst_got=0.0006911613, worst_expected=0.0006911616)
        for name in ("task", "large_offset", "heavy_tail")
    )  # fmt: skip
    return Verification(
        verdict=Verdict.CORRECT, reason="right on inputs drawn from three distributions",
        error_ratio=1.0, errors=errors, coverage=1.0, method="own kernels", precision="fp32",
    )  # fmt: skip


def _compared(name: str, ms: float) -> Comparison:
    base = 0.4 if name == "eager" else 0.2
    return Comparison(
        baseline=name, candidate_ms=ms, baseline_ms=base, ratio=base / ms,
        ci95_low=0.99 * base / ms, ci95_high=1.01 * base / ms, pairs=36,
        candidate_samples_ms=(ms,) * 36, baseline_samples_ms=(base,) * 36, conditions=CONDITIONS,
    )  # fmt: skip


def _profiled(archive: Archive, candidate: Candidate, round: int) -> None:
    evidence = tuple(
        Evidence(name=f"reading {number}", rank=Rank.STATIC, value=1.5 * number, unit="",
                 source="the compiler's report")
        for number in range(12)
    )  # fmt: skip
    symptom = Symptom(
        name="far from the roof", words="moves 60 % of the bandwidth", evidence=evidence[:3]
    )
    archive.record_profile(candidate.id, evidence, (symptom,))
    event = Profiled(round=round, candidate=candidate.id, evidence=evidence, symptoms=(symptom,))
    _tell(archive, event)


def _analysis(round: int, written: list[Candidate]) -> Analysis:
    faster, slower = written[0].id, written[-1].id
    claim = Claim(words="vectors of four are faster " * 4, faster=faster, slower=slower,
                  numbers=("0.1 ms", "0.2 ms", "24 registers"))  # fmt: skip
    made = Prediction(words="candidates with VECTOR=4 stay below 0.1 ms", attribute="L0_VECTOR",
                      value="4", below_ms=0.1, made_in_round=round)  # fmt: skip
    return Analysis(
        round=round, claims=(claim,) * 3, implies="wider loads pay. " * 12,
        prefer=("L0_VECTOR=4",), avoid=("L0_VECTOR=1",), predictions=(made,) * 3,
    )  # fmt: skip


def _tell(archive: Archive, event: Event) -> None:
    archive.append_event(event.kind, event.round, event.model_dump_json())
