"""Understands orders about searches and results: start, pause, go on, stop, export and the like.

A clause has to be an order as a whole: `stop trying shared memory` is none of these.
"""

import re
from collections.abc import Callable

from kernelwright.agents.assistant.parsing.budgets import Limits, limits_in, without_limits
from kernelwright.agents.assistant.parsing.names import candidate_in, run_in
from kernelwright.agents.assistant.types import (
    AuditTask,
    BudgetName,
    CancelTask,
    Command,
    ContinueSearch,
    DeleteRun,
    ExportResult,
    GetReport,
    MeasureAgain,
    PauseSearch,
    RenameRun,
    ReopenRun,
    SetBudget,
    ShowProgress,
    StartSearch,
    StopSearch,
    Turn,
)

# An order with more words is none; and fewer keep every pattern below fast on any text.
_LONGEST_ORDER = 14
_IT = (
    r"(?: (?:with|the|this|that|my|your|an?|new|another|current|running|whole|it|everything|all|"
    r"job|process|search(?:es|ing)?|run|optimi[sz]ation|optimi[sz]ing|work(?:ing)?|agents?))*"
)
_PAUSE = (
    r"(?:pause|hold(?: on| off| it)?|wait(?: a (?:moment|minute|second|sec))?|suspend|freeze|"
    rf"take a break|stand by|put{_IT} on hold|hang on){_IT}"
    r"(?: here| there)?(?: for (?:a|one|some|the)? ?(?:moment|while|minute|second|sec|time))?"
)
_STOP = (
    r"(?:stop|end|halt|abort|quit|kill|terminate|finish(?: up)?|wrap(?: it| this|"
    r" things)? up|break off"
    rf"|shut{_IT} down|call it(?: a day| quits)?|give up|cut it|interrupt|enough|"
    r"that is enough|that will do"
    r"|that is (?:good|fast) enough|good enough|stop there|stop here|i am (?:done|"
    rf"happy|satisfied)){_IT}"
    r"(?: with the best(?: so far)?| here| there| is enough| at the best)?"
)
_CONTINUE = (
    r"(?:continue|resume|go on|carry on|keep (?:going|searching|trying|optimi[sz]ing|"
    r"at it|on|looking|working)|proceed|unpause"
    rf"|un-pause|move on|pick{_IT} up(?: again| where (?:you|we|it) (?:left|"
    r"stopped)(?: off)?)?|restart where (?:you|we|it) (?:left|stopped)(?: off)?"
    r"|try (?:harder|again|more|some more)|search (?:on|more|further|longer|again|"
    r"harder)|run (?:on|longer|more)"
    r"|extend|do (?:some )?more|one more time|dig deeper|give it another (?:go|try|"
    rf"shot)|again|more|longer|go further|back to work){_IT}"
    r"(?: (?:where (?:you|we|it) (?:left|stopped)(?: off)?|from there|from here|"
    r"from where (?:you|we) (?:left|stopped)(?: off)?|some more|a while|"
    r"a while longer|again|longer|until you find (?:more|better)))?"
)
_THING = (
    r"(?: (?:our|module|model|code|file|function|layer|kernel|"
    r"op(?:erator)?|task|one|softmax|network|thing|\w+\.py))*"
)
_START = (
    r"(?:start|begin|go|run|search|launch|kick(?: it)? off|fire(?: away| it up)?|"
    r"do (?:it|that|this|so)|get going|get started|yes go|"
    r"optimi[sz]e|tune|accelerate|speed up|improve|make|speed|"
    r"find(?: me)? (?:a )?(?:faster|better)(?: version| kernel| implementation)?|"
    r"beat (?:it|pytorch|torch|eager|that|this)|go for it|go ahead|ahead|los|hit it|"
    r"engage|let it (?:run|rip)|work on|get to work|proceed|"
    r"looks? (?:good|right|fine|correct)|sounds (?:good|right)|that is (?:right|"
    r"correct|it|fine)|correct|confirmed?|approved?|fine by me|ready|i am ready|"
    rf"run){_IT}{_THING}"
    r"(?: (?:up|go|faster|quicker|fast|run faster|as fast as (?:possible|you can)|"
    r"even faster|much faster|"
    r"the search|search(?:ing)?|optimi[sz]ing|ahead|now|away|with (?:that|this|these|"
    r"those)(?: shapes?| settings?)?|like that|as (?:it is|is)))*"
)
_AGAIN = (
    r"(?:restart|start over|start again|start from scratch|begin again|rerun|re-run|"
    rf"redo|run again|search again from scratch){_IT}(?: from scratch|"
    r" from the beginning)?"
)
_CANCEL = (
    r"(?:cancel|never ?mind|nevermind|forget (?:it|that|about it|the task|this task|"
    r"this)|discard|drop (?:it|this|that)|scrap (?:it|that|this)|put it away|leave it|"
    r"do not (?:start|search|run|do it|bother|optimi[sz]e)|not now|no thanks|dismiss|"
    r"throw it away|clear the task|remove the task)"
    rf"{_IT}(?: task| module| file)*"
)
_TAKE = (
    r"export|download|take|save|get|give me|send me|hand me|hand over|package|bundle|"
    r"deliver|ship|zip|write(?: out)?|i want|have|grab|fetch|i will take|produce|"
    r"generate"
)
_GOODS = (
    r"(?:result|module|file|zip|export|drop-?in(?: (?:module|replacement))?|artefact|"
    r"artifact|package|model_?new|modelnew|kernelbench(?: (?:file|format|version))?"
    r"|winner|solution|home|(?:\w+[ -])?(?:best|fastest)(?: (?:one|module|kernel|"
    r"candidate|version))?|it|that|runner-?up|everything|v\d+|candidate \d+|"
    r"deliverable|output|implementation|download)"
)
_EXPORT = (
    rf"(?:(?:{_TAKE})(?: (?:me|the|a|an|my|this|that|as|of|in|final|optimi[sz]ed|"
    rf"fast(?:est|er)?|whole|current|faster|to|disk|and|with|best)| {_GOODS})*|"
    rf"take {_GOODS} home|(?:{_TAKE}) (?:me )?something (?:that )?i can (?:drop in|use|"
    r"import|take home)"
    r"|(?:the |a |as )*(?:kernel ?bench|model_?new)\b.*)"
)
_REPORT = (
    r"(?:(?:get|show|make|write|generate|create|give me|send me|build|download|open|"
    r"i want|produce|export|see|need|have|print|prepare)?(?: (?:me|a|an|the|full|html|"
    r"final|my|your|whole|complete|detailed|nice|run's))* ?(?:html )?(?:report|"
    r"html page|html file|write-?up|summary page)(?: (?:of|for|about|on|as html|"
    r"as a page|file|page|please|the|this|that|run|search|result|html))*)"
)
_AUDIT = (
    r"(?:audit|review|vet|sanity[ -]?check)(?: (?:the|this|my|it|that|task|module|"
    r"file|again|for me|first|\w+\.py))*"
)
_REOPEN = (
    r"(?:re-?open|open|load|go back to|switch to|return to|show me|take up|pick up|"
    r"resume|continue(?: with)?|bring up|back to|view)(?: (?:the|my|old|earlier|"
    r"previous|run))* "
)
_RUN_SAID = (
    r"(?:(?:the|this|that|my|current|whole|old) )*(?:run|search)(?: (?:called |"
    r"named )?[\w.-]*\d[\w.-]*)?"
)
_RENAME = re.compile(
    rf"(?:rename|name|call|title|label) (?:{_RUN_SAID}|[\w.]+-\d{{4}}-\w+)(?: (?:to|as|into))? "
    r"['\"]?(?P<name>[^'\"]{1,60}?)['\"]?"
)
_DELETE = re.compile(
    rf"(?:delete|remove|erase|throw away|get rid of|trash|wipe) (?:run )?"
    rf"(?:{_RUN_SAID}|[\w.]+-\d{{4}}-\w+)(?: (?:for good|forever|permanently|completely))?"
)
# What stands around an amount that a search may spend, and means nothing else.
_AROUND_LIMITS = re.compile(
    r"\b(?:give|it|me|yourself|the|this|search(?:ing)?|suchen?|take|spend|add|use|another|let|run|"
    r"more|further|additional|extra|longer|at|most|up|max(?:imum|imal)?|do|does|a|an|one|for|with|"
    r"i|you|we|have|has|budgets?|limits?|limited|cap(?:ped)?|of|is|to|set|only|in|total|make|go|"
    r"quick|fast|short|deep|thorough|standard|normal|default|stop|end|finish|quit|wrap|after|until|"
    r"then|not?|should|must|may|can|will|than|under|below|within|over|keep|stay|cost|costs|on|and|"
    r"models?|llms?|language|tokens?|money|time|overall|altogether|all|less|fewer|no|never|exceed|"
    r"be|done|runden?|rounds?|just|left|by|halt|money|consume|everything|whole|from|now|that|there|"
    r"höchstens|hoechstens|maximal|bis|zu|nimm|dir|gib|geben|aus|ausgeben|verbrauche?n?|nach|hör|"
    r"höre|auf|aufhören|stoppe?n?|beenden?|noch|mehr|weitere[nr]?|länger|als|für|du|hast|ich|"
    r"möchte|will|nur|such|suche|lang|insgesamt|ist|schluss|dann|darf|soll|kosten|die|der|das|"
    r"modelle|geld|zeit|brauchen?|benutzen?|verwenden?|dauern|eine?[nrm]?|bitte|mache?|"
    r"gründlich|ausführlich|intensiv|tief|thoroughly|deeply)\b|\b(?:token|time).?(?=budget)"
)
_NEGATED = re.compile(r"(?:do not|never|you must not|no need to|not yet|please do not)\b")

