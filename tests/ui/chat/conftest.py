"""A real server and a real browser; both end with the test, whatever happens in it."""

import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType

import pytest

# Chainlit writes its folder wherever it is imported, unless it is told a place before.
os.environ.setdefault("CHAINLIT_APP_ROOT", tempfile.mkdtemp(prefix="kernelwright-chainlit-"))
os.environ.setdefault("CHAINLIT_AUTH_SECRET", "0" * 64)

DRIVER = Path(__file__).parents[3] / "benchmarks" / "chat_driver.py"

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


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A file to attach."""
    path = tmp_path / "small_softmax.py"
    path.write_text(SMALL)
    return path


@pytest.fixture
async def server(driver: ModuleType, tmp_path: Path):
    """A running server on the CPU, open to whoever sits here."""
    running = driver.Server(tmp_path / "home", "--target", "cpu")
    await running.start()
    yield running
    await running.stop()


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
