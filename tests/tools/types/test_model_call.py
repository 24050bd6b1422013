import pytest

from kernelwright.tools.types import Reply


@pytest.mark.parametrize(
    ("said", "kept"), [("a\ud83d\ude00b", "a\U0001f600b"), ("a\ud800b", "a\ufffdb"), ("ä\0", "ä\0")]
)
def test_whatever_a_server_sends_can_be_kept(said: str, kept: str) -> None:
    reply = Reply(text=said, reasoning=said)
    assert reply.text == kept
    assert Reply.model_validate_json(reply.model_dump_json()) == reply
