"""A small language model that answers questions: loading, sampling, the likelihood of answers.

Models are folders as transformers saves them, read from this machine alone, and with an adapter
beside them if one was trained. Sequences are padded on the left for sampling, so that one batch
continues together. What ends a turn is read off the chat template, as tokenizers of converted
models often name another token.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.tools.learning.contract.prompts import Question
from kernelwright.tools.learning.data.records import Problem
from kernelwright.tools.learning.evaluation import asked
from kernelwright.tools.learning.training.folding import folded
from kernelwright.tools.threads import UnwantedError, is_wanted
from kernelwright.tools.types import EnvironmentLacksError, LanguageName

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MISSING = (
    "learning from results needs transformers and peft, which are not installed here: "
    "pip install 'kernelwright[learn]'"
)
_MARK = "what-was-said"


class UnusableModelError(ValueError):
    """A folder or file holds no model, or none that can be asked; the message says why."""


def need_extra() -> None:
    """Import what training needs, or say how to get it.

    Raises:
        EnvironmentLacksError: The extra is not installed.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # models are folders; nothing is downloaded
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        import peft  # noqa: F401
        import transformers
    except ImportError:
        raise EnvironmentLacksError(MISSING) from None
    transformers.utils.logging.disable_progress_bar()
    # PEFT asks transformers for it by its old name.
    warnings.filterwarnings("ignore", message=".*is_gradient_checkpointing.*")


def _while_wanted(ids: torch.Tensor, scores: object, **_: object) -> torch.Tensor:
    """Stops no sequence; after each token an interrupted program ends all of them."""
    if not is_wanted():
        raise UnwantedError
    return ids.new_zeros(len(ids)).bool()


@dataclass(frozen=True)
class Sampling:
    """How answers are drawn; `batch` sequences are continued together."""

    tokens: int = 768
    temperature: float = 0.8
    batch: int = 64


@dataclass(frozen=True)
class Sample:
    """One answer as it was drawn: its text, and the tokens of prompt and answer."""

    text: str
    prompt: tuple[int, ...]
    answer: tuple[int, ...]


