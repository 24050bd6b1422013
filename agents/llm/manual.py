"""A person as the model: every prompt becomes a file, and the answer is a file beside it.

    003-coder-r1i2-0.prompt.md      what is asked; its first lines say what to do
    003-coder-r1i2-0.answer.md      what is answered

Prompts are numbered in the order they were asked. A prompt is written under another name and
renamed, so nobody sees half of one. An answer counts once it holds more than white space. A
question that is asked again in the same words (after a resume) keeps its file. Not here: keeping
answers, which the archive does, and what they mean.
"""

import asyncio
import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from math import inf
from pathlib import Path
from time import monotonic, time

from kernelwright.agents.llm.client import LLMError
from kernelwright.agents.prompting.templates import section
from kernelwright.tools.types import Prompt, Reply
from kernelwright.tools.types.value import AwaitingError

HERE = Path(__file__).parent
PROMPT, ANSWER, REPLACED = ".prompt.md", ".answer.md", ".replaced.md"
# Who speaks, in the words of somebody who reads the file or pastes it into a chat.
SPEAKERS = {
    "system": "instructions",
    "person": "question",
    "model": "your earlier answer",
    "tool": "result",
}
RULE = "=" * 100


@dataclass(frozen=True)
class Look:
    """An answer's file at one moment; equal when nothing was written in between."""

    size: int
    changed_ns: int

    @property
    def rested_s(self) -> float:
        """Seconds since it was last written to."""
        return time() - self.changed_ns / 1e9


@dataclass(frozen=True)
class Letter:
    """One question as a file, and where its answer goes."""

    prompt: Path

    @property
    def answer(self) -> Path:
        """The file that is waited for."""
        return self.prompt.with_name(self.prompt.name.removesuffix(PROMPT) + ANSWER)

    def look(self) -> Look | None:
        """The answer as it is now; None while there is none, or nothing in it."""
        try:
            found = self.answer.stat()
            return Look(found.st_size, found.st_mtime_ns) if self.read().strip() else None
        except OSError:
            return None

    def read(self) -> str:
        """The answer's text; what is no UTF-8 in it is replaced."""
        return self.answer.read_text(encoding="utf-8-sig", errors="replace")


class Mailbox:
    """A folder of prompts and answers."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def post(self, prompt: Prompt, poll_s: float) -> Letter:
        """Write a prompt down; one that lies there in the same words keeps its file."""
        self._folder.mkdir(parents=True, exist_ok=True)
        asked = [letter for letter in self._letters() if _slug_of(letter) == _slug(prompt)]
        for letter in asked:
            if letter.prompt.read_text(encoding="utf-8").endswith(_body(prompt)):
                return letter
        earlier = [letter for letter in asked if letter.look() is not None]
        for letter in asked:
            if letter not in earlier:
                self._replace(letter)
        return self._write(prompt, poll_s, earlier)

    def unanswered(self) -> tuple[Letter, ...]:
        """The prompts without an answer, in the order they were asked."""
        return tuple(letter for letter in self._letters() if letter.look() is None)

    def latest_post(self) -> float:
        """When the youngest prompt was written, in seconds since 1970; 0 where there is none."""
        return max((letter.prompt.stat().st_mtime for letter in self._letters()), default=0.0)

    def _write(self, prompt: Prompt, poll_s: float, earlier: list[Letter]) -> Letter:
        number = f"{self._last_number() + 1:03}"
        letter = Letter(self._folder / f"{number}-{_slug(prompt)}{PROMPT}")
        head = section(
            HERE / "letter.md",
            number=number,
            role=prompt.role,
            round=prompt.round,
            key=prompt.key,
            answer=letter.answer.name,
            poll_s=f"{poll_s:g}",
            earlier=earlier[-1].answer.name if earlier else "",
        )
        draft = letter.prompt.with_suffix(".part")
        draft.write_text(f"{head.rstrip()}\n{_body(prompt)}", encoding="utf-8")
        os.replace(draft, letter.prompt)
        return letter

    def _replace(self, letter: Letter) -> None:
        """Put a question aside that nobody answered and that is asked in other words now."""
        name = letter.prompt.name.removesuffix(PROMPT) + REPLACED
        os.replace(letter.prompt, letter.prompt.with_name(name))

    def _letters(self) -> list[Letter]:
        found = self._folder.glob(f"[0-9]*-*{PROMPT}")
        return [Letter(path) for path in sorted(found, key=lambda path: _number(path.name))]

    def _last_number(self) -> int:
        return max((_number(path.name) for path in self._folder.glob("[0-9]*-*.md")), default=0)


def _number(name: str) -> int:
    found = re.match(r"\d+", name)
    return int(found[0]) if found else 0


def _slug(prompt: Prompt) -> str:
    """Role and key as part of a file's name."""
    key = prompt.key if prompt.key.startswith(prompt.role) else f"{prompt.role}-{prompt.key}"
    return re.sub(r"[^A-Za-z0-9.]+", "-", key).strip("-")


