"""A worker that is forked is, seen from inside and from outside, what one that is started is."""

import ast
import asyncio
import os
import signal
import socket
import sys
import threading
import time
from pathlib import Path

import pytest

from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.sandbox import fork_server as serving
from kernelwright.tools.evaluate.sandbox.bytecode import WORKER_IMPORTS, worker_environment
from kernelwright.tools.evaluate.sandbox.fork_server import ForkServer, fork_server
from kernelwright.tools.evaluate.sandbox.walled import Enclosure, Walled, start_walled
from kernelwright.tools.evaluate.sandbox.walls import wall
from kernelwright.tools.evaluate.sandbox.worker import WorkerProcess
from kernelwright.tools.types import WallKind

# What a process can find out of itself; `timeit` runs it, as any module of Python's would do.
PROBE = """
import json, os, random, resource, signal, sys, tempfile
def line(name):
    return next(x.split(':')[1].strip() for x in open('/proc/self/status') if x.startswith(name))
def reached(path):
    try:
        return bool(open(path).read(1))
    except OSError as error:
        return type(error).__name__
def tried(what):
    try:
        return what()
    except OSError as error:
        return type(error).__name__
names = 'CapInh CapPrm CapEff CapBnd CapAmb NoNewPrivs Seccomp Uid Gid Groups Umask SigBlk SigIgn'
mounts = sorted(tuple(x.split()[3:6]) for x in open('/proc/self/mountinfo'))
numbers = sorted(int(n) for n in os.listdir('/proc/self/fd'))
open('written', 'w').close()
print(repr({
    'status': {name: line(name) for name in names.split()},
    'mounts': [m for m in mounts if 'kernelwright' not in m[1]],
    'processes': sum(n.isdigit() for n in os.listdir('/proc')) <= 3,
    'descriptors': [os.path.basename(os.readlink(f'/proc/self/fd/{n}')).split(':')[0]
                    for n in numbers if os.path.exists(f'/proc/self/fd/{n}')],
    'environment': dict(os.environ),
    'folder': [os.getcwd(), sorted(os.listdir('.'))],
    'leads': [os.getsid(0) == os.getpid(), os.getpgid(0) == os.getpid()],
    'limits': [resource.getrlimit(n) for n in range(16)],
    'nice': os.getpriority(os.PRIO_PROCESS, 0),
    'killed_first': open('/proc/self/oom_score_adj').read(),
    'handlers': [str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)],
    'path': sys.path, 'flags': str(sys.flags), 'temporary': tempfile.gettempdir(),
    'others': [reached('/proc/1/environ'), reached('/etc/shadow'), reached('SECRET')],
    'network': sorted(os.listdir('/sys/class/net')) if os.path.exists('/sys/class/net') else None,
    'interpreter': [tried(lambda: os.chmod(os.path.realpath(sys.executable), 0o755)),
                    tried(lambda: open('/proc/self/exe', 'r+b').close()),
                    os.stat('/proc/self/exe').st_nlink == 0 or tried(
                        lambda: os.chmod('/proc/self/exe', 0o755)) == 'OSError'],
    'rights': [os.access(p, os.W_OK) for p in ('/', '/usr', '/proc/sys/kernel', '.')],
    'namespaces': {n: os.readlink(f'/proc/self/ns/{n}') for n in os.listdir('/proc/self/ns')},
}))
"""
DIFFER = ("namespaces",)


@pytest.fixture(autouse=True)
def _behind_bubblewrap() -> None:
    if wall().kind is not WallKind.BUBBLEWRAP:
        pytest.skip("workers are forked behind bubblewrap alone")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return worker_environment(tmp_path / "scratch")


def probing(
    environment: dict[str, str], scratch: Path, code: str = "pass", *, ahead: str = WORKER_IMPORTS
) -> Enclosure:
    argv = (sys.executable, "-P", "-m", "timeit", "-n", "1", "-r", "1", code)
    return Enclosure(argv=argv, scratch=scratch, environment=environment, ahead=ahead)


