"""Sampling with the adapter in the weights, where answers end, and what goes through together."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from kernelwright.tools.learning.contract.prompts import Turn
from kernelwright.tools.learning.training.adapter import trained, with_adapter
from kernelwright.tools.learning.training.course import together
from kernelwright.tools.learning.training.folding import folded
from kernelwright.tools.learning.training.policy import Policy, Sampling, load_policy
from kernelwright.tools.threads import in_thread

WITHOUT = [name for name in ("peft", "transformers") if importlib.util.find_spec(name) is None]
needs_extra = pytest.mark.skipif(bool(WITHOUT), reason="the extra [learn] is not installed")
ASKED = (Turn(role="user", content="a kernel, please"),)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, toy: SimpleNamespace) -> Path:
    folder = Path(tmp_path_factory.mktemp("tiny"))
    toy.save_tiny(folder, ["a kernel, please: float* x"])
    return folder


def adapted(folder: Path, spread: float) -> Policy:
    """The tiny model in bfloat16, as on a GPU, with an adapter that changes something."""
    import torch

    policy = load_policy(folder)
    policy.model.to(torch.bfloat16)
    policy = with_adapter(policy, rank=4)
    torch.manual_seed(1)
    with torch.no_grad():
        for _, weight in trained(policy):
            weight.copy_(torch.randn_like(weight) * spread)
    return policy


@needs_extra
def test_the_adapter_is_in_the_weights_meanwhile_and_these_come_back_bit_for_bit(
    tiny: Path,
) -> None:
    import torch

    policy = adapted(tiny, 0.1)
    before = {name: weight.clone() for name, weight in policy.model.state_dict().items()}
    ids, _ = policy.padded([policy.prompt(ASKED)], left=True)
    with torch.no_grad():
        beside = policy.model(ids).logits
        with folded(policy.model):
            inside = policy.model(ids).logits
            with policy.model.disable_adapter():
                pass  # it unmerges and merges again, which rounds
    assert float((inside - beside).abs().max()) < 0.1 * float(beside.abs().max())
    assert all(torch.equal(before[name], now) for name, now in policy.model.state_dict().items())


@needs_extra
def test_weights_come_back_where_sampling_fails(tiny: Path) -> None:
    import torch

    policy = adapted(tiny, 0.1)
    before = {name: weight.clone() for name, weight in policy.model.state_dict().items()}
    with pytest.raises(RuntimeError, match="out of memory"), folded(policy.model):
        raise RuntimeError("out of memory")
    assert all(torch.equal(before[name], now) for name, now in policy.model.state_dict().items())


@needs_extra
def test_weights_come_back_where_merging_fails_half_way(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from peft.tuners.lora import Linear

    policy = adapted(tiny, 0.1)
    before = {name: weight.clone() for name, weight in policy.model.state_dict().items()}
    merge, merged = Linear.merge, []

    def second_fails(self: Linear, *given: object, **named: object) -> None:
        if merged:
            raise RuntimeError("out of memory")
        merged.append(self)
        merge(self, *given, **named)

    monkeypatch.setattr(Linear, "merge", second_fails)
    with pytest.raises(RuntimeError, match="out of memory"), folded(policy.model):
        raise AssertionError("it was never merged")
    assert not merged[0].merged
    assert all(torch.equal(before[name], now) for name, now in policy.model.state_dict().items())


@needs_extra
def test_weights_come_back_where_unmerging_fails(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch
    from peft.tuners.lora import Linear

    policy = adapted(tiny, 0.1)
    before = {name: weight.clone() for name, weight in policy.model.state_dict().items()}

    def fails(self: Linear) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(Linear, "unmerge", fails)
    with pytest.raises(RuntimeError, match="out of memory"), folded(policy.model):
        pass
    assert all(torch.equal(before[name], now) for name, now in policy.model.state_dict().items())


@needs_extra
def test_an_answer_ends_at_the_end_of_a_turn_or_of_a_text(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    policy = load_policy(tiny)
    padding = policy.tokenizer.pad_token_id
    assert padding != policy.end
    rows = [[7, 8, policy.end, padding], [7, padding, padding, padding], [7, 8, 9, 10]]

    def generate(input_ids: torch.Tensor, **given: object) -> torch.Tensor:
        assert given["eos_token_id"] == [policy.end, padding]
        return torch.cat([input_ids, torch.tensor(rows)], 1)

    monkeypatch.setattr(policy.model, "generate", generate)
    (drawn,) = policy.sampled([ASKED], 3, Sampling(tokens=4, batch=8), seed=0)
    assert [one.answer for one in drawn] == [(7, 8, policy.end), (7, padding), (7, 8, 9, 10)]
    assert "<|" not in drawn[0].text + drawn[1].text


def test_long_sequences_go_through_fewer_at_a_time() -> None:
    lengths = [3000, 100, 900, 3000, 3000, 3000, 3000, 800, 700]
    parts = list(together(lengths, 8))
    assert sorted(at for part in parts for at in part) == list(range(9))
    assert [len(part) for part in parts] == [4, 4, 1]
    assert all(len(part) * max(lengths[at] for at in part) <= 12_288 for part in parts)
    assert [len(part) for part in together([50_000, 60_000], 8)] == [1, 1]
    assert list(together([], 8)) == []


@needs_extra
async def test_sampling_ends_with_the_token_at_which_it_is_interrupted(tiny: Path) -> None:
    policy = load_policy(tiny)
    policy._ends = (1 << 30,)  # no token: answers have no end of their own
    ended = threading.Event()

    def drawn() -> None:
        try:
            policy.sampled([ASKED], 4, Sampling(tokens=100_000), seed=0)
        finally:
            ended.set()

    drawing = asyncio.create_task(in_thread(drawn))
    await asyncio.sleep(0.5)
    assert not ended.is_set()
    drawing.cancel()
    assert await asyncio.to_thread(ended.wait, 1.0), "it draws for several seconds"
