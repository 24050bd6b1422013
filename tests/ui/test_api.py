"""The library: `import kernelwright` and what it offers, on this machine's CPU."""

import asyncio
import contextlib
import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future

import pytest

import kernelwright
from kernelwright.tools.evaluate.sandbox import fork_server
from kernelwright.tools.languages.base import compilers
from kernelwright.tools.types import Refusal
from kernelwright.tools.types.run import Summary
from kernelwright.ui import api
from kernelwright.ui.cli import check as checks
from kernelwright.ui.cli import optimize as searches

TOY = """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2 + 1


def get_inputs():
    return [torch.rand(64, 256)]
"""
KERNEL = """#include "kernelwright.hpp"
extern "C" void twice(const float* x, float* y, int n) {
  for (int i = 0; i < n; ++i) y[i] = (x[i] > 0 ? x[i] : 0) * 2 + 1;
}
"""
PLAN = """def forward(x):
    y = empty_like(x)
    launch("twice", args=(x, y, x.numel()))
    return y
"""
IMPORTED = """
import sys, kernelwright
assert not {"torch", "chainlit", "pydantic", "typer", "rich", "asyncio"} & {*sys.modules}
assert {*kernelwright.__all__} <= {*dir(kernelwright)}
from kernelwright import *
assert "chainlit" not in sys.modules
print(version())
"""


@pytest.fixture
def toy(tmp_path):
    file = tmp_path / "toy.py"
    file.write_text(TOY)
    return file


def test_importing_it_imports_nothing_heavy():
    told = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert told.stdout.startswith("0.")


def test_a_name_that_is_none_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'optimise'"):
        _ = kernelwright.optimise


@pytest.mark.parametrize("name", ["optimize", "check", "audit"])
def test_help_says_every_argument(name):
    function = getattr(kernelwright, name)
    words = inspect.getdoc(function)
    assert all(
        f"\n    {argument}: " in words for argument in inspect.signature(function).parameters
    )


@pytest.mark.exhaustive
@pytest.mark.usefixtures("nothing_compiled")
async def test_a_search_runs_beside_a_running_loop_and_prints_nothing(toy, tmp_path, capfd):
    assert asyncio.get_running_loop().is_running()
    found = kernelwright.optimize(toy, target="cpu", rounds=1, seconds=1, run_dir=tmp_path)
    assert isinstance(found, Summary)
    assert found.baselines["eager"].median_ms
    assert found.task.inputs[0].shape == (64, 256)
    assert (tmp_path / "runs" / found.run).is_dir()
    assert capfd.readouterr() == ("", "")


@pytest.mark.exhaustive
@pytest.mark.usefixtures("nothing_compiled")
def test_an_audit_and_a_wrong_candidate(toy, tmp_path, capfd):
    found = kernelwright.audit(str(toy), target="cpu")
    assert (found.task.name, found.task.bytes) == ("toy", 2 * 64 * 256 * 4)
    wrong = tmp_path / "new.py"
    wrong.write_text(TOY.replace("Model", "ModelNew").replace("* 2", "* 3"))
    judged = kernelwright.check(wrong, toy, target="cpu")
    assert judged.verdict == "wrong_result"
    assert capfd.readouterr() == ("", "")


@pytest.mark.exhaustive
@pytest.mark.usefixtures("nothing_compiled")
def test_a_correct_candidate_is_timed(toy, tmp_path, capfd):
    (tmp_path / "plan.py").write_text(PLAN)
    (tmp_path / "kernel.cpp").write_text(KERNEL)
    judged = kernelwright.check(tmp_path / "kernel.cpp", toy, target="cpu", progress=True)
    assert (judged.verdict, judged.method) == ("correct", "own kernels")
    assert judged.speedup_vs_eager
    said = capfd.readouterr()
    assert said.out == ""
    assert "timing PyTorch" in said.err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"file": "absent.py"}, "there is no file absent.py"),
        ({"search": "endless"}, "unknown search profile 'endless'"),
        ({"target": "tpu"}, "target must be auto, cuda or cpu, not 'tpu'"),
        ({"rounds": 0}, "rounds must be at least 1, not 0"),
        ({"seconds": 0.5}, "seconds must be at least 1, not 0.5"),
        ({"allow": ["fp12"]}, "Unknown precision 'fp12'"),
    ],
)
def test_bad_input_is_a_value_error_of_one_sentence(toy, tmp_path, change, words):
    given = {"file": toy, "target": "cpu", "run_dir": tmp_path} | change
    with pytest.raises(ValueError, match=words) as raised:
        kernelwright.optimize(given.pop("file"), **given)
    assert raised.type is kernelwright.KernelwrightError
    assert "\n" not in str(raised.value)


def test_bad_candidates_are_a_sentence_too(toy, tmp_path):
    with pytest.raises(kernelwright.KernelwrightError, match="there is no candidate"):
        kernelwright.check(tmp_path / "absent", toy, target="cpu")
    with pytest.raises(kernelwright.KernelwrightError, match="there is no file"):
        kernelwright.audit(tmp_path / "absent.py")


