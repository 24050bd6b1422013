import asyncio
import uuid
from pathlib import Path

import chainlit as cl
import pytest
from chainlit.context import ChainlitContext, context_var
from chainlit.emitter import BaseChainlitEmitter
from chainlit.session import HTTPSession
from chainlit.types import Pagination, ThreadFilter
from chainlit.user import User

from kernelwright.ui.chat.settings import ChatSettings
from kernelwright.ui.chat.store.layer import NOBODY, Store


@pytest.fixture
def home(tmp_path: Path) -> ChatSettings:
    return ChatSettings(home=tmp_path)


@pytest.fixture
async def store(home: ChatSettings):
    opened = Store(home)
    yield opened
    await opened.close()


@pytest.fixture
async def thread():
    """A conversation whose steps and elements may be made as in a handler."""
    id = str(uuid.uuid4())
    session = HTTPSession(id=str(uuid.uuid4()), client_type="webapp", thread_id=id)
    context_var.set(ChainlitContext(session, emitter=BaseChainlitEmitter(session)))
    return id


async def begin(store: Store, thread: str, name: str = "anna") -> str:
    person = await store.create_user(User(identifier=name))
    assert person is not None
    await store.update_thread(thread, name="softmax.py", user_id=person.id)
    return person.id


def message(thread: str, text: str, at: str = "2026-01-01T00:00:00Z", **more: object) -> dict:
    step = {"id": str(uuid.uuid4()), "threadId": thread, "createdAt": at, "output": text}
    return step | {"type": "assistant_message", "name": "Kernelwright"} | more


async def test_every_field_of_a_step_comes_back(store, thread):
    await begin(store, thread)
    step = cl.Step(name="coder", type="llm", tags=["round 1"], default_open=True, icon="hammer")
    step.output, step.language, step.generation = "int x;", "cpp", None
    step.auto_collapse, step.metadata = True, {"seq": 7}
    kept = step.to_dict() | {"createdAt": "2026-01-01T00:00:00Z"}
    await store.create_step(kept)
    found = (await store.get_thread(thread))["steps"][0]
    assert found == kept | {"streaming": False}


async def test_a_field_that_is_not_known_yet_is_kept(store, thread):
    await begin(store, thread)
    await store.create_step(message(thread, "hello", invention={"a": [1]}))
    assert (await store.get_thread(thread))["steps"][0]["invention"] == {"a": [1]}


async def test_a_step_that_was_written_twice_is_as_the_last_one_says(store, thread):
    await begin(store, thread)
    step = message(thread, "first")
    writes = [store.create_step(step | {"output": f"state {n}"}) for n in range(50)]
    await asyncio.gather(*(asyncio.create_task(write) for write in writes))
    steps = (await store.get_thread(thread))["steps"]
    assert [found["output"] for found in steps] == ["state 49"]


async def test_steps_of_one_instant_stay_in_the_order_of_writing(store, thread):
    await begin(store, thread)
    for n in range(20):
        await store.create_step(message(thread, str(n)))
    assert [s["output"] for s in (await store.get_thread(thread))["steps"]] == [
        str(n) for n in range(20)
    ]


async def test_a_file_comes_back_with_its_content(store, thread):
    await begin(store, thread)
    element = cl.File(name="module.zip", content=b"PK", mime="application/zip", for_id="step")
    await store.create_element(element)
    found = (await store.get_thread(thread))["elements"][0]
    assert found["url"] == f"/files/{thread}/{element.id}"
    assert store.files.path(thread, element.id).read_bytes() == b"PK"


async def test_names_that_a_page_made_up_stay_inside_the_folder(store, home):
    for thread, element in (("../../etc", "passwd"), ("/etc", "/passwd"), ("a\0b", "..")):
        assert store.files.path(thread, element).is_relative_to(home.folder / "elements")


async def test_everything_survives_a_new_server(home, thread):
    store = Store(home)
    await begin(store, thread)
    await store.create_step(message(thread, "hello"))
    await store.update_thread(thread, metadata={"chat_profile": "CPU"}, tags=["cpu"])
    await store.close()
    store = Store(home)
    found = await store.get_thread(thread)
    await store.close()
    assert found["name"] == "softmax.py"
    assert found["userIdentifier"] == "anna"
    assert found["metadata"] == {"chat_profile": "CPU"}
    assert found["tags"] == ["cpu"]
    assert [step["output"] for step in found["steps"]] == ["hello"]


