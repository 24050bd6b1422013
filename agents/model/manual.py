"""A person as the model: every prompt becomes a file, and the answer is a file beside it.

    003-coder-r1i2-0.prompt.md      what is asked; its first lines say what to do
    003-coder-r1i2-0.answer.md      what is answered

Prompts are numbered in the order they were asked. A question that is asked again in the same words
(after a resume) keeps its file. Not here: keeping answers, which the archive does, and what they
mean.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from math import inf
from pathlib import Path
from time import monotonic, time

from agents.model.mailbox import Letter, Mailbox
from agents.model.voice import VoiceError
from tools.awaiting import AwaitingError
from tools.nouns import Prompt, Reply

MODEL = "manual"
# An answer of this word alone leaves the question to the playbook.
PASS = "pass"

Tell = Callable[[str, tuple[Path, ...]], None]


class ManualVoice:
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
            VoiceError: The answer is the word "pass".
            AwaitingError: There is no answer yet, and patience is over.
        """
        letter, began = self._box.post(prompt, self._poll_s), monotonic()
        with self._away():
            text = await self._answer(letter, began)
        if text is None:
            raise self._awaiting()
        if text.strip().strip(".`'\"").lower() == PASS:
            raise VoiceError(f"{letter.answer.name} leaves the question to the playbook")
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
