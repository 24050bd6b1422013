"""A voice that says again what was said in a recorded run; no model is reached."""

from collections.abc import Iterable

from agents.model.voice import VoiceError
from tools.archive import NotRecordedError
from tools.nouns import Call, Prompt, Reply


class ReplayedVoice:
    """Answers from the calls of a run.

    A question that failed and was asked again has several calls; the last one is what the run went
    on with. A question whose words have changed since is answered by its key, and remembered in
    `reworded`: prompts may be rewritten, and a run still be replayed. Before the round in which
    models joined the run nobody answers, so that the playbook thinks, as it did.
    """

    def __init__(self, calls: Iterable[Call]) -> None:
        self.reworded: list[str] = []
        self._by_words: dict[tuple[str, str], Call] = {}
        self._by_key: dict[str, Call] = {}
        self._joined = 0
        for number, call in enumerate(calls):
            self._joined = min(self._joined, call.prompt.round) if number else call.prompt.round
            self._by_words[call.prompt.key, call.prompt.sha256] = call
            self._by_key[call.prompt.key] = call

    async def say(self, prompt: Prompt) -> Reply:
        """Answer one prompt as it was answered then.

        Raises:
            VoiceError: There was no answer then either.
            NotRecordedError: The run never asked that.
        """
        call = self._by_words.get((prompt.key, prompt.sha256))
        if call is None:
            call = self._by_key.get(prompt.key)
            if call is None and prompt.round < self._joined:
                raise VoiceError("no model was asked then")
            if call is None:
                raise NotRecordedError(f"the answer to {prompt.key}")
            self.reworded.append(prompt.key)
        if call.reply is None:
            raise VoiceError(call.failure, call.lost, call.lost_usd)
        return call.reply
