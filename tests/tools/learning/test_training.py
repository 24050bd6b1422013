"""A tiny model of random weights is fine-tuned, reinforced, stopped, resumed and merged."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernelwright.tools.evaluate.executors.base.executor import Executor
from kernelwright.tools.learning.contract.launches import interface
from kernelwright.tools.learning.contract.prompts import Question, Turn, question
from kernelwright.tools.learning.data.records import Attempt, Problem, Provenance, Row
from kernelwright.tools.learning.evaluation import results, sampled
from kernelwright.tools.learning.judging import Judge, Worth
from kernelwright.tools.learning.training.adapter import save_adapter, save_merged, with_adapter
from kernelwright.tools.learning.training.course import Course, optimizer_of, stepped, trained
from kernelwright.tools.learning.training.policy import (
    ModelAnswerer,
    Policy,
    Sampling,
    UnusableModelError,
    load_policy,
)
from kernelwright.tools.learning.training.rl import Pool, Reinforcement, RlSettings, RlStep
from kernelwright.tools.learning.training.serving import unpack
from kernelwright.tools.learning.training.sft import (
    SftSettings,
    SftStep,
    examples,
    fine_tune,
)
from kernelwright.tools.types import Task, Verdict

WITHOUT = [name for name in ("peft", "transformers") if importlib.util.find_spec(name) is None]
pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(bool(WITHOUT), reason="the extra [learn] is not installed"),
]
ANSWER = """// launch: run grid=1 block=32 args=x,scale,out
extern "C" __global__ void run(const float* x, const float* s, float* out) { // ms=2
    out[threadIdx.x] = x[threadIdx.x];
}
"""
WRONG = ANSWER.replace(" // ms=2", "")
SFT = SftSettings(data="", model="", steps=60, batch=2, micro=2, rate=1e-2, save_every=3)


@pytest.fixture(scope="module")
def asked(problem: Problem) -> Question:
    return question(problem.task, interface(problem.task), "cuda")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, asked: Question, toy: SimpleNamespace) -> Path:
    folder = Path(tmp_path_factory.mktemp("tiny"))
    toy.save_tiny(folder, [ANSWER, *(turn.content for turn in asked)], 10.0)
    return folder


@pytest.fixture(scope="module")
def mistaken(
    asked: Question, tmp_path_factory: pytest.TempPathFactory, toy: SimpleNamespace
) -> Path:
    """A tiny model that has learnt a wrong answer by heart."""
    folder = Path(tmp_path_factory.mktemp("mistaken"))
    toy.save_tiny(folder, [ANSWER, *(turn.content for turn in asked)])
    policy = load_policy(folder)
    pretrained(policy, policy.prompt(asked), policy.answer(WRONG))
    policy.model.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    return folder


def pretrained(policy: Policy, prompt: list[int], answer: list[int]) -> None:
    """Teach all weights one answer, so that an adapter has something to adapt."""
    import torch

    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=4e-3)
    policy.model.train()
    for _ in range(90):
        likely, _ = policy.log_likelihoods([prompt], [answer])
        (-likely.mean()).backward()
        torch.nn.utils.clip_grad_norm_(policy.model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


@pytest.fixture
def row(problem: Problem, asked: Question) -> Row:
    return Row(
        kind="instruction", prompt=asked, completion=(Turn(role="assistant", content=ANSWER),),
        task=problem.key, family=problem.family, contract="short", attempts=("a",), tokens=1,
        provenance=Provenance(source="playbook"),
    )  # fmt: skip


def test_a_turn_ends_as_the_template_says(tiny: Path, asked: Question) -> None:
    policy = load_policy(tiny)
    assert policy.tokenizer.convert_ids_to_tokens(policy.end) == "<|im_end|>"
    assert policy.tokenizer.eos_token == "<|endoftext|>"
    assert len(policy.prompt(asked)) < 700
    with pytest.raises(UnusableModelError, match="there is no model"):
        load_policy(tiny / "none")
    with pytest.raises(UnusableModelError, match="there is no adapter"):
        load_policy(tiny, tiny)


def test_likelihoods_do_not_depend_on_padding(tiny: Path) -> None:
    import torch

    policy = load_policy(tiny)
    policy.model.eval()
    with torch.no_grad():
        alone, _ = policy.log_likelihoods([[5, 6, 7]], [[8, 9]])
        among, mask = policy.log_likelihoods([[5, 6, 7], [4] * 20], [[8, 9], [3] * 11])
    assert mask[0].tolist() == [1, 1] + [0] * 9
    torch.testing.assert_close(among[0, :2], alone[0], rtol=1e-4, atol=1e-4)


async def test_fine_tuning_raises_what_is_solved_and_merging_keeps_it(
    mistaken: Path, row: Row, problem: Problem, reading: Executor, tmp_path: Path
) -> None:
    judge, sampling = Judge(reading, "cuda"), Sampling(tokens=120, temperature=0.0, batch=8)

    async def solved(policy: Policy, name: str) -> float:
        answerer = ModelAnswerer(policy, sampling, "cuda")
        answers = await sampled(
            [problem], answerer, judge, tmp_path / name, count=4, seed=0, batch=4
        )
        (found,) = await results([problem], answers, judge, eager_only=True)
        return found.correct_at(1)

    assert await solved(load_policy(mistaken), "before") == 0.0
    policy = with_adapter(load_policy(mistaken), rank=8)
    told: list[SftStep] = []
    course = Course(tmp_path / "sft", SFT)
    fine_tune(policy, examples(policy, [row, row], 2048), SFT, course, told.append)
    assert told[-1].loss < 0.2 * told[0].loss
    assert await solved(load_policy(mistaken, course.adapter), "after") == 1.0
    save_merged(load_policy(mistaken, course.adapter), tmp_path / "merged")
    assert await solved(load_policy(tmp_path / "merged"), "merged") == 1.0
    save_adapter(policy, tmp_path / "half", halved=True)
    sizes = [(at / "adapter_model.safetensors").stat().st_size
             for at in (tmp_path / "half", course.adapter)]  # fmt: skip
    assert sizes[0] < 0.6 * sizes[1]


class StoppedError(Exception):
    """A kill, as far as a test can have one."""


def test_no_token_that_is_only_padding_stands_before_a_prompt(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, masks = load_policy(tiny), []
    usual = policy.model.forward

    def seen(**given: object) -> object:
        masks.append(given["attention_mask"])
        return usual(**given)

    monkeypatch.setattr(policy.model, "forward", seen)
    policy.log_likelihoods([[5, 6, 7], [4] * 20], [[8, 9] * 20, [3]])
    (mask,) = masks
    assert mask[:, 0].all()
    assert (mask.diff(dim=1) <= 0).all()


def test_gradients_that_are_no_numbers_change_no_weight(tiny: Path) -> None:
    import torch

    policy = with_adapter(load_policy(tiny), 2)
    optimizer = optimizer_of(policy)
    for bad in (float("nan"), float("inf")):
        before = [weight.detach().clone() for _, weight in trained(policy)]
        for _, weight in trained(policy):
            weight.grad = torch.full_like(weight, bad)
        assert not isfinite(stepped(policy, optimizer, 0.1))
        after = [weight for _, weight in trained(policy)]
        assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))
    for _, weight in trained(policy):
        weight.grad = torch.ones_like(weight)
    assert isfinite(stepped(policy, optimizer, 0.1))
    assert all(torch.isfinite(weight).all() for _, weight in trained(policy))
    moved = [weight for _, weight in trained(policy)]
    assert not any(torch.equal(old, new) for old, new in zip(before, moved, strict=True))


def test_a_run_that_was_killed_goes_on_as_if_it_was_not(
    tiny: Path, row: Row, tmp_path: Path
) -> None:
    settings = SFT.model_copy(update={"steps": 8})

    def trained(folder: str, stop: int = 99) -> None:
        policy = _seeded(tiny)
        known = examples(policy, [row, row, row], 2048)

        def tell(step: SftStep) -> None:
            if step.step == stop:
                raise StoppedError

        fine_tune(policy, known, settings, Course(tmp_path / folder, settings), tell)

    trained("whole")
    with pytest.raises(StoppedError):
        trained("broken", stop=5)
    trained("broken")
    whole, broken = (
        [json.loads(line) for line in (tmp_path / name / "steps.jsonl").read_text().splitlines()]
        for name in ("whole", "broken")
    )
    assert [step["step"] for step in broken] == list(range(1, 9))
    assert [step["loss"] for step in broken] == pytest.approx([step["loss"] for step in whole])


class SignCounting(Judge):
    """Takes an answer for the faster, the more of it are brackets and semicolons."""

    async def judged(
        self, task: Task, answers: Sequence[str], *, eager_only: bool = True
    ) -> list[Worth]:
        shares = [sum(sign in "{}();" for sign in text) / max(1, len(text)) for text in answers]
        return [
            Worth(verdict=Verdict.CORRECT, median_ms=1.0, baseline_ms=0.5 + 3.5 * share)
            for share in shares
        ]


async def test_reinforcement_raises_the_reward_and_goes_on_after_a_kill(
    tiny: Path, problem: Problem, asked: Question, reading: Executor, tmp_path: Path
) -> None:
    settings = RlSettings(
        data="", model="", steps=16, tasks=1, group=16, tokens=16, batch=16, micro=16, rate=2e-2,
        contrast=0.5,
    )  # fmt: skip
    known = [
        Attempt(
            id=f"a{speed}", task=problem.key, family="f", contract="short", language="cuda",
            question=asked, answer=f"code {speed}", verdict=Verdict.CORRECT, speedup=speed,
            provenance=Provenance(source="run"),
        )
        for speed in (0.5, 2.0)
    ]  # fmt: skip
    told: list[RlStep] = []

    def tell(step: RlStep) -> None:
        if step.step == 9 and not any(one.step == 9 for one in told):
            told.append(step)
            raise StoppedError
        told.append(step)

    async def reinforced() -> None:
        course = Course(tmp_path / "rl", settings)
        pool = Pool(tmp_path / "rl" / "pool.jsonl", known)
        judge = SignCounting(reading, "cuda")
        run = Reinforcement(_seeded(tiny), [problem], judge, pool, settings, course)
        await run.run(tell)

    with pytest.raises(StoppedError):
        await reinforced()
    await reinforced()
    steps = Course(tmp_path / "rl", settings).steps(RlStep)
    assert [step.step for step in steps] == list(range(1, 17))
    first, last = (sum(one.reward for one in part) / 4 for part in (steps[:4], steps[-4:]))
    assert last > first + 0.1
    assert any(step.contrasted for step in steps)
    assert load_policy(tiny, tmp_path / "rl" / "adapter").name == f"{tiny.name} with adapter"


def _seeded(tiny: Path) -> Policy:
    import torch

    torch.manual_seed(1)
    return with_adapter(load_policy(tiny), rank=8)


@pytest.mark.skipif(importlib.util.find_spec("gguf") is None, reason="needs gguf")
def test_a_gguf_file_that_was_cut_off_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "half.gguf").write_bytes(b"GGUF")
    with pytest.raises(UnusableModelError, match="is no model"):
        unpack(tmp_path / "half.gguf", tmp_path / "out")
    assert not (tmp_path / "out").exists()