Act = Callable[[str, Turn], tuple[Command, ...]]


def command_in(words: str, turn: Turn) -> tuple[Command, ...]:
    """The orders that a clause is; none when it is something else."""
    if words.count(" ") > _LONGEST_ORDER:
        return ()
    if (turn.task or turn.run) and (caps := _lifted(words)):
        return (SetBudget(lift=caps),)
    if spending := _only_limits(words, turn):
        return spending
    if _NEGATED.match(words):
        return _negated(words, turn)
    if kept := _kept(words, turn):
        return kept
    if run := _reopened(words):
        return (ReopenRun(run=run), *_on(words))
    core = without_limits(words)
    for pattern, act in _ACTS:
        if re.fullmatch(pattern, words) or (core and re.fullmatch(pattern, core)):
            return act(words, turn)
    return ()


def _negated(words: str, turn: Turn) -> tuple[Command, ...]:
    """`do not stop` is no stop; `do not start` puts the task away while none is searched."""
    if re.fullmatch(
        rf"(?:do not|never|no need to) (?:stop|end|pause|quit|give up|abort|halt){_IT}(?: yet)?",
        words,
    ):
        return (ShowProgress(),) if turn.running else (ContinueSearch(),)
    if turn.task and not turn.running and re.fullmatch(_CANCEL, words):
        return (CancelTask(),)
    return ()


