"""Folders of people and of conversations, and what is written into them."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from kernelwright.graphs.conversation.background.store import (
    ConversationState,
    ConversationStore,
    file_name,
    folder_of,
    slug,
    thread_name,
)
from kernelwright.graphs.run_view.events import quiet

NAMES = st.text(max_size=60)


@given(NAMES, NAMES)
def test_two_names_never_share_a_folder(one: str, other: str) -> None:
    assert (slug(one) == slug(other)) == (one == other)
    assert (thread_name(one) == thread_name(other)) == (one == other)


@given(NAMES)
def test_a_name_is_one_folder_below_people(name: str) -> None:
    folder = folder_of(Path("/home"), name)
    assert folder.parent == Path("/home/people")
    assert folder.name.strip(".")


@given(NAMES)
def test_a_files_name_is_safe(name: str) -> None:
    made = file_name(name)
    assert made.endswith(".py")
    assert made.isascii()
    assert "/" not in made
    assert made.count(".") == 1


@given(NAMES)
def test_nobodys_text_is_markup(text: str) -> None:
    assert not set(quiet(text)) & set("*`[]<>#|$~\n")


def test_names_keep_their_underscores_where_they_are_harmless() -> None:
    assert quiet("get_inputs and __init__") == "get_inputs and \\_\\_init\\_\\_"


async def test_a_table_that_cannot_be_read_is_empty(tmp_path: Path) -> None:
    table = ConversationStore.of(tmp_path, "one")
    await table.put(ConversationState(run="softmax-1121-abcd"))
    assert ConversationStore.of(tmp_path, "one").now.run == "softmax-1121-abcd"
    table.path.write_text("{broken")
    assert ConversationStore.of(tmp_path, "one").now == ConversationState()
    assert ConversationStore.of(tmp_path, "two").now == ConversationState()
