"""What code behind a wall tries, and what comes of it: nothing reached, nothing left, a name."""

import asyncio
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.sandbox import keeper as keeping
from kernelwright.tools.evaluate.sandbox import walls
from kernelwright.tools.evaluate.sandbox import walls as bubblewrap
from kernelwright.tools.evaluate.sandbox.device_queue import strangers
from kernelwright.tools.evaluate.sandbox.ending import Excess, Limits, until_over
from kernelwright.tools.evaluate.sandbox.keeper import Keeper
from kernelwright.tools.evaluate.sandbox.walled import Enclosure, start_walled
from kernelwright.tools.evaluate.sandbox.walls import Wall, plain_wall, wall
from kernelwright.tools.tasks.project import beside
from kernelwright.tools.types import EnvironmentLacksError, Isolation, Verification, WallKind

SOURCES = Path(__file__).resolve().parents[4]
PLAIN = plain_wall("for a test")
LIMITS = Limits(memory_bytes=1 << 28, processes=40, scratch_bytes=1 << 24, poll_s=0.02)


@pytest.fixture
def enclosed() -> Wall:
    """The wall here; these tests prove nothing without one."""
    found = wall()
    if not found.isolation.is_a_wall:
        pytest.skip(found.isolation.words)
    return found


async def ran(
    code: str, scratch: Path, behind: Wall, *arguments: str, readable: tuple[Path, ...] = ()
) -> tuple[int | None, str]:
    walled = await start_walled(
        Enclosure(
            argv=(sys.executable, "-I", "-S", "-c", code, *arguments),
            scratch=scratch,
            environment={"PATH": os.environ["PATH"]},
            readable=readable,
        ),
        behind,
    )
    said = (await walled.output.read()).decode()
    status = await walled.wait()
    await walled.end()
    return status, said.strip()


def marked(marker: str) -> list[str]:
    """Processes that carry the marker in their command line."""
    listed = subprocess.run(
        ["ps", "-ww", "-eo", "stat,args"], capture_output=True, text=True, check=True
    )
    return [
        line for line in listed.stdout.splitlines() if marker in line and not line.startswith("Z")
    ]


@pytest.mark.parametrize(
    "attempt",
    [
        "open('{secret}').read()",
        "open('{secret}', 'r+').write('x')",
        "open('/etc/shadow').read()",
        "open('{sources}/tools/home.py', 'a')",
        "open('/usr/left_behind', 'w')",
        "open('/proc/{parent}/environ').read()",
        "open('/proc/sys/kernel/core_pattern', 'w').write('|/bin/true')",
        "socket.create_connection(('127.0.0.1', {port}), 2)",
        "(os.symlink('{secret}', 'link'), open('link').read())",
        "os.kill({parent}, 0)",
        "os.kill(1, 9) or [][0] if os.path.exists('/proc/1') and os.getppid() != 1 else 1 / 0",
        "open('/dev/mem', 'rb').read(1)",
        "os.setuid(12345)",
        "os.mknod('disk', 0o60666, os.makedev(254, 0))",
    ],
)
async def test_what_lies_behind_the_wall_cannot_be_reached(
    tmp_path: Path, attempt: str, enclosed: Wall
) -> None:
    shown = enclosed.kind is WallKind.NAMESPACES and not enclosed.hides
    if shown and ".read()" in attempt:
        pytest.skip("this wall does not hide files, and says so")
    secret = tmp_path / "secret"
    secret.write_text("hidden", encoding="utf-8")
    with socket.create_server(("127.0.0.1", 0)) as server:
        filled = attempt.format(
            secret=secret,
            sources=SOURCES,
            parent=os.getpid(),
            port=server.getsockname()[1],
        )
        code = (
            f"import os, socket\ntry:\n    {filled}\nexcept Exception as e:\n    print('no', e)\n"
        )
        status, said = await ran(code, tmp_path / "scratch", enclosed)
    assert (status, said[:2]) == (0, "no"), said
    assert secret.read_text(encoding="utf-8") == "hidden"


async def test_the_scratch_can_be_written_and_the_parents_environment_is_not_there(
    tmp_path: Path, enclosed: Wall, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "very-secret")
    code = "import os; open('kept', 'w').write('1'); print(dict(os.environ))"
    status, said = await ran(code, tmp_path / "scratch", enclosed)
    assert status == 0
    assert "very-secret" not in said
    assert (tmp_path / "scratch" / "kept").exists()


@pytest.mark.parametrize("turns", [0, 1, 2, 3, 5, 8])
async def test_whoever_is_interrupted_while_it_starts_comes_back_and_leaves_nothing(
    tmp_path: Path, enclosed: Wall, turns: int
) -> None:
    marker = f"interrupted-{secrets.token_hex(8)}"
    asleep = (sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)", marker)

    async def used() -> None:
        walled = await start_walled(
            Enclosure(argv=asleep, scratch=tmp_path, environment={"PATH": os.environ["PATH"]}),
            enclosed,
        )
        try:
            await walled.wait()
        finally:
            await walled.end()

    using = asyncio.create_task(used())
    for _ in range(turns):
        await asyncio.sleep(0)
    using.cancel()
    await asyncio.wait({using}, timeout=120.0)
    assert using.cancelled()
    assert marked(marker) == []