def _slug_of(letter: Letter) -> str:
    return letter.prompt.name.removesuffix(PROMPT).partition("-")[2]


def _body(prompt: Prompt) -> str:
    """The messages in full; its end tells prompts apart, whatever the head above it says."""
    parts = [f"{RULE}\n"]
    for message in prompt.messages:
        parts.append(f"\n[{SPEAKERS[message.author]}]\n\n{message.text.rstrip()}\n")
    return "\n" + "".join(parts)


MODEL = "manual"
# An answer of this word alone leaves the question to the playbook.
PASS = "pass"

Tell = Callable[[str, tuple[Path, ...]], None]


class ManualClient:
    """Asks whoever reads the folder.

    Args:
        folder: Where prompts and answers lie; made when first needed.
        patience_s: How long to wait for an answer before the run pauses.
        poll_s: How often to look. An answer that changed between two looks is not read yet.
        grace_s: Nobody's patience ends while others still ask: this long after the latest prompt.
        away: Entered while waiting, so that the time can be left out of a budget.
        tell: Called with a sentence and the answer's path when a question has to wait.
    """

    def __init__(
        self,
        folder: Path,
        patience_s: float = inf,
        poll_s: float = 1.0,
        *,
        grace_s: float = 2.0,
        away: Callable[[], AbstractContextManager[None]] = nullcontext,
        tell: Tell | None = None,
    ) -> None:
        self._box = Mailbox(folder.absolute())
        self._patience_s = patience_s
        self._poll_s = poll_s
        self._grace_s = grace_s
        self._away = away
        self._tell = tell

    async def say(self, prompt: Prompt) -> Reply:
        """Write the prompt down and wait for the answer.

        Raises:
            LLMError: The answer is the word "pass".
            AwaitingError: There is no answer yet, and patience is over.
        """
        letter, began = self._box.post(prompt, self._poll_s), monotonic()
        with self._away():
            text = await self._answer(letter, began)
        if text is None:
            raise self._awaiting()
        if text.strip().strip(".`'\"").lower() == PASS:
            raise LLMError(f"{letter.answer.name} leaves the question to the playbook")
        return Reply(text=text, model=MODEL, seconds=monotonic() - began)

    async def _answer(self, letter: Letter, began: float) -> str | None:
        """The text of a complete answer; None when patience ended before there was one."""
        seen, told = None, False
        while True:
            now = letter.look()
            if now is not None and (now == seen or now.rested_s > 2 * self._poll_s):
                return letter.read()
            seen = now
            if now is None and self._is_over(began):
                return None
            if now is None and not told:
                told = True
                self._say_so(letter)
            await asyncio.sleep(self._poll_s)

    def _say_so(self, letter: Letter) -> None:
        """Tell of a question that somebody sits and waits for; else the run's end tells of all."""
        if self._tell is not None and self._patience_s > self._grace_s:
            self._tell(_words((letter.answer,)), (letter.answer,))

    def _is_over(self, began: float) -> bool:
        """Whether patience is; a sibling that asks at the same time gets to write its prompt."""
        waited_s = monotonic() - began
        if waited_s < max(self._patience_s, self._grace_s):
            return False
        # Bounded, for the clocks of two hosts over one folder may differ.
        quiet_s = abs(time() - self._box.latest_post())
        return quiet_s >= self._grace_s or waited_s >= self._patience_s + 10 * self._grace_s

    def _awaiting(self) -> AwaitingError:
        paths = tuple(letter.answer for letter in self._box.unanswered())
        return AwaitingError(_words(paths), paths)


def _words(paths: tuple[Path, ...]) -> str:
    """Where whose answer goes, in one sentence."""
    names = ", ".join(path.name for path in paths)
    if len(paths) == 1:
        prompt = paths[0].name.replace(".answer.md", ".prompt.md")
        return f"waiting for the answer to {prompt}: write it to {paths[0]}"
    return (
        f"waiting for {len(paths)} answers in {paths[0].parent}: {names}"
        if paths
        else ("waiting for an answer that has just arrived")
    )
