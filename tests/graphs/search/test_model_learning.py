import json
import re
from pathlib import Path
from types import ModuleType

from kernelwright.agents.critic.model import CRITIC, ModelCritic
from kernelwright.agents.profiler.profiler import PROFILER, ModelProfiler
from kernelwright.agents.roles import AgentSet
from kernelwright.graphs.run_view.events import Critiqued, Event, Noted, Profiled
from kernelwright.graphs.search.run import resume_search, start_search
from kernelwright.tools.archive import Archive
from kernelwright.tools.types import Prompt, Reply, TracePolicy
from kernelwright.tools.types.run import Summary


class Reader:
    """Answers from the tables of the prompts, as a careful reader would."""

    def __init__(self) -> None:
        self.asked: list[Prompt] = []

    async def say(self, prompt: Prompt) -> Reply:
        self.asked.append(prompt)
        text = prompt.messages[1].text
        times = dict(re.findall(r"\| (K\d+)\.screen_ms \| ([\d.]+) \|", text))
        if prompt.role == "profiler":
            return Reply(text=json.dumps({
                "words": "K1 is what it is.", "numbers": [f"K1.screen_ms={times['K1']}"],
            }))  # fmt: skip
        slowest = max(times, key=lambda name: float(times[name]))
        claims = [
            {
                "words": words,
                "faster": "K1",
                "slower": slowest,
                "numbers": [f"K1.screen_ms={fast}", f"{slowest}.screen_ms={times[slowest]}"],
            }
            for words, fast in (("It wins.", times["K1"]), ("It is magic.", "0.0001"))
        ]
        tried = {
            "words": "More of it.", "attribute": "VECTOR", "value": "2",
            "below_ms": 0.99 * float(times[slowest]),
        }  # fmt: skip
        return Reply(text=json.dumps({"explains": claims, "implies": "So.", "next": [tried]}))


def agents(toy: ModuleType, client: Reader) -> AgentSet:
    plain: AgentSet = toy.toy_agents(toy.LOOPS)
    critic = ModelCritic(client, plain.critic)
    profiler = ModelProfiler(client, plain.profiler)
    return plain.replaced(CRITIC, critic).replaced(PROFILER, profiler)


async def test_a_search_keeps_words_that_hold_and_scores_what_was_predicted(
    toy: ModuleType, tmp_path: Path
) -> None:
    events: list[Event] = []
    client = Reader()
    summary = await start_search(
        Path("toy.py"), TracePolicy(), "cpu", toy.PROFILE, home=tmp_path,
        executor=toy.ToyExecutor(), make_agents=lambda around: agents(toy, client),
        listener=events.append,
    )  # fmt: skip
    assert isinstance(summary, Summary)
    analyses = [event.analysis for event in events if isinstance(event, Critiqued)]
    # After the last round nobody is asked: nobody would act on it.
    *analyses, last = analyses
    assert last.origin == "playbook"
    assert {claim.words for analysis in analyses for claim in analysis.claims} == {"It wins."}
    noted = [event.words for event in events if isinstance(event, Noted)]
    assert sum("It is magic." in words for words in noted) == len(analyses)
    told = [event for event in events if isinstance(event, Profiled)]
    assert any("is what it is. (screen_ms" in event.explanation for event in told)
    looked = [prompt for prompt in client.asked if prompt.role == "profiler"]
    assert len(looked) == sum(bool(event.explanation) for event in told) <= summary.rounds
    scored = [p for p in analyses[1].predictions if p.made_in_round == 1]
    assert [(p.attribute, p.held) for p in scored] == [("VECTOR", True)]
    assert analyses[-1].predictions_held == analyses[-1].predictions_checked > 0
    critic = [prompt for prompt in client.asked if prompt.role == "critic"]
    assert len(critic) == len(analyses)
    assert "is what it is" in critic[-1].messages[1].text


async def test_a_resumed_search_does_not_ask_again_what_is_known(
    toy: ModuleType, tmp_path: Path
) -> None:
    first, second = Reader(), Reader()
    summary = await start_search(
        Path("toy.py"), TracePolicy(), "cpu", toy.PROFILE.model_copy(update={"rounds": 2}),
        home=tmp_path, executor=toy.ToyExecutor(), make_agents=lambda around: agents(toy, first),
    )  # fmt: skip
    assert isinstance(summary, Summary)
    await resume_search(
        summary.run, home=tmp_path, rounds=3, executor=toy.ToyExecutor(),
        make_agents=lambda around: agents(toy, second),
    )  # fmt: skip
    assert not {item.key for item in first.asked} & {item.key for item in second.asked}
    archive = Archive.open(summary.run, tmp_path)
    try:
        assert [item.round for item in archive.analyses()] == [1, 2, 3]
        origins = [item.origin for item in archive.analyses()]
        assert origins == ["model", "playbook", "playbook"]  # each the last of its search, but one
    finally:
        archive.close()
