"""Interleaved timing: how long a first round may take, and that nobody works between rounds."""

from types import SimpleNamespace

import pytest

from kernelwright.tools.evaluate.foreign import interleaved as duelling
from kernelwright.tools.evaluate.foreign.messages import Books, Done, Rehearse
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.verify.reasons import RejectedError
from kernelwright.tools.types import Verdict

_QUIET = Books(cpu_ms=0.0, threads=1, processes=1, held_bytes=0)


def timer(ours: SimpleNamespace, theirs: SimpleNamespace) -> duelling.InterleavedTimer:
    runtime = SimpleNamespace(
        device="cpu",
        rules=Rules(baseline_s=180.0, settle_s=0.0),
        task=None,
        hardware=SimpleNamespace(cache_mib=0.01),
        draw=lambda _: [],
    )
    return duelling.InterleavedTimer(
        runtime, ours, theirs, most=2, seed=1, verify=lambda *_: None, limit_s=120.0
    )


def test_a_baselines_first_round_may_take_as_long_as_compiling_may(monkeypatch):
    monkeypatch.setattr(duelling, "harshest_first", lambda *_: [])
    limits: list[tuple[str, float]] = []

    def go(calls, way, limit_s, *, exact, as_bytes):
        limits.append((way, limit_s))
        return 1.0, Done(own_ms=1.0)

    def ask(order, limit_s):
        assert isinstance(order, Rehearse)

    link = SimpleNamespace(books=lambda: _QUIET, ask=ask)
    stand = SimpleNamespace(
        seat=SimpleNamespace(link=link),
        fill=lambda _: None,
        pause=lambda: None,
        resume=lambda: None,
        go=go,
        since_done_s=1.0,
    )
    fight = timer(stand, stand)
    fight.baseline()
    fight.readings.clear()  # as after the warm-up
    fight.baseline()
    assert limits == [("call", 180.0), ("null", 120.0), ("call", 120.0), ("null", 120.0)]


def stand(said: list[str], name: str) -> SimpleNamespace:
    """One that tells of what happens to it."""

    def tells(word: str):
        return lambda *_, **__: said.append(f"{name} {word}")

    def go(*_, **__):
        said.append(f"{name} go")
        return 1.0, Done(own_ms=1.0)

    link = SimpleNamespace(books=lambda: _QUIET, ask=lambda *_: None)
    return SimpleNamespace(
        seat=SimpleNamespace(link=link, memory=None),
        pause=tells("pauses"),
        fill=tells("fill"),
        resume=tells("resumes"),
        go=go,
        since_done_s=1.0,
    )


def test_a_guest_stands_still_while_its_values_are_laid_out_and_the_other_one_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(duelling, "harshest_first", lambda *_: [])
    said: list[str] = []
    fight = timer(stand(said, "ours"), stand(said, "theirs"))
    monkeypatch.setattr(fight, "_afterwards", lambda _: None)
    monkeypatch.setattr(fight, "_chance", SimpleNamespace(random=lambda: 1.0))
    with fight.alone():
        fight.baseline()
        fight.candidate()
    theirs = ["theirs pauses", "theirs fill", "theirs resumes", "theirs go"]
    ours = ["ours pauses", "ours fill", "ours resumes", "ours go"]
    assert said == ["ours pauses", *theirs, *theirs, *ours, "ours resumes"]


def test_rounds_that_never_begin_are_made_until_they_tell_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(duelling, "harshest_first", lambda *_: [])
    said: list[str] = []
    fight = timer(stand(said, "ours"), stand(said, "theirs"))
    fight.watch()
    assert said == ["ours resumes", "theirs fill", "ours fill"] * 10
    assert fight.readings.ahead_ms == fight.readings.baseline_ahead_ms == [0.0] * 10
    fight.watch()
    assert len(said) == 30


def test_a_guest_that_does_not_stand_still_cheats(monkeypatch: pytest.MonkeyPatch) -> None:
    made = object.__new__(duelling.Stand)
    link = SimpleNamespace(pause=lambda: None, resume=lambda: ("helper",))
    made.seat, made._still = SimpleNamespace(link=link), False
    made.resume()  # it was never told to stand still
    made.pause()
    with pytest.raises(RejectedError, match=r"was to stand still.*\(helper\)") as found:
        made.resume()
    assert found.value.verdict is Verdict.CHEATING
