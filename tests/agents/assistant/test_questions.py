"""How questions are phrased, and what they must be understood as."""

import pytest

from kernelwright.agents.assistant.rules import read
from kernelwright.agents.assistant.types import (
    AskAbout,
    AskDoctor,
    AskForHelp,
    AuditTask,
    Command,
    CompareCandidates,
    ExplainCandidate,
    ExplainRound,
    ListRuns,
    ShowCode,
    ShowLedger,
    ShowProfile,
    ShowProgress,
    ShowSteering,
    Turn,
)

V17_V12 = CompareCandidates(one="v17", other="v12")
TABLE: tuple[tuple[str, str, Command], ...] = (
    # code
    ("running", "show the code of the best", ShowCode()),
    ("running", "show me the code", ShowCode()),
    ("running", "can I see the code?", ShowCode()),
    ("running", "code", ShowCode()),
    ("running", "source of v12", ShowCode(candidate="v12")),
    ("running", "print the kernel source of candidate 12", ShowCode(candidate="v12")),
    ("running", "let me see v3's code", ShowCode(candidate="v3")),
    ("running", "what does the code of the winner look like?", ShowCode()),
    ("running", "show the code of the latest candidate", ShowCode(candidate="v20")),
    ("running", "show me the plan of the third candidate", ShowCode(candidate="v3")),
    ("running", "shwo me teh code of the best", ShowCode()),
    ("running", "show me the source of 3fa94c21b0aa", ShowCode(candidate="3fa94c21b0aa")),
    ("ended", "zeig mir den Code von v5", ShowCode(candidate="v5")),
    # comparing
    ("running", "why is v17 faster than v12?", V17_V12),
    ("running", "Why's v17 faster than v12", V17_V12),
    ("running", "compare v17 and v12", V17_V12),
    ("running", "compare v17 with v12 please", V17_V12),
    ("running", "v17 vs v12", V17_V12),
    ("running", "v17 versus v12?", V17_V12),
    ("running", "what is the difference between v17 and v12?", V17_V12),
    ("running", "diff v17 v12", V17_V12),
    ("running", "how does v17 differ from v12?", V17_V12),
    ("running", "what makes v17 better than v12?", V17_V12),
    ("running", "how much faster is v17 than v12", V17_V12),
    ("running", "is v17 faster than v12?", V17_V12),
    ("running", "compare the best with v12", CompareCandidates(one="best", other="v12")),
    ("running", "how is the best different from the first candidate?",
     CompareCandidates(one="best", other="v1")),
    ("running", "warum ist v17 schneller als v12?", V17_V12),
    ("running", "vergleiche v17 mit v12", V17_V12),
    # one candidate
    ("running", "explain v17", ExplainCandidate(candidate="v17")),
    ("running", "explain the best", ExplainCandidate()),
    ("running", "why is the best so fast?", ExplainCandidate()),
    ("running", "why is v9 slow?", ExplainCandidate(candidate="v9")),
    ("running", "what does v17 do?", ExplainCandidate(candidate="v17")),
    ("running", "how does v17 work?", ExplainCandidate(candidate="v17")),
    ("running", "tell me about candidate 4", ExplainCandidate(candidate="v4")),
    ("running", "why did v12 fail?", ExplainCandidate(candidate="v12")),
    ("running", "what's wrong with v12", ExplainCandidate(candidate="v12")),
    ("running", "is v9 correct?", ExplainCandidate(candidate="v9")),
    ("running", "how was v9 verified?", ExplainCandidate(candidate="v9")),
    ("running", "v17?", ExplainCandidate(candidate="v17")),
    ("running", "what about v3", ExplainCandidate(candidate="v3")),
    ("running", "how does the winner work", ExplainCandidate()),
    ("running", "what is the trick of the fastest one?", ExplainCandidate()),
    ("running", "explian v17", ExplainCandidate(candidate="v17")),
    ("running", "erkläre v17", ExplainCandidate(candidate="v17")),
    # one round
    ("running", "explain round 2", ExplainRound(round=2)),
    ("running", "what happened in round three?", ExplainRound(round=3)),
    ("running", "what happened in the last round?", ExplainRound()),
    ("running", "summarise the second round", ExplainRound(round=2)),
    ("running", "what did the critic say in round 4?", ExplainRound(round=4)),
    # profile
    ("running", "show the profile", ShowProfile()),
    ("running", "show me the profile of v3", ShowProfile(candidate="v3")),
    ("running", "what bounds it?", ShowProfile()),
    ("running", "what is the bottleneck of v8?", ShowProfile(candidate="v8")),
    ("running", "is v8 memory bound?", ShowProfile(candidate="v8")),
    ("running", "roofline", ShowProfile()),
    ("running", "how is the occupancy of the best?", ShowProfile()),
    ("running", "what limits the best kernel?", ShowProfile()),
    ("running", "how many registers does v3 use?", ShowProfile(candidate="v3")),
    # ideas
    ("running", "show the ledger", ShowLedger()),
    ("running", "what ideas have you tried?", ShowLedger()),
    ("running", "list all ideas", ShowLedger()),
    ("running", "what have you tried so far?", ShowLedger()),
    ("running", "have you tried warp shuffles?", ShowLedger()),
    ("running", "did you already try shared memory?", ShowLedger()),
    ("running", "what worked and what failed", ShowLedger()),
    ("running", "which ideas paid off?", ShowLedger()),
    ("running", "explain idea 3", ShowLedger()),
    # progress
    ("running", "what did you just try?", ShowProgress()),
    ("running", "status", ShowProgress()),
    ("running", "progress?", ShowProgress()),
    ("running", "how's it going?", ShowProgress()),
    ("running", "hows it going", ShowProgress()),
    ("running", "how far are we?", ShowProgress()),
    ("running", "what are you doing right now?", ShowProgress()),
    ("running", "where are we", ShowProgress()),
    ("running", "who leads?", ShowProgress()),
    ("running", "show the leaderboard", ShowProgress()),
    ("running", "any news?", ShowProgress()),
    ("running", "how long will it take?", ShowProgress()),
    ("running", "how many rounds are left?", ShowProgress()),
    ("running", "what's the best so far?", ShowProgress()),
    ("running", "how fast is it now?", ShowProgress()),
    ("running", "are you done yet?", ShowProgress()),
    ("running", "when will you be finished?", ShowProgress()),
    ("running", "what is the speedup?", ShowProgress()),
    ("running", "should I stop?", ShowProgress()),
    ("ended", "why did you stop?", ShowProgress()),
    ("ended", "did you find something faster?", ShowProgress()),
    ("ended", "how much faster is it than pytorch?", ShowProgress()),
    ("ended", "what's the result", ShowProgress()),
    ("running", "wie läuft es?", ShowProgress()),
    # steering that holds
    ("running", "which pins are set?", ShowSteering()),
    ("running", "show my hints", ShowSteering()),
    ("running", "what have I told you so far?", ShowSteering()),
    ("running", "what is banned?", ShowSteering()),
    # the task
    ("task", "what is the floor?", AuditTask()),
    ("task", "how fast could it be?", AuditTask()),
    ("task", "is it worth optimizing?", AuditTask()),
    ("task", "what does pytorch dispatch to?", AuditTask()),
    ("task", "is this a fair comparison?", AuditTask()),
    ("task", "how much room is there?", AuditTask()),
    # the machine
    ("nothing", "doctor", AskDoctor()),
    ("nothing", "what works on this machine?", AskDoctor()),
    ("nothing", "which gpu do you have?", AskDoctor()),
    ("nothing", "is there a gpu here?", AskDoctor()),
    ("nothing", "is cuda available", AskDoctor()),
    ("nothing", "check my setup", AskDoctor()),
    ("nothing", "what hardware is this running on?", AskDoctor()),
    # earlier runs
    ("nothing", "list my runs", ListRuns()),
    ("nothing", "show me all runs", ListRuns()),
    ("nothing", "my earlier searches", ListRuns()),
    ("nothing", "what did I run yesterday?", ListRuns()),
    ("nothing", "history", ListRuns()),
    ("nothing", "which runs do I have?", ListRuns()),
    ("nothing", "zeig meine Läufe", ListRuns()),
    # help
    ("nothing", "help", AskForHelp()),
    ("nothing", "?", AskForHelp()),
    ("nothing", "hi", AskForHelp()),
    ("nothing", "Hello!", AskForHelp()),
    ("nothing", "hey there", AskForHelp()),
    ("nothing", "what can you do?", AskForHelp()),
    ("nothing", "what can I ask?", AskForHelp()),
    ("nothing", "how does this work?", AskAbout(topic="how_it_works")),
    ("nothing", "how do I use this", AskForHelp()),
    ("nothing", "Hilfe", AskForHelp()),
    ("running", "how do I stop it?", AskForHelp()),
)  # fmt: skip


@pytest.mark.parametrize(("situation", "text", "command"), TABLE, ids=lambda value: str(value)[:50])
def test_a_question_is_understood(
    situations: dict[str, Turn], situation: str, text: str, command: Command
) -> None:
    turn = situations[situation].model_copy(update={"text": text})
    assert read(turn).understanding.commands == (command,)


def test_several_questions_are_answered_in_their_order(situations: dict[str, Turn]) -> None:
    text = "How is it going? And why is v17 faster than v12? Show me its code."
    turn = situations["running"].model_copy(update={"text": text})
    assert read(turn).understanding.commands == (ShowProgress(), V17_V12, ShowCode())


def test_it_is_the_candidate_that_was_spoken_of(situations: dict[str, Turn]) -> None:
    earlier = (("why is v9 slow?", "Its rows are read twice."),)
    for text, command in (
        ("show me its code", ShowCode()),
        ("show me the code of that one", ShowCode(candidate="v9")),
        ("explain it", ExplainCandidate(candidate="v9")),
    ):
        turn = situations["running"].model_copy(update={"text": text, "earlier": earlier})
        assert read(turn).understanding.commands == (command,)
