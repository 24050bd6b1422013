import asyncio
from collections.abc import Callable

import pytest

from kernelwright.agents.llm.client import (
    BudgetedClient,
    BudgetSpentError,
    LLMError,
    TokenBudget,
    spent_by,
    spent_words,
)
from kernelwright.agents.llm.wrappers import endpoint_client
from kernelwright.profiles.load import ModelProfile
from kernelwright.tools.types import Call, Message, Prompt, Reply
from kernelwright.tools.types.run import TokenCounts

PROFILE = ModelProfile(
    name="p", reply_tokens=100, usd_per_million_input=1e6, usd_per_million_output=1e6
)


def question(number: int = 1, characters: int = 276) -> Prompt:
    """A prompt of 100 tokens by our estimate."""
    words = Message(author="person", text="x" * characters)
    return Prompt(key=f"coder:{number}", role="coder", messages=(words,))


class Spender:
    """Answers with as many tokens as it may, and knows how many were in flight at once."""

    def __init__(self, share: float = 1.0, failure: bool = False) -> None:
        self.share = share
        self.failure = failure
        self.asked: list[Prompt] = []
        self.total = 0
        self.now = self.most = 0

    async def say(self, prompt: Prompt) -> Reply:
        self.asked.append(prompt)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.01)
        self.now -= 1
        said = int((prompt.reply_tokens or 0) * self.share)
        tokens = TokenCounts(input=100, output=said)
        self.total += 100 + said
        if self.failure:
            raise LLMError("no", tokens, 1.0)
        return Reply(text="x", tokens=tokens, usd=float(100 + said))


async def ask(client: BudgetedClient, count: int) -> int:
    """How many of that many questions asked at once were answered."""
    given = await asyncio.gather(
        *(client.say(question(n)) for n in range(count)), return_exceptions=True
    )
    assert all(isinstance(item, Reply | LLMError) for item in given)
    return sum(isinstance(item, Reply) for item in given)


@pytest.mark.parametrize("cap", [150, 1000, 1050, 1099, 1125])
async def test_questions_in_flight_never_exceed_the_cap(cap: int) -> None:
    spender = Spender()
    budget = TokenBudget(tokens=cap)
    await ask(BudgetedClient(spender, budget, PROFILE), 12)
    assert spender.total <= cap
    assert spender.total >= cap - 125  # less than what a question is worth asking for


async def test_dollars_are_a_cap_too() -> None:
    spender = Spender()
    assert await ask(BudgetedClient(spender, TokenBudget(usd=650.0), PROFILE), 9) == 3
    assert spender.total == 600


async def test_the_last_answer_may_be_shorter_but_not_worthless() -> None:
    spender = Spender()
    client = BudgetedClient(spender, TokenBudget(tokens=350), PROFILE)
    assert await ask(client, 3) == 2
    assert [prompt.reply_tokens for prompt in spender.asked] == [100, 50]
    with pytest.raises(BudgetSpentError, match="the budget of 350 tokens for models is used up"):
        await client.say(question())


async def test_questions_wait_for_what_others_do_not_use() -> None:
    spender = Spender(share=0.1)
    assert await ask(BudgetedClient(spender, TokenBudget(tokens=500), PROFILE), 3) == 3
    assert spender.most == 2


async def test_what_failed_answers_cost_counts() -> None:
    spender = Spender(failure=True)
    assert await ask(BudgetedClient(spender, TokenBudget(tokens=450), PROFILE), 9) == 0
    assert len(spender.asked) == 2


async def test_a_question_that_was_cut_off_counts_as_all_it_could_cost() -> None:
    spender, budget = Spender(share=0.1), TokenBudget(tokens=300)
    task = asyncio.create_task(BudgetedClient(spender, budget, PROFILE).say(question()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert spender.asked
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(BudgetSpentError):
        await BudgetedClient(spender, budget, PROFILE).say(question())


async def test_earlier_sessions_count() -> None:
    reply = Reply(text="x", tokens=TokenCounts(input=100, output=50), usd=2.0)
    lost = TokenCounts(input=10, output=5)
    calls = (
        Call(prompt=question(), reply=reply),
        Call(prompt=question(), failure="no", lost=lost, lost_usd=0.5),
        Call(prompt=question(), reply=reply.model_copy(update={"usd": None})),
    )
    assert spent_by(calls) == (TokenCounts(input=210, output=105), 2.5)
    assert spent_by(calls[2:])[1] is None
    client = BudgetedClient(Spender(), TokenBudget(tokens=415, calls=calls), PROFILE)
    with pytest.raises(BudgetSpentError):
        await client.say(question())


async def test_without_caps_nothing_is_refused() -> None:
    spender = Spender()
    assert await ask(BudgetedClient(spender, TokenBudget(), PROFILE), 9) == 9
    assert spender.most == 9


def test_the_words_name_both_caps() -> None:
    assert spent_words(5000, 1.5) == (
        "the budget of 5000 tokens and 1.5 US dollars for models is used up"
    )


async def test_every_attempt_at_a_server_is_paid(
    misbehaving: object,
    serve: Callable[..., object],
    profile_for: Callable[..., ModelProfile],
) -> None:
    server = serve("x" * 9000, *[misbehaving.Fault.RESET] * 9)
    budget = TokenBudget(tokens=6000)
    client = endpoint_client(profile_for(server, reply_tokens=3000, retries=8), budget)
    with pytest.raises(BudgetSpentError) as raised:
        await client.say(question())
    assert 2 <= len(server.requests) <= 4
    assert raised.value.lost.output >= 1500
