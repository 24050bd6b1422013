"""Whether an endpoint works, found by asking it: its list of models, and one tiny question."""

from agents.model.endpoint import EndpointVoice
from agents.model.voice import VoiceError
from profiles.models import ModelProfile
from tools.nouns import Message, Prompt, Value

# Enough for a word even from a model that thinks first, if only a little.
_REPLY_TOKENS = 512
_PATIENCE_S = 60.0


class Probed(Value):
    """What an endpoint did; `failure` is one sentence, "" when it answered.

    `served` are the models that it lists, empty where it lists none.
    """

    served: tuple[str, ...] = ()
    said: str = ""
    seconds: float = 0.0
    failure: str = ""


async def probe(profile: ModelProfile) -> Probed:
    """Ask once; nothing but the word "ready" is sent."""
    quick = profile.model_copy(update={"timeout_s": min(profile.timeout_s, _PATIENCE_S)})
    voice = EndpointVoice(quick)
    served = await voice.served()
    words = Message(author="person", text="Answer with the single word: ready")
    prompt = Prompt(key="probe", role="critic", messages=(words,), reply_tokens=_REPLY_TOKENS)
    try:
        reply = await voice.say(prompt)
    except VoiceError as error:
        return Probed(served=served, failure=str(error))
    return Probed(served=served, said=" ".join(reply.text.split())[:60], seconds=reply.seconds)
