"""A server on the loopback that misbehaves as a test asks it to, and profiles that reach it."""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.profiles.load import ModelProfile

SERVER = Path(__file__).parents[3] / "benchmarks" / "models" / "misbehaving_server.py"


@pytest.fixture(scope="session")
def misbehaving() -> ModuleType:
    """The module with the server and the kinds of its faults."""
    spec = importlib.util.spec_from_file_location("misbehaving_server", SERVER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["misbehaving_server"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def serve(misbehaving: ModuleType) -> Iterator[Callable[..., object]]:
    """Start servers; the answer's text and the faults are given, all are closed afterwards."""
    started = []

    def start(text: str, *faults: object, **options: float) -> object:
        server = misbehaving.MisbehavingServer(lambda messages: text, faults, **options)
        started.append(server)
        return server

    yield start
    for server in started:
        server.close()


@pytest.fixture
def profile_for() -> Callable[..., ModelProfile]:
    """A profile of a server; where one shall be given up, the test says after how long."""

    def make(server: object, **fields: object) -> ModelProfile:
        known = {
            "name": "loopback",
            "model": "tiny-model",
            "base_url": server.base_url,
            "timeout_s": 60.0,
            "retry_wait_s": 0.01,
        }
        return ModelProfile.model_validate(known | fields)

    return make