async def test_one_person_does_not_see_anothers_conversations(store):
    mine = await begin(store, "one", "anna")
    await begin(store, "two", "bert")
    page = await store.list_threads(Pagination(first=20), ThreadFilter(userId=mine))
    assert [thread["id"] for thread in page.data] == ["one"]


async def test_a_conversation_that_is_not_there_looks_like_somebody_elses(store):
    assert await store.get_thread_author("nowhere") == NOBODY
    assert await store.get_thread("nowhere") is None


async def test_nobody_takes_over_a_conversation(store):
    await begin(store, "one", "anna")
    await begin(store, "one", "bert")
    assert await store.get_thread_author("one") == "anna"


async def test_nobody_writes_over_anothers_message(store, thread):
    await begin(store, thread)
    step = message(thread, "mine")
    await store.create_step(step)
    await store.create_step(step | {"threadId": "elsewhere", "output": "forged"})
    assert [s["output"] for s in (await store.get_thread(thread))["steps"]] == ["mine"]


async def test_metadata_of_a_page_that_never_spoke_begins_no_conversation(store):
    await store.update_thread("silent", metadata={"chat_settings": {}})
    assert await store.get_thread("silent") is None


async def test_the_list_goes_page_by_page_from_the_last_spoken_in(store, thread):
    person = ""
    for n in range(5):
        person = await begin(store, f"t{n}")
        await store.create_step(message(f"t{n}", "hello"))
    await store.create_step(message("t1", "again"))
    wanted = ThreadFilter(userId=person)
    first = await store.list_threads(Pagination(first=2), wanted)
    second = await store.list_threads(Pagination(first=9, cursor=first.pageInfo.endCursor), wanted)
    assert [t["id"] for t in first.data] == ["t1", "t4"]
    assert [t["id"] for t in second.data] == ["t3", "t2", "t0"]
    assert (first.pageInfo.hasNextPage, second.pageInfo.hasNextPage) == (True, False)


async def test_a_search_finds_what_was_said(store, thread):
    person = await begin(store, "one")
    await store.create_step(message("one", "vectorised loads"))
    await begin(store, "two")
    for words, found in (("Vectorised", ["one"]), ("100%", []), ("softmax", ["two", "one"])):
        page = await store.list_threads(
            Pagination(first=9), ThreadFilter(userId=person, search=words)
        )
        assert [thread["id"] for thread in page.data] == found


async def test_a_deleted_conversation_leaves_no_file(store, thread):
    await begin(store, thread)
    element = cl.File(name="a.py", content=b"x", mime="text/plain", for_id="step")
    await store.create_element(element)
    await store.delete_thread(thread)
    assert not store.files.path(thread, element.id).exists()
    assert await store.get_thread(thread) is None


async def test_what_cannot_be_written_is_not_lost_in_silence(store, thread):
    await begin(store, thread)
    with pytest.raises(TypeError):
        await store.create_step(message(thread, "x", strange=object()))


async def test_a_killed_server_leaves_no_step_that_streams_for_ever(store, thread):
    await begin(store, thread)
    await store.create_step(message(thread, "half a sen", streaming=True))
    assert (await store.get_thread(thread))["steps"][0]["streaming"] is False


async def test_a_search_that_nobody_watches_is_written_down_too(store):
    await begin(store, "alone")
    await store.create_step(message("alone", "round 1"))
    assert [s["output"] for s in (await store.get_thread("alone"))["steps"]] == ["round 1"]


async def name_of(store: Store, thread: str) -> str:
    found = await store.get_thread(thread)
    assert found is not None
    return str(found["name"])


async def test_a_conversation_is_named_by_its_result_until_its_person_names_it(store, thread):
    await begin(store, thread)
    assert await store.name_thread(thread, "softmax.py on H200") is True
    assert await store.name_thread(thread, "softmax.py on H200") is False
    assert await store.name_thread(thread, "softmax.py: 1.42x on H200") is True
    assert await name_of(store, thread) == "softmax.py: 1.42x on H200"
    await store.update_thread(thread, name="the one for Anna")
    assert await store.name_thread(thread, "softmax.py: 1.50x on H200") is False
    assert await name_of(store, thread) == "the one for Anna"
    assert await store.name_thread("nobody's", "a name") is None


async def test_a_pasted_module_is_no_name(store, thread):
    person = await store.create_user(User(identifier="anna"))
    words = "Make this faster, please:\n\n```python\nimport torch\n```"
    await store.update_thread(thread, name=words, user_id=person.id)
    assert await name_of(store, thread) == "Make this faster, please:"
    await store.update_thread(thread, name="x" * 500, user_id=person.id)
    assert len(await name_of(store, thread)) == 60