async def test_who_holds_its_output_open_keeps_nobody_from_ending_it(
    tmp_path: Path, enclosed: Wall
) -> None:
    """As a process does that was forked, in another thread, while this one was started."""
    walled = await start_walled(
        Enclosure(
            argv=(sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"),
            scratch=tmp_path,
            environment={"PATH": os.environ["PATH"]},
        ),
        enclosed,
    )
    held = os.open(f"/proc/{walled.pid}/fd/1", os.O_WRONLY)
    try:
        await asyncio.wait_for(walled.end(), 60.0)
        assert not walled.alive
        # One that stays open would be complained about when the program's loop ends.
        assert await asyncio.wait_for(walled.output.read(), 60.0) == b""
    finally:
        os.close(held)


async def test_who_ends_it_at_the_same_time_as_another_closes_nothing_of_anybody_else(
    tmp_path: Path, enclosed: Wall
) -> None:
    argv = (sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)")
    environment = {"PATH": os.environ["PATH"]}
    walled = await start_walled(
        Enclosure(argv=argv, scratch=tmp_path / "scratch", environment=environment), enclosed
    )
    await asyncio.gather(walled.end(), walled.end(), walled.end())
    assert not walled.alive
    await walled.end()


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("raise SystemExit(0)", 0),
        ("import os; os._exit(7)", 7),
        ("import os; os._exit(137)", 137),
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("import os; os.abort()", -6),
        ("import ctypes; ctypes.string_at(8)", -11),
    ],
)
@pytest.mark.parametrize("plain", [True, False], ids=["plain", "walled"])
async def test_how_a_process_ended_is_seen_through_the_wall(
    tmp_path: Path, code: str, status: int, plain: bool
) -> None:
    assert (await ran(code, tmp_path, PLAIN if plain else wall()))[0] == status


DAEMON = """
import os, sys, time, signal
for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("stays", flush=True)
        while True:
            pass
    os._exit(0)
{after}
"""
# Until it was looked at: what goes by itself takes the rest along, behind a wall of namespaces.
LOOKED_AT = "while not os.path.exists('looked-at'): time.sleep(0.01)"


@pytest.mark.parametrize("after", ["while True: pass", LOOKED_AT], ids=["hangs", "goes"])
@pytest.mark.parametrize("plain", [True, False], ids=["plain", "walled"])
async def test_no_daemon_survives(tmp_path: Path, plain: bool, after: str) -> None:
    marker = f"marker-{secrets.token_hex(8)}"
    walled = await start_walled(
        Enclosure(
            argv=(sys.executable, "-I", "-S", "-c", DAEMON.format(after=after), marker),
            scratch=tmp_path,
            environment={},
        ),
        PLAIN if plain else wall(),
    )
    assert (await walled.output.readline()) == b"stays\n"
    assert marked(marker)
    (tmp_path / "looked-at").touch()
    if after == LOOKED_AT:
        assert await walled.wait() == 0
    await walled.end()
    assert not marked(marker)


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("kept = [bytearray(1 << 24) for _ in range(100)]\nimport time; time.sleep(60)",
         "out_of_memory"),
        ("import os, time\nfor _ in range(8):\n    os.fork()\ntime.sleep(60)",
         "too_many_processes"),
        ("import os, time\nos.write(os.open('big', 66), bytes(1 << 25)); time.sleep(60)",
         "disk_filled"),
        ("import os, time\nfor _ in range(6):\n    if not os.fork(): break\n"
         "kept = bytearray(os.urandom(1 << 26)); time.sleep(60)", "out_of_memory"),
    ],
    ids=["memory", "forks", "files", "memory-of-several"],
)  # fmt: skip
async def test_eating_the_machine_is_noticed_and_ended(tmp_path: Path, code: str, how: str) -> None:
    marker = f"marker-{secrets.token_hex(8)}"
    walled = await start_walled(
        Enclosure(
            argv=(sys.executable, "-I", "-S", "-c", code, marker),
            scratch=tmp_path / "scratch",
            environment={},
        )
    )
    try:
        found = await asyncio.wait_for(until_over(walled, tmp_path / "scratch", LIMITS), 240)
    finally:
        await walled.end()
    assert isinstance(found, Excess)
    assert found.how == how
    assert not marked(marker)


