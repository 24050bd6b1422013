"""What a run was judged by is read again by later versions, whose rules are others."""

import json
from typing import Any, cast

from kernelwright.graphs.run_view.story import rules_of
from kernelwright.tools.archive import Archive
from kernelwright.tools.evaluate.rules import Rules


class Terms:
    """An archive of which only one term is read."""

    def __init__(self, text: str | None) -> None:
        self.text = text

    def term(self, name: str) -> str | None:
        assert name == "rules"
        return self.text


def known(text: str | None) -> Rules | None:
    return rules_of(cast(Archive, cast(Any, Terms(text))))


def test_a_rule_that_is_no_longer_one_leaves_the_others() -> None:
    """A run that asked for timing alone would have gone on with full evidence."""
    timing = Rules.of("timing")
    assert timing != Rules.of("full")
    kept = {**json.loads(timing.model_dump_json()), "flushes_max": 64}
    assert known(json.dumps(kept)) == timing


def test_what_cannot_be_read_is_nothing() -> None:
    assert known(None) is None
    assert known("no rules") is None
    assert known("[1]") is None
    assert known('{"pairs_min": "many"}') is None