@pytest.mark.parametrize("raises", [True, False])
def test_what_a_machine_lacks_is_said(toy, tmp_path, monkeypatch, raises):
    async def lacking(*_, **__):
        if raises:
            raise kernelwright.EnvironmentLacksError("no C++ compiler")
        return Refusal(sentence="no C++ compiler", exit_status=3)

    monkeypatch.setattr(searches, "start_search", lacking)
    with pytest.raises(kernelwright.EnvironmentLacksError, match=r"^no C\+\+ compiler$"):
        kernelwright.optimize(toy, run_dir=tmp_path)


@pytest.fixture
def recorded(monkeypatch, recording):
    """Puts a recorded run in the place of a search; what it was asked for."""
    asked = {}

    async def start(file, policy, target, profile, *, home, listener, **others):
        asked.update(file=file, policy=policy, target=target, profile=profile, home=home, **others)
        kept = recording(unsure=0.05)  # a wider interval would not be exported
        run = kept.archive(home)
        events = kept.events(run)
        for event in events:
            listener(event)
        return events[-1].summary.model_copy(update={"run": run})

    monkeypatch.setattr(searches, "start_search", start)
    return asked


def test_arguments_reach_the_search(toy, tmp_path, recorded, capfd):
    kernelwright.optimize(
        toy, entry="Model", inputs="4x4:float32", target="cpu", search="deep", rounds=3,
        seconds=9, seed=7, run_dir=str(tmp_path), allow=["tf32", "fp16"], progress=True,
    )  # fmt: skip
    assert (recorded["file"], recorded["home"]) == (toy, tmp_path)
    assert (recorded["policy"].entry, recorded["policy"].inputs) == ("Model", ("4x4:float32",))
    assert recorded["policy"].allow == ("tf32", "fp16")
    profile = recorded["profile"]
    assert (profile.name, profile.rounds, profile.seconds) == ("deep", 3, 9)
    assert profile.seconds_hold == "everything"
    assert (recorded["seed"], recorded["target"], recorded["patience_s"]) == (7, "cpu", 0)
    said = capfd.readouterr()
    assert said.out == ""
    assert "baselines: eager" in said.err


def test_a_result_is_exported_and_a_refused_export_is_a_warning(
    toy, tmp_path, recorded, monkeypatch
):
    found = kernelwright.optimize(toy, run_dir=tmp_path, export=tmp_path / "out.zip")
    assert found.export == str(tmp_path / "out.zip")
    assert (tmp_path / "out.zip").is_file()

    def refuse(*_, **__):
        raise searches.ExportRefusedError("not faster")

    monkeypatch.setattr(searches, "material_of", refuse)
    with pytest.warns(UserWarning, match="nothing exported: not faster") as warned:
        found = kernelwright.optimize(toy, run_dir=tmp_path, export=tmp_path / "again.zip")
    assert found.export is None
    assert found.best is not None
    assert warned[0].filename == __file__


@pytest.fixture
def interruptible():
    """Where tests run in the background, a shell has interrupts ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_a_search_with_the_best_so_far(toy, tmp_path, monkeypatch, recording):
    summary = recording().events("run")[-1].summary

    async def endless(*_, control, **__):
        asyncio.get_running_loop().call_later(0.2, interrupt)
        with contextlib.suppress(asyncio.CancelledError):
            control.watch(asyncio.current_task())
            await asyncio.sleep(60)
        return summary.model_copy(update={"stopped_because": control.stopped_because})

    monkeypatch.setattr(searches, "start_search", endless)
    found = kernelwright.optimize(toy, run_dir=tmp_path)
    assert found.stopped_because == "you interrupted it"


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_of_a_check_is_one(toy, tmp_path, monkeypatch):
    ended = []

    async def endless(*_, **__):
        asyncio.get_running_loop().call_later(0.2, interrupt)
        try:
            await asyncio.sleep(60)
        finally:
            ended.append(True)

    monkeypatch.setattr(checks, "judged", endless)
    with pytest.raises(KeyboardInterrupt):
        kernelwright.check(tmp_path, toy)
    assert ended == [True]


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_as_a_search_ends_loses_nothing(toy, tmp_path, monkeypatch, recording):
    summary = recording().events("run")[-1].summary
    ended = threading.Event()

    async def search(*_, **__):
        asyncio.get_running_loop().call_soon(ended.set)
        return summary

    def interrupted(future, timeout=None, result=Future.result):
        monkeypatch.setattr(Future, "result", result)
        assert ended.wait(20)
        while not future.done():
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(searches, "start_search", search)
    monkeypatch.setattr(Future, "result", interrupted)
    assert kernelwright.optimize(toy, run_dir=tmp_path) == summary


def test_the_last_call_under_way_ends_what_waits_for_the_next():
    asking = compilers.pool().submit(lambda compiler: compiler._alive().pid)
    pid = asking.future.result(20)
    with api._nothing_left():
        with api._nothing_left():
            pass
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not fork_server._servers


def interrupt():
    """What Ctrl-C does to the thread that waits."""
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
