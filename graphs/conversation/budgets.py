"""What is still to come of a search, and what it may spend: rounds, time, tokens, money.

Budgets hold for the whole run and are acted upon at the search's next decision; a reply says what
is spent, and where a cap comes too late or caps nothing.
"""

from dataclasses import dataclass, field
from typing import Literal

from kernelwright.agents.assistant.types import (
    BudgetName,
    ChatReply,
    Offer,
    SetBudget,
    ShowSteering,
    StartSearch,
)
from kernelwright.graphs.conversation.context import ConversationContext
from kernelwright.graphs.conversation.steering import BEGIN, NO_RUN
from kernelwright.graphs.run_view.events import count, one_line, seconds
from kernelwright.graphs.run_view.story import Story
from kernelwright.graphs.search.agent_set import models_of
from kernelwright.graphs.search.pace import Spent
from kernelwright.profiles.load import Models, SearchProfile, search_profile
from kernelwright.tools.archive import Archive
from kernelwright.tools.codegen.library.kernel_library import repertoire_for

SHOW_ALL = Offer(label="Show all wishes", wish=ShowSteering())

State = Literal[
    "before", "running", "last", "certifying", "pausing", "stopping", "paused", "finished"
]


@dataclass(frozen=True)
class Outlook:
    """What is still to come of a search.

    Attributes:
        state: `before` a search, `last` in its last round, `paused` where it can simply go on.
        round: The last round that was planned; 0 before the first.
        spent: The time that is spent.
        why: Why no round follows, in words; "" where one may.
        models: Who thinks; None are the built-in rules.
        kinds: The words of every idea that the rules have for this task; None if not known.
    """

    state: State
    profile: SearchProfile
    round: int = 0
    spent: Spent = field(default_factory=Spent)
    why: str = ""
    models: Models | None = None
    kinds: tuple[tuple[str, ...], ...] | None = None
    allowed: tuple[str, ...] = ()

    @property
    def goes_on(self) -> bool:
        """Whether a wish is acted upon without anybody doing anything more."""
        return self.state in {"before", "running"}


async def outlook_of(context: ConversationContext) -> Outlook:
    """What is still to come, as far as can be said now."""
    story = await context.story()
    if story is None or context.folder is None:
        profile = search_profile(context.settings.search)
        allowed = context.now.precisions
        return Outlook("before", profile, models=context.settings.models, allowed=allowed)
    models, kinds = await context.read(lambda: _thinking(story))
    spent = await context.search_manager.spent(context.folder)
    profile = story.record.profile
    round = max((idea.round for idea in story.ideas), default=0)
    state, why = _state(context, story, round, spent)
    return Outlook(state, profile, round, spent, why, models, kinds, tuple(story.record.task.allow))


def _thinking(story: Story) -> tuple[Models | None, tuple[tuple[str, ...], ...] | None]:
    archive = Archive.open(story.folder)
    try:
        models = models_of(archive)
    finally:
        archive.close()
    try:
        options = repertoire_for(story.record.task, story.record.hardware).options()
    except ValueError:  # there are no rules for this task
        return models, None
    return models, tuple(option.texts for option in options) or None


def _state(
    context: ConversationContext, story: Story, round: int, spent: Spent
) -> tuple[State, str]:
    session, profile = context.search_session, story.record.profile
    if session is None:
        ended = story.record.status == "finished"
        why = story.summary.stopped_because if ended and story.summary else ""
        return ("finished" if ended else "paused"), one_line(why, 200)
    if session.state in {"pausing", "stopping"}:
        return ("pausing" if session.state == "pausing" else "stopping"), ""
    if story.view.stopped_because:
        return "certifying", one_line(story.view.stopped_because, 200)
    if round >= profile.rounds:
        return "last", f"it may have {count(profile.rounds, 'round')}"
    if round and spent.over:
        return "last", f"its {seconds(profile.seconds)} are nearly spent"
    return "running", ""


CAPS: tuple[BudgetName, ...] = ("rounds", "seconds", "tokens", "usd")
CAPS_DO: dict[BudgetName, str] = {
    "rounds": "no further round is planned",
    "seconds": "the certification of the best is part of it",
    "tokens": "then models are asked no more, and the search ends with its round",
    "usd": "then models are asked no more, and the search ends with its round",
}
Cap = tuple[BudgetName, float]


def caps_of(budget: SetBudget | SearchProfile | StartSearch) -> tuple[Cap, ...]:
    """What a budget caps, by name."""
    found = ((name, getattr(budget, name)) for name in CAPS)
    return tuple((name, float(value)) for name, value in found if value is not None)


def beyond(profile: SearchProfile) -> tuple[Cap, ...]:
    """The caps that are not those of the kind of search."""
    usual, named = caps_of(_usual(profile)), profile.seconds_hold == "everything"
    return tuple(
        cap for cap in caps_of(profile) if cap not in usual or (named and cap[0] == "seconds")
    )


