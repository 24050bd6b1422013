"""What `kernelwright replay` says of a replay."""

from kernelwright.ui.cli import app as cli
from kernelwright.ui.cli.data import runs as replaying


def test_a_run_without_kept_decisions_is_refused_in_one_sentence(run, home, monkeypatch, capsys):
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(home))
    assert cli.run(["replay", run]) == 2
    err = capsys.readouterr().err
    assert "cannot be replayed" in err
    assert err.count("\n") == 1


def test_the_place_where_two_decisions_part_is_shown(capsys):
    left = '{"a": "' + "x" * 500 + '", "median_ms": 1.5}'
    right = left.replace("1.5", "2.5")
    replaying._tell("verdict:c1:screen", left, right, 12)
    out = capsys.readouterr().out
    assert "after 12 that are the same: verdict:c1:screen" in out
    assert "recorded: ..." in out
    assert '"median_ms": 1.5' in out
    assert '"median_ms": 2.5' in out
    assert len(out) < 500


def test_a_decision_that_was_not_made_at_all_is_said(capsys):
    replaying._tell("ideas:2", '{"ideas": []}', "", 3)
    out = capsys.readouterr().out
    assert '{"ideas": []}' in out
    assert "replayed: (no such decision)" in out
