import chainlit as cl
import httpx
import pytest
from chainlit.auth import create_jwt
from chainlit.config import config
from chainlit.context import ChainlitContext, context_var
from chainlit.emitter import BaseChainlitEmitter
from chainlit.session import HTTPSession
from chainlit.user import User
from fastapi import FastAPI

from kernelwright.ui.chat.server.application import saved_as, serve_files
from kernelwright.ui.chat.settings import ChatSettings
from kernelwright.ui.chat.store.layer import Store


@pytest.fixture
async def store(tmp_path):
    session = HTTPSession(id="s", client_type="webapp", thread_id="talk")
    context_var.set(ChainlitContext(session, emitter=BaseChainlitEmitter(session)))
    opened = Store(ChatSettings(home=tmp_path))
    anna = await opened.create_user(User(identifier="anna"))
    await opened.update_thread("talk", name="talk", user_id=anna.id)
    yield opened
    await opened.close()


@pytest.fixture
def page(store, monkeypatch):
    """Asks for files as somebody."""
    monkeypatch.setattr(config.code, "password_auth_callback", lambda name, password: None)
    monkeypatch.setattr("chainlit.auth.get_data_layer", lambda: None)
    app = FastAPI()

    @app.get("/{path:path}")
    async def everything_else(path: str) -> str:
        return "the page"

    serve_files(app, store)

    async def ask(address: str, person: str = "") -> httpx.Response:
        cookies = {"access_token": create_jwt(User(identifier=person))} if person else None
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://localhost", cookies=cookies
        ) as client:
            return await client.get(address)

    return ask


async def keep(store: Store, name: str, content: bytes, mime: str) -> str:
    element = cl.File(name=name, content=content, mime=mime, for_id="step", thread_id="talk")
    await store.create_element(element)
    return store.files.url("talk", element.id)


async def test_whose_it_is_gets_a_file(store, page):
    answer = await page(await keep(store, "module.zip", b"PK", "application/zip"), "anna")
    assert answer.content == b"PK"
    assert 'filename="module.zip"' in answer.headers["content-disposition"]


async def test_to_anybody_else_it_is_not_there(store, page):
    address = await keep(store, "module.zip", b"PK", "application/zip")
    stranger, nowhere = await page(address, "bert"), await page("/files/no/thing", "bert")
    assert stranger.status_code == nowhere.status_code == 404
    assert stranger.json() == nowhere.json()
    assert (await page(address)).status_code == 401


async def test_a_page_that_was_attached_is_saved_and_not_opened(store, page):
    script = b"<script>alert(1)</script>"
    answer = await page(await keep(store, "x.py", script, "text/html"), "anna")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")


async def test_a_plot_is_drawn_by_the_page(store, page):
    answer = await page(await keep(store, "search", b"{}", "application/json"), "anna")
    assert answer.json() == {}


@pytest.mark.parametrize(
    ("name", "saved"),
    [("a b.py", "a_b.py"), ('x"\r\nSet-Cookie: a', "x_Set-Cookie_a"), ("../..", "file")],
)
def test_a_name_says_nothing_but_a_name(name, saved):
    assert saved_as(name) == saved