def _usual(profile: SearchProfile) -> SearchProfile:
    """The search of that name as it is unless somebody says otherwise."""
    try:
        return search_profile(profile.name)
    except ValueError:  # a profile of the person's own file
        return profile.model_copy(update={"tokens": None, "usd": None})


def cap_words(name: BudgetName, value: float) -> str:
    """`3 rounds`, `6 min`, `10000 tokens`, `2.00 US dollars`."""
    match name:
        case "rounds":
            return count(int(value), "round")
        case "seconds":
            return seconds(value)
        case "tokens":
            return f"{int(value)} tokens of language models"
        case _:
            return f"{value:.2f} US dollars for language models"


async def budget(context: ConversationContext, command: SetBudget) -> ChatReply:
    """Cap what the search may spend, or take a cap back; say what is spent and what follows."""
    if context.folder is None:
        return await _budget_to_come(context, command)
    story, outlook = await context.story(), await outlook_of(context)
    if story is None:
        return ChatReply.of(NO_RUN)
    tokens = story.view.tokens.input + story.view.tokens.output
    profile = budgeted(outlook, command, tokens, story.view.usd or 0.0)
    if profile == outlook.profile:
        return ChatReply.of("That is how it stands already; nothing changed.", SHOW_ALL)
    await context.search_manager.allow(context.folder, profile)
    told = [
        _said_of(name, value, outlook, tokens, story.view.usd)
        for name, value in caps_of(profile)
        if getattr(outlook.profile, name) != getattr(profile, name)
    ]
    lifted = [f"No cap on {name} any more." for name in command.lift if _is_free(profile, name)]
    state = {
        "finished": "The search has finished; this holds when it goes on.",
        "paused": "The search is paused; this holds when it goes on.",
        "certifying": "The search is certifying already; this holds if it goes on afterwards.",
    }.get(outlook.state, "")
    return ChatReply.of(" ".join(filter(None, (*told, *lifted, state))), SHOW_ALL)


def _is_free(profile: SearchProfile, name: BudgetName) -> bool:
    return getattr(profile, name) is None


async def _budget_to_come(context: ConversationContext, command: SetBudget) -> ChatReply:
    """What the search may spend that is begun next."""
    now = context.now
    if not now.file:
        return ChatReply.of(NO_RUN)
    said = command.model_dump(include=set[str](CAPS), exclude_none=True)
    left = now.budget.model_copy(update=dict.fromkeys(command.lift) | said)
    await context.store.put(now.model_copy(update={"budget": left}))
    caps = [cap_words(name, value) for name, value in caps_of(left)]
    if not caps:
        return ChatReply.of("The search has its usual budget again.", BEGIN)
    words = f"The search will spend at most {' and '.join(caps)}."
    if context.settings.models is None and {"tokens", "usd"} & set(said):
        words += " No language model takes part here, so nothing is spent on one anyway."
    return ChatReply.of(words, BEGIN, SHOW_ALL)


def budgeted(outlook: Outlook, command: SetBudget, tokens: int, usd: float) -> SearchProfile:
    """The search's profile with other caps; `tokens` and `usd` are what models cost so far."""
    profile, usual = outlook.profile, _usual(outlook.profile)
    update: dict[str, object] = {name: getattr(usual, name) for name in command.lift}
    if "seconds" in command.lift:
        update["seconds_hold"] = usual.seconds_hold
    spent: dict[BudgetName, float] = {
        "rounds": outlook.round,
        "seconds": outlook.spent.whole_s,
        "tokens": tokens,
        "usd": usd,
    }
    for name, value in caps_of(command):
        base = getattr(profile, name) if command.more else 0
        base = spent[name] if command.from_now or base is None else base
        total = base + value
        update[name] = max(1, int(total)) if name in {"rounds", "tokens"} else max(0.01, total)
        if name == "seconds":
            update["seconds_hold"] = "everything"
    return SearchProfile.model_validate(profile.model_dump() | update)


def _said_of(
    name: BudgetName, value: float, outlook: Outlook, tokens: int, usd: float | None
) -> str:
    """One cap, what of it is spent, and what that means now."""
    words, live = cap_words(name, value), outlook.state in {"running", "last"}
    if name == "rounds":
        if live and value <= outlook.round:
            return f"At most {words}: round {outlook.round}, which is under way, is the last."
        return f"At most {words}; {outlook.round} planned so far."
    if name == "seconds":
        over = live and outlook.spent.whole_s >= value
        ends = " That is over: nothing more begins, and nothing is certified."
        rest = ends if over else ""
        return f"At most {words} in all, {seconds(outlook.spent.whole_s)} spent so far.{rest}"
    if outlook.models is None:
        return f"At most {words}. The built-in rules think here, so none are spent at all."
    if name == "tokens":
        return f"At most {words} in all, {tokens} spent so far."
    if usd is None:
        return f"At most {words}. These models have no known price, so the cap changes nothing."
    return f"At most {words} in all, {usd:.2f} spent so far."