def _reopened(words: str) -> str:
    if re.match(_REOPEN, words):
        rest = re.sub(_REOPEN, "", words, count=1)
        named = run_in(words) or run_in(f"run {rest}")
        if "run" in words.split() or run_in(rest):
            return named if run_in(words) else ""
    return ""


def _kept(words: str, turn: Turn) -> tuple[Command, ...]:
    """`rename this run to ...`, `delete run ...`; `it` is the run where one is talked about."""
    if match := _RENAME.fullmatch(words):
        return (RenameRun(name=match["name"], run=run_in(words[: match.start("name")])),)
    if match := _DELETE.fullmatch(words):
        return (DeleteRun(run=run_in(words)),) if run_in(words) or turn.run else ()
    return ()


def _on(words: str) -> tuple[Command, ...]:
    return (ContinueSearch(),) if re.match(r"(?:resume|continue)", words) else ()


def _pause(words: str, turn: Turn) -> tuple[Command, ...]:
    return (PauseSearch(),)


def _stop(words: str, turn: Turn) -> tuple[Command, ...]:
    return (StopSearch(),)


def _continue(words: str, turn: Turn) -> tuple[Command, ...]:
    if turn.task and not turn.run:
        return (_started(words),)
    limits = limits_in(words)
    return (ContinueSearch(more_rounds=limits.rounds or 0, more_seconds=limits.seconds or 0.0),)


def _start(words: str, turn: Turn) -> tuple[Command, ...]:
    """With a search going on there is nothing to start; without a task, nothing to search."""
    if turn.running:
        limits = limits_in(words)
        return (_capped(limits),) if limits.amounts else (ShowProgress(),)
    if turn.run and not re.match(r"(?:start|begin|launch)", words):
        return _continue(words, turn)
    return (_started(words),) if turn.task or turn.run else ()


_MEASURE = (
    r"(?:re-?measure|measure|certify|time|miss|vermiss|zertifiziere)"
    r"(?: it| that| this| the (?:best|result|winner)| es| das(?: ergebnis)?)?"
    r" (?:again|once more|anew|noch ?mal|noch einmal|erneut)|re-?measure(?: it)?"
)


