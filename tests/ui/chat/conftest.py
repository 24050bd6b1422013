"""A real server and a real browser; both end with the test, whatever happens in it."""

import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import pytest
import pytest_asyncio

# Chainlit writes its folder wherever it is imported, unless it is told a place before.
ROOT_OF_APP = tempfile.mkdtemp(prefix="kernelwright-chainlit-")
os.environ.setdefault("CHAINLIT_APP_ROOT", ROOT_OF_APP)
os.environ.setdefault("CHAINLIT_AUTH_SECRET", "0" * 64)

DRIVER = Path(__file__).parents[3] / "benchmarks" / "chat" / "chat_driver.py"

# Nobody here hurries: a worker that stands ready is seconds of a processor's time, used or not.
FLAGS = ("--target", "cpu", "--ready", "0")

# A search over it takes seconds on any machine, and there is something to win.
SMALL = '''\
import torch
from torch import nn


class SmallSoftmax(nn.Module):
    """Softmax over rows, step by step."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shifted = x - x.max(dim=1, keepdim=True).values
        grown = torch.exp(shifted)
        return grown / grown.sum(dim=1, keepdim=True)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(256, 1024)]


def get_init_inputs() -> list[object]:
    return []
'''


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Nothing of a chat needs a GPU, and a machine with one may have neither chainlit nor browser.

    Any other selection collects these files, and without chainlit fails on them.
    """
    return config.getoption("markexpr") == "gpu" or None


def pytest_sessionfinish() -> None:
    """Nothing of it stays."""
    shutil.rmtree(ROOT_OF_APP, ignore_errors=True)


@pytest.fixture(scope="session")
def driver() -> ModuleType:
    """Servers and visitors, as the benchmarks use them."""
    spec = importlib.util.spec_from_file_location("chat_driver", DRIVER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["chat_driver"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def flags() -> tuple[str, ...]:
    """How the servers here are started."""
    return FLAGS


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A file to attach."""
    path = tmp_path / "small_softmax.py"
    path.write_text(SMALL)
    return path


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def server(driver: ModuleType, tmp_path_factory: pytest.TempPathFactory):
    """A running server on the CPU, open to whoever sits here; all who end it have their own."""
    home = tmp_path_factory.mktemp("server") / "home"
    async with driver.Server(home, *FLAGS) as running:
        yield running


@pytest.fixture
async def mortal(driver: ModuleType, tmp_path: Path):
    """A server of one's own, to be killed."""
    async with driver.Server(tmp_path / "home", *FLAGS) as running:
        yield running


@pytest.fixture
async def visit(driver: ModuleType):
    """Visit a server; everybody leaves at the end."""
    visitors = []

    async def enter(url: str, name: str = "", thread: str = "") -> object:
        visitor = driver.Visitor(url, name)
        visitors.append(visitor)
        await visitor.enter()
        await visitor.open(thread)
        return visitor

    yield enter
    for visitor in visitors:
        await visitor.leave()


@pytest.fixture
async def browser():
    """Debian's chromium, with nothing of its own to fetch."""
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    if executable is None:
        pytest.skip("no chromium here: apt install chromium")
    from playwright.async_api import async_playwright

    flags = (
        "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-dev-shm-usage "
        "--disable-background-networking --disable-component-update --disable-sync"
    )
    async with async_playwright() as playwright:
        opened = await playwright.chromium.launch(executable_path=executable, args=flags.split())
        yield opened
        await opened.close()


@pytest.fixture
async def look():
    """Opens pages without a server: what each is sent is kept in order."""
    from chainlit.context import ChainlitContext, context_var
    from chainlit.emitter import BaseChainlitEmitter
    from chainlit.session import HTTPSession

    class Recorder(BaseChainlitEmitter):
        """A page that only remembers."""

        def __init__(self, session):
            super().__init__(session)
            self.sent = []

        async def send_step(self, step_dict):
            self.sent.append(("step", dict(step_dict)))

        async def delete_step(self, step_dict):
            self.sent.append(("gone", dict(step_dict)))

        async def send_element(self, element_dict):
            self.sent.append(("element", dict(element_dict)))

        async def emit(self, event, data):
            self.sent.append((event, data))

        def of(self, kind):
            return [data for event, data in self.sent if event == kind]

        @property
        def buttons(self):
            """The labels of the buttons that are there now."""
            there = {}
            for event, data in self.sent:
                if event == "remove_action":
                    there.pop(data["id"], None)
                elif event == "action":
                    assert data["id"] not in there, "a button is there twice"
                    there[data["id"]] = data
            return {action["label"]: action for action in there.values()}

    def enter(thread: str = "thread", id: str = "page"):
        session = HTTPSession(
            id=id, thread_id=thread, token=None, user=None, client_type="webapp", user_env={}
        )
        session.has_first_interaction = True
        context = ChainlitContext(session, emitter=Recorder(session))
        context_var.set(context)
        return context

    return enter
