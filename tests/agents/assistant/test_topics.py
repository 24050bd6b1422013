"""The usual questions of a first-time user, in two languages, and what is none of them."""

import pytest

from kernelwright.agents.assistant.rules import read
from kernelwright.agents.assistant.types import (
    AskAbout,
    AskForHelp,
    AuditTask,
    ChangeTask,
    Command,
    CompareCandidates,
    ContinueSearch,
    ExplainCandidate,
    MeasureAgain,
    ShowCode,
    ShowProgress,
    ShowSteering,
    StartSearch,
    Steer,
    Turn,
)

ASKED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("how_it_works", (
        "how does it work", "How does this work?", "what exactly does this tool do?",
        "explain how this works", "wie funktioniert das", "Wie arbeitest du?",
        "wie läuft das ab?",
    )),
    ("gradients", (
        "will it still train", "can I fine-tune with it?", "does it support backward?",
        "what about gradients?", "trainiert es noch", "kann ich damit noch trainieren?",
    )),
    ("use", (
        "how do I use the result in my project", "how can i import it", "how do I integrate it?",
        "do I need kernelwright to run it?", "what do I do with the zip?",
        "kann ich das Ergebnis in meinem Projekt benutzen", "wie benutze ich das Ergebnis?",
        "wie baue ich das in mein Projekt ein?", "brauche ich Kernelwright dafür?",
    )),
    ("baselines", (
        "compare it with torch.compile", "is it faster than torch.compile?",
        "why not just use torch.compile?", "does it work with torch.compile?",
        "compare it with PyTorch", "vergleiche es mit torch.compile",
        "ist es schneller als torch.compile?",
    )),
    ("safety", (
        "is it safe in production", "can I trust it?", "what can go wrong?", "is it reliable?",
        "ist es sicher im Betrieb", "kann ich mich darauf verlassen?",
    )),
    ("verified_on", (
        "which device was it verified on?", "which shapes was this verified for?",
        "does it work with other shapes?", "will it run on an A100?", "what was verified?",
        "auf welcher GPU wurde es geprüft?", "funktioniert es mit anderen Größen?",
        "läuft es auch auf einer RTX 4090?",
    )),
    ("not_faster", (
        "why is it not faster", "why isn't it faster?", "why is there no speedup?",
        "why didn't you find anything faster?", "warum ist es nicht schneller?",
        "warum gibt es keine Verbesserung?",
    )),
    ("privacy", (
        "does my code leave this machine?", "is my code uploaded anywhere?",
        "wird mein Code irgendwohin geschickt?",
    )),
)  # fmt: skip
EVERY = [(topic, text) for topic, texts in ASKED for text in texts]


@pytest.mark.parametrize(("topic", "text"), EVERY)
def test_a_usual_question_is_understood(situations: dict[str, Turn], topic: str, text: str) -> None:
    turn = situations["ended"].model_copy(update={"text": text})
    assert read(turn).understanding.commands == (AskAbout.model_validate({"topic": topic}),)


OTHERS: tuple[tuple[str, str, Command], ...] = (
    ("running", "use fewer registers", Steer(hints=("fewer registers",))),
    ("running", "use torch.compile's fusion", Steer(hints=("torch.compile's fusion",))),
    ("running", "try other block sizes", Steer(hints=("other block sizes",))),
    ("running", "can you use shared memory?", Steer(hints=("shared memory",))),
    ("running", "why is v2 faster than v1?", CompareCandidates(one="v2", other="v1")),
    ("running", "why is it stuck at 1.3x?", ShowProgress()),
    ("ended", "how does v3 work?", ExplainCandidate(candidate="v3")),
    ("ended", "is v3 safe?", ExplainCandidate(candidate="v3")),
    ("ended", "how does the current best work?", ExplainCandidate()),
    ("task", "change the shapes", ChangeTask()),
    ("task", "what about other shapes?", ChangeTask()),
    ("ended", "is it safe to close the page?", AskForHelp()),
    ("ended", "kann ich die Seite schließen?", AskForHelp()),
    ("ended", "mach es schneller", ContinueSearch()),
    ("ended", "measure again", MeasureAgain()),
    ("ended", "time it again please", MeasureAgain()),
    ("ended", "certify the best once more", MeasureAgain()),
    ("ended", "miss es noch einmal", MeasureAgain()),
    ("task", "mach es schneller", StartSearch()),
    ("ended", "geht es noch schneller?", AuditTask()),
    ("ended", "lohnt sich das?", AuditTask()),
    ("ended", "wie schnell ist es jetzt?", ShowProgress()),
    ("ended", "was kostet das?", ShowProgress()),
    ("running", "wie lange dauert es noch?", ShowProgress()),
    ("ended", "ist es korrekt?", ExplainCandidate()),
    ("ended", "zeig mir den besten Kernel", ShowCode()),
    ("running", "show all wishes", ShowSteering()),
    ("running", "what did I ask for?", ShowSteering()),
    ("running", "was habe ich gesagt?", ShowSteering()),
    ("running", "zeig meine Wünsche", ShowSteering()),
    ("running", "welche Wünsche gelten?", ShowSteering()),
    ("running", "only half precision", Steer(pins=("half precision",))),
    ("running", "nur halbe Genauigkeit", Steer(pins=("half precision",))),
    ("running", "keine halbe Genauigkeit", Steer(bans=("half precision",))),
    ("running", "vermeide shared memory", Steer(bans=("shared memory",))),
    ("running", "lass shared memory weg", Steer(bans=("shared memory",))),
    ("running", "erlaube shared memory wieder", Steer(forget=("shared memory",))),
    ("running", "vergiss shared memory", Steer(forget=("shared memory",))),
    ("running", "nimm alles zurück", Steer(forget=("everything",))),
)


@pytest.mark.parametrize(("situation", "text", "command"), OTHERS)
def test_other_sentences_are_not_taken_for_one(
    situations: dict[str, Turn], situation: str, text: str, command: Command
) -> None:
    turn = situations[situation].model_copy(update={"text": text})
    assert read(turn).understanding.commands == (command,)


def test_what_was_spoken_of_before_is_what_it_means(situations: dict[str, Turn]) -> None:
    earlier = (("explain v3", "v3 reads rows once."),)
    turn = situations["ended"].model_copy(update={"text": "how does it work?", "earlier": earlier})
    assert read(turn).understanding.commands == (ExplainCandidate(candidate="v3"),)
