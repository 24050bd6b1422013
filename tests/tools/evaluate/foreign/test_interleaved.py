"""How long a baseline may take in interleaved timing: its first round may hold a compilation."""

from types import SimpleNamespace

from kernelwright.tools.evaluate.foreign import interleaved as duelling
from kernelwright.tools.evaluate.foreign.messages import Books, Done, Rehearse
from kernelwright.tools.evaluate.rules import Rules

_QUIET = Books(cpu_ms=0.0, threads=1, processes=1, held_bytes=0)


def test_a_baselines_first_round_may_take_as_long_as_compiling_may(monkeypatch):
    monkeypatch.setattr(duelling, "harshest_first", lambda *_: [])
    limits: list[tuple[str, float]] = []

    def go(calls, way, limit_s, *, exact):
        limits.append((way, limit_s))
        return 1.0, Done(own_ms=1.0)

    def ask(order, limit_s):
        assert isinstance(order, Rehearse)

    link = SimpleNamespace(books=lambda: _QUIET, ask=ask)
    stand = SimpleNamespace(
        seat=SimpleNamespace(link=link), fill=lambda _: None, go=go, since_done_s=1.0
    )
    rules = Rules(baseline_s=180.0, settle_s=0.0)
    runtime = SimpleNamespace(
        device="cpu",
        rules=rules,
        task=None,
        hardware=SimpleNamespace(cache_mib=0.01),
        draw=lambda _: [],
    )
    fight = duelling.InterleavedTimer(
        runtime, stand, stand, most=2, seed=1, verify=lambda *_: None, limit_s=120.0
    )
    fight.baseline()
    fight.readings.clear()  # as after the warm-up
    fight.baseline()
    assert limits == [("call", 180.0), ("null", 120.0), ("call", 120.0), ("null", 120.0)]