class Policy:
    """A model with its tokenizer.

    Args:
        model: Causal, with or without an adapter.
        tokenizer: With a chat template.
        name: What reports call it.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, name: str
    ) -> None:
        self.model, self.tokenizer, self.name = model, tokenizer, name
        self.end = end_of_turn(tokenizer)
        # Converted models end a text by the token that pads as well.
        self._ends = tuple(dict.fromkeys((self.end, self._padding)))

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        import torch

        return torch.device(self.model.device)

    def prompt(self, asked: Question) -> list[int]:
        """The tokens of a question, up to where the answer begins."""
        turns = [turn.model_dump() for turn in asked]
        text = self.tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=False)
        return self.encoded(str(text))

    def answer(self, text: str) -> list[int]:
        """The tokens of an answer, with the one that ends the turn."""
        return [*self.encoded(text), self.end]

    def encoded(self, text: str) -> list[int]:
        """A text's tokens, none added."""
        return [int(token) for token in self.tokenizer(text, add_special_tokens=False).input_ids]

    def sampled(
        self, questions: Sequence[Question], count: int, sampling: Sampling, seed: int
    ) -> list[list[Sample]]:
        """So many answers to each question."""
        prompts = [self.prompt(asked) for asked in questions]
        wanted = [prompt for prompt in prompts for _ in range(count)]
        # Neighbours in a batch are padded to each other's length.
        order = sorted(range(len(wanted)), key=lambda at: len(wanted[at]))
        found: dict[int, Sample] = {}
        with folded(self.model):
            for first in range(0, len(order), sampling.batch):
                places = order[first : first + sampling.batch]
                drawn = self._continued([wanted[at] for at in places], sampling, seed + first)
                found |= dict(zip(places, drawn, strict=True))
        self._leave_the_device()
        return [
            [found[at * count + number] for number in range(count)] for at in range(len(prompts))
        ]

    def _leave_the_device(self) -> None:
        """Give back memory that only torch's allocator still holds: the judge comes next."""
        import torch

        if self.device.type == "cuda":
            torch.cuda.empty_cache()

    def _continued(
        self, prompts: Sequence[list[int]], sampling: Sampling, seed: int
    ) -> list[Sample]:
        import torch

        ids, mask = self.padded(prompts, left=True)
        torch.manual_seed(seed)
        self.model.eval()
        with torch.no_grad():
            out = self.model.generate(
                input_ids=ids,
                attention_mask=mask,
                max_new_tokens=sampling.tokens,
                do_sample=sampling.temperature > 0,
                temperature=sampling.temperature or None,
                top_k=0,
                top_p=1.0,
                eos_token_id=list(self._ends),
                pad_token_id=self._padding,
                stopping_criteria=[_while_wanted],
            )
        rows = out[:, ids.shape[1] :].tolist()
        return [self._sample(prompt, row) for prompt, row in zip(prompts, rows, strict=True)]

    def _sample(self, prompt: list[int], row: list[int]) -> Sample:
        last = next((at for at, token in enumerate(row) if token in self._ends), len(row) - 1)
        answer = row[: last + 1]
        text = self.tokenizer.decode(answer, skip_special_tokens=True)
        return Sample(text=str(text), prompt=tuple(prompt), answer=tuple(answer))

    @property
    def _padding(self) -> int:
        found = self.tokenizer.pad_token_id
        return self.end if found is None else int(found)

    def padded(
        self, rows: Sequence[Sequence[int]], *, left: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows of tokens as one tensor (rows, longest), int64, and the mask of what is real."""
        import torch

        longest = max(map(len, rows))
        ids = torch.full((len(rows), longest), self._padding, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for at, row in enumerate(rows):
            place = slice(longest - len(row), None) if left else slice(len(row))
            ids[at, place] = torch.tensor(row, dtype=torch.long)
            mask[at, place] = 1
        return ids.to(self.device), mask.to(self.device)

    def log_likelihoods(
        self,
        prompts: Sequence[Sequence[int]],
        answers: Sequence[Sequence[int]],
        temperature: float = 1.0,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Of each answer's tokens after its prompt, (rows, longest answer), float32; and the mask.

        Gradients flow. Rows are padded behind their answers: a padding token before a prompt
        attends to nothing, and gradients of such rows of attention need not be numbers. Logits are
        made from the shortest prompt's end on.
        """
        import torch

        ids, real = self.padded([[*p, *a] for p, a in zip(prompts, answers, strict=True)])
        replies, kept = self.padded(answers)
        first = min(map(len, prompts))
        out = self.model(
            input_ids=ids, attention_mask=real, logits_to_keep=ids.shape[1] - first + 1
        )
        logits = out.logits[:, :-1].float()
        if temperature != 1.0:  # each copy is gigabytes of a large vocabulary
            logits = logits / temperature
        chosen = logits.gather(2, ids[:, first:, None]).squeeze(2)
        likely = chosen - logits.logsumexp(2)
        begins = torch.tensor([[len(prompt) - first] for prompt in prompts], device=likely.device)
        places = begins + torch.arange(replies.shape[1], device=likely.device)
        return likely.gather(1, places.clamp(max=likely.shape[1] - 1)), kept


def end_of_turn(tokenizer: PreTrainedTokenizerBase) -> int:
    """The token that ends an assistant's turn in the tokenizer's own chat template.

    Raises:
        UnusableModelError: The tokenizer has no chat template.
    """
    turns = [{"role": "user", "content": "?"}, {"role": "assistant", "content": _MARK}]
    try:
        text = str(tokenizer.apply_chat_template(turns, tokenize=False))
    except ValueError:
        raise UnusableModelError(
            "the model's tokenizer has no chat template, so it cannot be asked; take a model that "
            "was trained to answer"
        ) from None
    after = text.partition(_MARK)[2].strip()
    for token in [*tokenizer.all_special_tokens, *tokenizer.get_added_vocab()]:
        if token and after.startswith(token):
            return int(tokenizer.convert_tokens_to_ids(token))
    found = tokenizer.eos_token_id
    assert isinstance(found, int)
    return found


def load_policy(path: Path, adapter: Path | None = None, *, trains: bool = False) -> Policy:
    """A model from a folder.

    Args:
        path: The folder.
        adapter: A trained adapter's folder, if any.
        trains: Whether the adapter's weights will be trained on.

    Raises:
        EnvironmentLacksError: The extra is missing.
        UnusableModelError: There is no model in the folder, or no adapter in the other.
    """
    need_extra()
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    on_gpu = torch.cuda.is_available()
    if not (path / "config.json").is_file():
        raise UnusableModelError(
            f"there is no model in {path}; give a folder that holds config.json, or unpack a .gguf "
            "file first: kernelwright learn unpack FILE --out FOLDER"
        )
    dtype = torch.bfloat16 if on_gpu else torch.float32
    tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(path, dtype=dtype, local_files_only=True)
    model = model.to("cuda" if on_gpu else "cpu")
    if adapter is not None:
        from peft import PeftModel

        if not (adapter / "adapter_config.json").is_file():
            raise UnusableModelError(f"there is no adapter in {adapter}")
        model = PeftModel.from_pretrained(model, adapter, is_trainable=trains)
    name = path.name if adapter is None else f"{path.name} with {adapter.name}"
    return Policy(model, tokenizer, name)


class ModelAnswerer:
    """A model as somebody who is asked.

    Args:
        policy: The model.
        sampling: How answers are drawn.
        language: What it is asked to write.
    """

    def __init__(self, policy: Policy, sampling: Sampling, language: LanguageName) -> None:
        self._policy, self._sampling, self._language = policy, sampling, language

    @property
    def name(self) -> str:
        """The model's."""
        return self._policy.name

    def answers(self, problems: Sequence[Problem], count: int, seed: int) -> list[list[str]]:
        """So many answers to each problem."""
        questions = [asked(problem, self._language) for problem in problems]
        drawn = self._policy.sampled(questions, count, self._sampling, seed)
        return [[sample.text for sample in of] for of in drawn]
