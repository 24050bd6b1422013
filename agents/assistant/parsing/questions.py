"""Understands what a person wants to see or know: code, reasons, profiles, progress, runs, help.

The first kind that fits is taken; the order is from what can only mean one thing to what could
mean several.
"""

import re
from collections.abc import Callable

from kernelwright.agents.assistant.parsing import subjects
from kernelwright.agents.assistant.parsing.names import (
    candidate_in,
    candidates_in,
    round_in,
    run_in,
)
from kernelwright.agents.assistant.parsing.text import is_question
from kernelwright.agents.assistant.types.chat import Turn
from kernelwright.agents.assistant.types.commands import (
    AskDoctor,
    AskForHelp,
    AuditTask,
    Command,
    CompareCandidates,
    ExplainCandidate,
    ExplainRound,
    GetReport,
    ListRuns,
    ReopenRun,
    ShowCode,
    ShowLedger,
    ShowProfile,
    ShowProgress,
    ShowSteering,
)

_BASELINE = re.compile(
    r"\b(?:eager|py ?torch|torch|torch\.compile|compile|baselines?|the original|"
    r"reference|mine|before)\b"
)

_TELLS = re.compile(
    r"\b(?:explain|show|tell|summar\w+|describe|about|recap|see|details?|critic|planner|analysis|give)\b"
    r"|^(?:the )?(?:\w+ )?round(?: \w+)?$"
)

Act = Callable[[str, Turn], tuple[Command, ...]]


def question_in(words: str, turn: Turn) -> tuple[Command, ...]:
    """What a clause wants shown or explained; none when it is something else."""
    for pattern, act in _ACTS:
        if re.search(pattern, words) and (found := act(words, turn)):
            return found
    # Whatever is asked of a candidate by its name, its explanation is the answer.
    return _explain(words, turn) if is_question(words) else ()


def name_in(words: str, turn: Turn) -> tuple[Command, ...]:
    """`v17`, `the best`: a candidate and nothing else is to be explained."""
    named = candidates_in(words, turn)
    rest = re.sub(
        r"\b(?:the|a|of|candidate|version|kernel|one|and|best|fastest|winner|last|latest)\b|#",
        " ",
        words,
    )
    rest = re.sub(r"\bv?\d+\b|\b[0-9a-f]{6,12}\b", " ", rest)
    if named and not re.search(r"\w", rest):
        return tuple(ExplainCandidate(candidate=name) for name in named)
    return ()


def _compare(words: str, turn: Turn) -> tuple[Command, ...]:
    named = candidates_in(words, turn)
    if not named and re.search(r"\b(?:it|this|that)\b", words):
        named = ("best",)
    if len(named) >= 2:
        return (CompareCandidates(one=named[0], other=named[1]),)
    if _BASELINE.search(words) or not named:
        asks_two = re.match(r"(?:compare|diff|show me the diff\w*|what changed)\b", words)
        if _BASELINE.search(words) and (asks_two or "compare" in words):
            return (ShowProgress(),)
        return (CompareCandidates(),) if asks_two else ()
    if re.search(r"\b(?:compare|diff\w*|versus|vs|faster|slower|better|worse|beats?)\b", words):
        return (CompareCandidates(one=named[0]),)
    return ()


def _round(words: str, turn: Turn) -> tuple[Command, ...]:
    which = round_in(words)
    asked = is_question(words) or _TELLS.search(words)
    return (ExplainRound(round=which),) if which is not None and asked else ()


def _latest_round(words: str, turn: Turn) -> tuple[Command, ...]:
    """What roles said stands with their round, unless it was about a candidate."""
    return () if candidates_in(words, turn) or not turn.run else (ExplainRound(),)


def _run(words: str, turn: Turn) -> tuple[Command, ...]:
    run = run_in(words)
    opens = re.search(
        r"\b(?:open|reopen|show|load|back|switch|see|return|resume|continue|take|view|find)\b",
        words,
    )
    return (ReopenRun(run=run),) if run and opens and re.search(r"\d", run) else ()


def _code(words: str, turn: Turn) -> tuple[Command, ...]:
    if re.search(r"\b(?:explain|why|how|describe|walk)\b", words):
        return (ExplainCandidate(candidate=candidate_in(words, turn)),)
    return (ShowCode(candidate=candidate_in(words, turn)),)


def _profile(words: str, turn: Turn) -> tuple[Command, ...]:
    if not turn.run and turn.task:
        return (AuditTask(),)
    return (ShowProfile(candidate=candidate_in(words, turn)),)


def _explain(words: str, turn: Turn) -> tuple[Command, ...]:
    named = candidates_in(words, turn)
    if len(named) == 2 and re.search(r"\b(?:between|or|better|which|than|from)\b", words):
        return (CompareCandidates(one=named[0], other=named[1]),)
    if named:
        return tuple(ExplainCandidate(candidate=name) for name in named)
    return ()


def _quality(words: str, turn: Turn) -> tuple[Command, ...]:
    """What is asked of the result, without naming one."""
    return (ExplainCandidate(),) if turn.run else ()


def _about_ideas(words: str, turn: Turn) -> tuple[Command, ...]:
    return (ShowLedger(),)


def _one(wish: Command) -> Act:
    return lambda words, turn: (wish,)


_ACTS: tuple[tuple[str, Act], ...] = (
    (subjects.HELP, _one(AskForHelp())),
    (subjects.COMPARE, _compare),
    (subjects.DOCTOR, _one(AskDoctor())),
    (r".", _run),
    (subjects.LAST_RUN, _one(ListRuns())),
    (subjects.RUNS, _one(ListRuns())),
    (subjects.STEERING, _one(ShowSteering())),
    (r"\bround\b", _round),
    (r"\b(?:html )?report\b", _one(GetReport())),
    (
        rf"(?={subjects.SEE}).*(?:{subjects.CODE})|^(?:the )?(?:{subjects.CODE})(?: (?:of|"
        r"for|from) .*)?$|"
        r"(?:explain|walk me through|describe|how does).*\b(?:code|kernel)\b",
        _code,
    ),
    (subjects.PROFILE, _profile),
    (subjects.AUDIT, _one(AuditTask())),
    (subjects.JUST_NOW, _one(ShowProgress())),
    (subjects.LEDGER, _about_ideas),
    (subjects.ROLES, _latest_round),
    (subjects.KERNEL, _code),
    (subjects.EXPLAIN, _explain),
    (subjects.QUALITY, _quality),
    (subjects.NOW, _one(ShowProgress())),
    (subjects.CODE, _code),
)