def command_of(pid: int) -> bytes:
    """Empty for a process that has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


async def said_by(walled: Walled) -> str:
    try:
        said = (await walled.output.read()).decode()
        assert await walled.wait() == 0, said
        return said
    finally:
        await walled.end()


@pytest.mark.parametrize("heeds", [True, False], ids=["heeds interrupts", "in the background"])
async def test_a_fork_finds_out_of_itself_what_a_started_process_does(
    tmp_path: Path, environment: dict[str, str], heeds: bool
) -> None:
    usual = signal.signal(signal.SIGINT, signal.default_int_handler if heeds else signal.SIG_IGN)
    try:
        await _looked_alike(tmp_path, environment)
    finally:
        signal.signal(signal.SIGINT, usual)


async def _looked_alike(tmp_path: Path, environment: dict[str, str]) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hidden", encoding="utf-8")
    probe = PROBE.replace("SECRET", str(secret))
    found = []
    for ahead in ("", WORKER_IMPORTS):
        walled = await start_walled(probing(environment, tmp_path / "scratch", probe, ahead=ahead))
        assert bool(walled.fork) == bool(ahead)
        said = await said_by(walled)
        found.append(ast.literal_eval(said.splitlines()[0]))
    started, forked = found
    assert {k: v for k, v in forked.items() if k not in DIFFER} == {
        k: v for k, v in started.items() if k not in DIFFER
    }
    ours = {name: os.readlink(f"/proc/self/ns/{name}") for name in forked["namespaces"]}
    shared = {name for name in ours if forked["namespaces"][name] == ours[name]}
    assert shared == {name for name in ours if started["namespaces"][name] == ours[name]}


async def test_forks_share_nothing_that_one_of_them_changes(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    spoil = (
        "import os, torch, kernelwright.tools.evaluate.wire as w; "
        "torch.exp = None; w.frame = None; os.environ['SPOILT'] = '1'"
    )
    look = (
        "import os, torch, kernelwright.tools.evaluate.wire as w; "
        "print(torch.exp is None, w.frame is None, 'SPOILT' in os.environ)"
    )
    await said_by(await start_walled(probing(environment, tmp_path / "scratch", spoil)))
    said = await said_by(await start_walled(probing(environment, tmp_path / "scratch", look)))
    assert said.splitlines()[0] == "False False False"


async def test_forks_draw_different_random_numbers(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    code = "import random, numpy; print(random.random(), numpy.random.rand())"
    drawn = [
        (await said_by(await start_walled(probing(environment, tmp_path / "scratch", code))))
        for _ in range(2)
    ]
    first, second = (line.splitlines()[0].split() for line in drawn)
    assert first[0] != second[0]
    assert first[1] != second[1]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV, 7])
async def test_the_end_of_a_fork_is_told_as_any_other(
    tmp_path: Path, environment: dict[str, str], how: int | signal.Signals
) -> None:
    by_signal = isinstance(how, signal.Signals)
    code = f"import os; os.{f'kill(os.getpid(), {int(how)})' if by_signal else f'_exit({how})'}"
    walled = await start_walled(probing(environment, tmp_path / "scratch", code))
    assert await walled.wait() == (-how if by_signal else how)
    await walled.end()
    assert walled.processes() == ()


async def test_ending_it_ends_what_it_started(tmp_path: Path, environment: dict[str, str]) -> None:
    code = (
        "import os, subprocess, sys, time; "
        "subprocess.Popen(['sleep', '600'], start_new_session=True); print('up', flush=True); "
        "time.sleep(600)"
    )
    walled = await start_walled(probing(environment, tmp_path / "scratch", code))
    assert await walled.output.readline() == b"up\n"
    running = walled.processes()
    assert any(b"sleep" in command_of(pid) for pid in running)
    assert walled.held_bytes() > 0
    await walled.end()
    assert not any(map(command_of, running))


async def test_a_server_that_is_lost_takes_its_forks_along_and_is_started_anew(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    asleep = probing(environment, tmp_path / "scratch", "import time; time.sleep(600)")
    walled = await start_walled(asleep)
    server = await fork_server(environment, WORKER_IMPORTS)
    assert server is not None
    os.kill(server.pid, signal.SIGKILL)
    await asyncio.wait_for(walled.wait(), 20)
    await walled.end()
    await asyncio.to_thread(server.end)
    again = await fork_server(environment, WORKER_IMPORTS)
    assert again is not None
    assert again.pid != server.pid
    assert (await said_by(await start_walled(probing(environment, tmp_path / "other")))) != ""


async def test_one_that_imports_is_ended_at_once_and_leaves_no_folder(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    folder = environment["TORCHINDUCTOR_CACHE_DIR"]
    os.rmdir(folder)
    before = {*threading.enumerate()}  # other tests of this process leave some
    server = ForkServer(environment, WORKER_IMPORTS)
    waiting = asyncio.create_task(server.ready())
    await asyncio.sleep(0.1)
    waiting.cancel()
    begun = {*threading.enumerate()} - before
    assert not begun, "no thread waits for an answer that comes in seconds"
    began = time.monotonic()
    server.end()
    assert time.monotonic() - began < serving._END_S
    other = ForkServer(environment, WORKER_IMPORTS)
    await other.ready()
    other.end()
    assert not os.access(folder, os.F_OK)


@pytest.mark.parametrize("after_ms", [0, 2, 10, 40])
async def test_whoever_is_interrupted_while_it_forks_leaves_nothing(
    tmp_path: Path, environment: dict[str, str], after_ms: int
) -> None:
    assert await fork_server(environment, WORKER_IMPORTS) is not None
    starting = asyncio.create_task(
        start_walled(probing(environment, tmp_path / "scratch", "import time; time.sleep(600)"))
    )
    await asyncio.sleep(after_ms / 1000)
    starting.cancel()
    await asyncio.wait({starting}, timeout=60.0)
    if not starting.cancelled():
        await starting.result().end()
    place = str(tmp_path / "scratch").encode()
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    assert not [pid for pid in pids if place in command_of(pid)]


async def test_where_a_fork_cannot_join_workers_are_started(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object) -> int:
        raise serving.ForkFailedError("not today")

    monkeypatch.setattr(serving, "_failures", [])
    monkeypatch.setattr(ForkServer, "fork", refused)
    for times in range(1, 4):
        assert await fork_server(environment, WORKER_IMPORTS) is not None
        walled = await start_walled(probing(environment, tmp_path / "scratch"))
        assert not walled.fork
        assert len(serving._failures) == times
        await said_by(walled)
    assert await fork_server(environment, WORKER_IMPORTS) is None


async def test_nobody_who_needs_the_gpu_is_forked(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    needs = probing(environment, tmp_path / "scratch").model_copy(update={"device": "cuda"})
    walled = await start_walled(needs, wall())
    assert not walled.fork
    await said_by(walled)


async def test_it_can_be_switched_off(
    tmp_path: Path, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(serving.CHOICE, "off")
    walled = await start_walled(probing(environment, tmp_path / "scratch"))
    assert not walled.fork
    await said_by(walled)


async def test_a_worker_is_forked_and_answers_within_its_wall(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        worker = await WorkerProcess.start(tmp_path, Rules(), inherited=(theirs.fileno(),))
        try:
            assert worker.alive
            assert worker.isolation.kind is WallKind.BUBBLEWRAP
            assert worker._walled.fork
            assert worker._walled.fork not in worker.processes()
        finally:
            await worker.aclose()
    assert worker.processes() == ()
