"""An attempt: one judged answer to one question, with where it came from. And files of values.

Everything that is trained on is made of attempts, whoever wrote the answer and whichever run it was
judged in. A task in a data set is the text of its file with what it needs to be judged again.
"""

import re
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import ValidationError

from kernelwright.tools.learning.contract.prompts import Contract, Question, Turn, size_of, tokens
from kernelwright.tools.types import LanguageName, Task, Value, Verdict

ValueT = TypeVar("ValueT", bound=Value)


class Provenance(Value):
    """Where an attempt comes from.

    Attributes:
        source: A search (`run`), our own writing (`playbook`), or a model that was sampled.
        run: The run's id, or the name of what was sampled.
        author: `playbook`, `model`, `person`; for our own writing the way that loops were spread.
        device: What it was judged on.
        version: Of Kernelwright, when it was taken in.
        effort: How closely it was judged.
    """

    source: Literal["run", "playbook", "sampled"]
    run: str = ""
    author: str = ""
    device: str = ""
    version: str = ""
    effort: str = ""


class Attempt(Value):
    """One answer and its verdict.

    Attributes:
        id: Unique in a data set.
        task: The key of what is computed, shapes included; equal for equal tasks of any file.
        family: What is kept together when data is split.
        contract: In which contract it answers.
        question: The turns that were, or would be, asked.
        answer: What was answered.
        verdict: The judge's.
        reason: The judge's words, with a compiler's errors, for what failed.
        speedup: Best baseline / answer, for what is correct and was timed.
        repairs: The id of the failed attempt that it corrects, "" for none.
        analysis: What the critic said of the round it was judged in.
    """

    id: str
    task: str
    family: str
    contract: Contract
    language: LanguageName
    question: Question
    answer: str
    verdict: Verdict
    reason: str = ""
    speedup: float | None = None
    repairs: str = ""
    analysis: str = ""
    provenance: Provenance

    @property
    def code(self) -> str:
        """The answer without comments and blanks: equal for answers that differ in nothing else."""
        kept = re.sub(r"//(?!\s*(?:launch|temporary):)[^\n]*", "", self.answer)
        return sha256("".join(kept.split()).encode()).hexdigest()[:24]

    @property
    def tokens(self) -> int:
        """Of question and answer, estimated."""
        return size_of(self.question) + tokens(self.answer)


class Problem(Value):
    """A task of a data set, to be sampled and judged."""

    name: str
    key: str
    family: str
    task: Task


class Row(Value):
    """One row to train on, in the words that trainers know.

    Attributes:
        prompt: The turns before the answer.
        completion: The answer as a turn, of rows to imitate.
        chosen: The better answer, of rows to prefer by.
        rejected: The worse one.
        task: The task's key.
        family: The task's family.
        ratio: How many times faster the chosen answer is; None where the rejected one is wrong.
        attempts: The ids of the attempts that it is made of.
        tokens: Of the whole row, estimated.
        provenance: Where the answer to learn came from.
    """

    kind: Literal["instruction", "repair", "preference", "contrastive"]
    prompt: Question
    completion: tuple[Turn, ...] = ()
    chosen: tuple[Turn, ...] = ()
    rejected: tuple[Turn, ...] = ()
    task: str
    family: str
    contract: Contract
    ratio: float | None = None
    attempts: tuple[str, ...]
    tokens: int
    provenance: Provenance


def write_lines(path: Path, items: Iterable[Value]) -> int:
    """Write values, a JSON line each, in place of what was there; answers how many."""
    path.parent.mkdir(parents=True, exist_ok=True)
    count, draft = 0, path.with_name(f".{path.name}.part")
    with draft.open("w", encoding="utf-8") as file:
        for item in items:
            file.write(item.model_dump_json(exclude_defaults=isinstance(item, Row)) + "\n")
            count += 1
    draft.replace(path)
    return count


def read_lines(path: Path, kind: type[ValueT]) -> list[ValueT]:
    """The values of a file.

    Raises:
        ValueError: A line holds none; the message names file and line.
    """
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            found.append(kind.model_validate_json(line))
        except ValidationError:
            raise ValueError(f"{path}, line {number}: no {kind.__name__.lower()}") from None
    return found