def _measure(words: str, turn: Turn) -> tuple[Command, ...]:
    return (MeasureAgain(),) if turn.run and not turn.running else ()


def _restart(words: str, turn: Turn) -> tuple[Command, ...]:
    return (_started(words),)


def _cancel(words: str, turn: Turn) -> tuple[Command, ...]:
    if turn.running:  # `drop it` may be about an idea; only a word for stopping stops
        return (StopSearch(),) if re.match(r"cancel", words) else ()
    return (CancelTask(),)


def _export(words: str, turn: Turn) -> tuple[Command, ...]:
    if not re.search(rf"\b{_GOODS}\b|export|download|save|package|ship|something", words):
        return ()
    if re.fullmatch(
        r"(?:get|have|take|give me|grab|fetch|i want|produce|generate|write)(?: it| that)?", words
    ):
        return ()
    bench = bool(re.search(r"kernel ?bench|model_?new", words))
    candidate = candidate_in(re.sub(r"\b(?:it|that|this|latest|last|final)\b", " ", words), turn)
    return (ExportResult(format="kernelbench" if bench else "module", candidate=candidate),)


def _report(words: str, turn: Turn) -> tuple[Command, ...]:
    return (GetReport(),)


def _audit(words: str, turn: Turn) -> tuple[Command, ...]:
    return (AuditTask(),)


_LIFT = re.compile(
    r"(?:(?:please )?(?:remove|lift|drop|clear|cancel|take back|undo|forget|reset|no|without|kein|"
    r"ohne)(?: more| the| my| any| all| a)* )(?P<before>token|time|round|money|dollar|cost|usd|"
    r"spending)?s?[ -]?(?:limit|cap|budget)s?(?: (?:on|of|for|to) (?:the )?"
    r"(?P<behind>token|time|second|round|money|dollar|cost|spending|model)s?)?"
)
_CAPS: tuple[tuple[str, tuple[BudgetName, ...]], ...] = (
    ("token", ("tokens",)),
    ("time second", ("seconds",)),
    ("round", ("rounds",)),
    ("money dollar cost usd spending", ("usd",)),
    ("model", ("tokens", "usd")),
)


def _lifted(words: str) -> tuple[BudgetName, ...]:
    """`no limit on tokens`, `remove the time limit`, `lift all limits`."""
    match = _LIFT.fullmatch(words)
    if match is None:
        return ()
    named = match["before"] or match["behind"]
    every: tuple[BudgetName, ...] = ("rounds", "seconds", "tokens", "usd")
    return next((caps for names, caps in _CAPS if named in names.split()), every)


def _only_limits(words: str, turn: Turn) -> tuple[Command, ...]:
    """`5 more rounds`, `at most $2`, `quick`: what a search may spend, and nothing else."""
    limits = limits_in(words)
    rest = _AROUND_LIMITS.sub(" ", without_limits(words))
    if not limits.any or re.search(r"\w", rest) or re.search(r"\bat least\b", words):
        return ()
    paid = (limits.tokens, limits.usd) != (None, None)
    if turn.running or ((turn.task or turn.run) and (paid or _ENDS_AT.match(words))):
        return (_capped(limits),) if limits.amounts else ()
    if turn.run:
        return (ContinueSearch(more_rounds=limits.rounds or 0, more_seconds=limits.seconds or 0.0),)
    return (_started(words),) if turn.task else ()


_ENDS_AT = re.compile(r"(?:stop|end|finish|quit|halt|stoppe?|beende|hör)\b")


def _capped(limits: Limits) -> Command:
    """More rounds or time prolong a search; other amounts are what it may spend in all."""
    paid = (limits.tokens, limits.usd) != (None, None)
    if limits.more and not paid and not limits.from_now:
        return ContinueSearch(more_rounds=limits.rounds or 0, more_seconds=limits.seconds or 0.0)
    return SetBudget.model_validate(limits.model_dump(exclude={"search"}))


def _started(words: str) -> StartSearch:
    return StartSearch.model_validate(limits_in(words).model_dump(exclude={"more", "from_now"}))


_ACTS: tuple[tuple[str, Act], ...] = (
    (_REPORT, _report),
    (_PAUSE, _pause),
    (_STOP, _stop),
    (_MEASURE, _measure),
    (_AGAIN, _restart),
    (_CONTINUE, _continue),
    (_CANCEL, _cancel),
    (_AUDIT, _audit),
    (_EXPORT, _export),
    (_START, _start),
)
