import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from kernelwright.ui.chat.server.gate import LARGEST_BODY_BYTES, LARGEST_UPLOAD_BYTES, UPLOAD, Gate

PAGE = "<html><script>one()</script><script src='/a.js'></script></html>"


async def echo(request: Request) -> PlainTextResponse:
    body = await request.body()
    return PlainTextResponse(f"{len(body)} {request.headers.get('cookie', 'nobody')}")


def client(host: str = "127.0.0.1", admitted: str = "yes") -> httpx.AsyncClient:
    app = Starlette(routes=[Route("/{path:path}", echo, methods=["GET", "POST"])])
    gate = Gate(app, lambda cookies: cookies.get("who") == admitted, host, lambda: PAGE)
    return httpx.AsyncClient(transport=httpx.ASGITransport(gate), base_url="http://localhost:8000")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8000", "[::1]:8000"])
async def test_this_machine_is_answered(host):
    assert (await client().get("/", headers={"host": host})).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "192.0.2.1"])
async def test_a_name_that_was_made_to_mean_this_machine_is_not_answered(host):
    assert (await client().get("/", headers={"host": host})).status_code == 421


async def test_a_server_for_others_answers_to_any_name():
    answer = await client("0.0.0.0").get("/", headers={"host": "gpu-7.example"})
    assert answer.status_code == 200


@pytest.mark.parametrize("origin", ["http://evil.example", "http://localhost:3000", "null"])
async def test_another_page_gets_no_answer(origin):
    assert (await client().post("/", headers={"origin": origin})).status_code == 403


async def test_our_own_page_does():
    answer = await client().post("/", headers={"origin": "http://localhost:8000"})
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "path", ["/project/share/1", "/project/element", "/mcp", "/feedback", "/copilot/index.js"]
)
async def test_doors_that_nobody_needs_are_shut(path):
    assert (await client().get(path)).status_code == 404


async def test_who_is_not_admitted_has_no_cookie_inside():
    assert (await client().get("/", headers={"cookie": "who=no"})).text == "0 nobody"
    assert (await client().get("/", headers={"cookie": "who=yes"})).text == "0 who=yes"


async def test_a_large_body_is_refused_before_it_is_read():
    assert (await client().post("/", content=b"x" * (LARGEST_BODY_BYTES + 1))).status_code == 413
    assert (await client().post("/", content=b"x" * 1000)).text.startswith("1000")


async def test_a_file_may_be_larger_if_its_sender_is_admitted():
    known = {"cookie": "who=yes"}
    file = b"x" * LARGEST_UPLOAD_BYTES
    assert (await client().post(UPLOAD, content=file, headers=known)).is_success
    assert (await client().post(UPLOAD, content=file + b"x", headers=known)).status_code == 413
    assert (await client().post(UPLOAD + "/1", content=file, headers=known)).status_code == 413
    with pytest.raises(ClientDisconnect):
        await client().post(UPLOAD, content=file)


async def test_a_body_without_a_length_ends_where_the_largest_would():
    async def endless():
        for _ in range(40):
            yield b"x" * 100_000

    with pytest.raises(ClientDisconnect):  # the application sees its caller go
        await client().post("/", content=endless())


async def test_the_page_may_load_its_own_and_run_its_own_scripts_alone():
    policy = (await client().get("/")).headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "script-src 'self' 'sha256-" in policy
    scripts = policy.split("script-src")[1].split(";")[0]
    assert "unsafe" not in scripts
    assert "http" not in policy


@pytest.mark.parametrize("path", ["/files/t/e", "/project/file/1"])
async def test_what_people_brought_is_never_a_page(path):
    headers = (await client().get(path)).headers
    assert headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert headers["x-content-type-options"] == "nosniff"
    # A kept file says by itself whether it is drawn or saved.
    assert headers.get("content-disposition") == ("attachment" if "project" in path else None)