@pytest.fixture
def fresh_choice(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    walls._chosen.cache_clear()
    yield monkeypatch
    walls._chosen.cache_clear()


def test_a_wall_can_be_switched_off_and_the_label_says_so(
    fresh_choice: pytest.MonkeyPatch,
) -> None:
    fresh_choice.setenv(walls.CHOICE, "off")
    found = wall().isolation
    assert found.kind is WallKind.NONE
    assert "not isolated" in str(found)
    assert not found.is_a_wall


def test_a_demanded_wall_that_is_missing_is_an_error_with_its_remedy(
    fresh_choice: pytest.MonkeyPatch,
) -> None:
    fresh_choice.setenv(walls.CHOICE, "require")
    fresh_choice.setattr(bubblewrap, "found", lambda: None)
    with pytest.raises(EnvironmentLacksError, match="apt-get install bubblewrap"):
        wall()


def test_without_bubblewrap_the_next_best_wall_says_what_it_leaves_open(
    fresh_choice: pytest.MonkeyPatch,
) -> None:
    fresh_choice.delenv(walls.CHOICE, raising=False)
    fresh_choice.setattr(bubblewrap, "found", lambda: None)
    found = wall().isolation
    assert found.kind in (WallKind.NAMESPACES, WallKind.NONE)
    assert any(word in str(found) for word in ("no bubblewrap", "not hidden", "not isolated"))


@pytest.mark.parametrize("bwrap", [True, False], ids=["the best", "without bubblewrap"])
async def test_a_loopback_behind_a_wall_is_the_walls_own(
    tmp_path: Path, fresh_choice: pytest.MonkeyPatch, bwrap: bool
) -> None:
    """Whichever wall stands, so that what a file tries ends in the same words."""
    if not bwrap:
        fresh_choice.setattr(bubblewrap, "found", lambda: None)
    behind = wall()
    if not behind.isolation.is_a_wall:
        pytest.skip(behind.isolation.words)
    code = (
        "import socket, sys\nown = socket.create_server(('127.0.0.1', 0))\n"
        "socket.create_connection(own.getsockname(), 5)\n"
        "try: socket.create_connection(('127.0.0.1', int(sys.argv[1])), 5)\n"
        "except OSError as error: print(error)\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        assert await ran(code, tmp_path, behind, port) == (0, "[Errno 111] Connection refused")


def test_an_unknown_choice_is_refused(fresh_choice: pytest.MonkeyPatch) -> None:
    fresh_choice.setenv(walls.CHOICE, "perhaps")
    with pytest.raises(EnvironmentLacksError, match="auto, require or off"):
        wall()


def test_a_file_lets_in_what_it_imports_and_nothing_else(tmp_path: Path) -> None:
    for name in ("layers", "deeper", "secret"):
        (tmp_path / f"{name}.py").write_text("import deeper\n", encoding="utf-8")
    found = beside("from layers import Block\nimport torch\n", str(tmp_path / "model.py"))
    assert found == (tmp_path / "deeper.py", tmp_path / "layers.py")
    assert beside("open(__file__)", str(tmp_path / "model.py")) == (tmp_path,)
    assert beside("open(__file__)", str(Path.home() / "model.py")) == ()
    assert beside("not python (", str(tmp_path / "model.py")) == ()


async def test_of_a_project_that_is_let_in_secrets_stay_out_of_sight(
    tmp_path: Path, enclosed: Wall
) -> None:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    for name in (".git/config", ".env", "data.txt"):
        (project / name).write_text("told", encoding="utf-8")
    code = (
        "import pathlib, sys\n"
        "for name in ('.git/config', '.env', 'data.txt'):\n"
        "    place = pathlib.Path(sys.argv[1]) / name\n"
        "    print(place.read_text() if place.exists() else 'none', end=' ')\n"
    )
    status, said = await ran(
        code, tmp_path / "scratch", enclosed, str(project), readable=(project,)
    )
    assert status == 0, said
    assert said.split() == ["none", "told"]


def test_older_records_hold_the_sentence_alone() -> None:
    old = {"verdict": "correct", "reason": "", "isolation": "worker process, not isolated"}
    assert Verification.model_validate(old).isolation.kind is WallKind.NONE
    again = Isolation.model_validate_json(wall().isolation.model_dump_json())
    assert again == wall().isolation


def test_company_is_counted_whatever_the_container_calls_us() -> None:
    assert strangers([10, 20], [10, 11]) == 1
    assert strangers([10], [10]) == 0
    assert strangers([77], [10]) == 0
    assert strangers([], [10]) == 0
    assert strangers([77, 78], [10, 11], 2) == 0
    assert strangers([77, 78, 79], [10, 11], 2) == 1
    assert strangers([10, 78], [10, 11], 2) == 1


class Living:
    """What is asked of a worker here: whether it lives, and its processes."""

    alive = True

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def processes(self) -> tuple[int, ...]:
        return (self._pid,)


def test_a_profilers_worker_that_stays_is_nobodys_company(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[tuple[list[int], int]] = []
    monkeypatch.setattr(
        keeping, "company", lambda ours, trees: counted.append((sorted(ours), trees))
    )
    judges, aside = (Keeper(tmp_path / name, Rules(), "cuda") for name in ("judges", "aside"))
    judges.stands_beside(aside)  # it was asked nothing yet
    monkeypatch.setattr(judges, "_worker", Living(1))
    monkeypatch.setattr(aside, "_worker", Living(2))
    judges.company()
    judges.stands_beside(aside)
    judges.company()
    assert counted == [([1], 1), ([1, 2], 2)]
