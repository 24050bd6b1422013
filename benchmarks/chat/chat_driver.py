"""Drives the chat without a page: starts servers, and visits them over the same socket as a page.

Used by `chat_load.py`, `chat_kill.py` and the end-to-end tests. A visitor keeps what a page would
show: messages by id as they are now, the buttons that can be pressed, the files that came.
"""

import asyncio
import contextlib
import mimetypes
import os
import re
import signal
import sys
import time
import uuid
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TypeVar

import httpx
import socketio

COMMAND = [sys.executable, "-m", "kernelwright"]
ROOT = Path(__file__).parents[2]
PASSWORD = "correct horse battery"

# Of processor time in two seconds, a hundredth of a second each.
RESTING_TICKS = 20

Json = dict[str, object]
Result = TypeVar("Result")


class Server:
    """`kernelwright chat` as a process of its own."""

    def __init__(self, home: Path, *flags: str, port: int = 0) -> None:
        self.home, self.flags, self.port = home, flags, port
        self.log = home / "server.log"
        self.url = ""
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> "Server":
        """Start it."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """End it, whatever happened."""
        await self.stop()

    async def start(self, patience_s: float = 300) -> None:
        """Start it and wait until it answers; one that does not is ended."""
        try:
            await self._start(patience_s)
        except BaseException:
            await asyncio.shield(self.kill())
            raise

    async def settle(self, patience_s: float = 60) -> float:
        """Wait until it rests, as one that was started a while ago; its workers stand ready then.

        Returns:
            How long that took, in seconds.
        """
        began = time.monotonic()
        before = -1
        while time.monotonic() - began < patience_s:
            worked = sum(map(_worked, (self.pid, *descendants(self.pid))))
            if 0 <= worked - before < RESTING_TICKS:
                break
            before = worked
            await asyncio.sleep(2)
        return time.monotonic() - began

    async def _start(self, patience_s: float) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        before = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *COMMAND, "chat", "--headless", "--port", str(self.port),
                "--run-dir", str(self.home), *self.flags,
                cwd=ROOT, stdout=log, stderr=log, stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,
                # What the caller's tests set for themselves is not the server's.
                env={k: v for k, v in os.environ.items() if not k.startswith("CHAINLIT_")},
            )  # fmt: skip
        await until(lambda: self._answers(before), patience_s)
        async with httpx.AsyncClient() as client:
            for _ in range(int(patience_s * 5)):
                with contextlib.suppress(httpx.TransportError):
                    if (await client.get(self.url + "/health", timeout=5)).is_success:
                        return
                await asyncio.sleep(0.2)
        raise TimeoutError(self.said())

    def _answers(self, before: int) -> bool:
        assert self._process is not None
        found = re.search(r" is at (http://\S+)", self.said()[before:])
        if found:
            self.url = found.group(1)
            self.port = int(self.url.rsplit(":", 1)[1])
        elif self._process.returncode is not None:
            raise RuntimeError(self.said())
        return bool(found)

    def said(self) -> str:
        """Everything that it wrote."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    @property
    def pid(self) -> int:
        """Its process."""
        assert self._process is not None
        return self._process.pid

    async def kill(self) -> None:
        """End it as a power cut would: at once, and this process alone."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """Ask it to end, and make sure that nothing of it stays."""
        await self._end(signal.SIGINT)

    async def _end(self, how: signal.Signals, patience_s: float = 120) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(how)
        try:
            await asyncio.wait_for(self._process.wait(), patience_s)
        except TimeoutError:
            os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
            raise
        finally:
            self._process = None


def descendants(pid: int) -> tuple[int, ...]:
    """The processes that a process began, and those that they began."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rsplit(")", 1)[1].split()
            parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    found = list(parents.get(pid, []))
    for child in found:
        found += parents.get(child, [])
    return tuple(found)


def alive(pids: tuple[int, ...]) -> tuple[int, ...]:
    """Those of them that still run."""
    return tuple(pid for pid in pids if Path(f"/proc/{pid}/cmdline").exists() and _runs(pid))


def _worked(pid: int) -> int:
    """How much processor time a process has had, in clock ticks; 0 when it is gone."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])
    return 0


def _runs(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


class Visitor:
    """One person in one conversation."""

    def __init__(self, url: str, name: str = "") -> None:
        self.url, self.name = url, name
        self.session, self.thread = str(uuid.uuid4()), ""
        self.steps: dict[str, Json] = {}
        self.actions: dict[str, Json] = {}
        self.elements: dict[str, Json] = {}
        self.toasts: list[str] = []
        # Whether the conversation that it asked for is none of this person's.
        self.not_found = False
        # Seconds from a question to its answer are read off here; every change counts.
        self.changed_at = time.monotonic()
        # A button that begins a search answers when the device had time for it; a page waits too.
        self.http = httpx.AsyncClient(base_url=url, timeout=900)
        self._socket = socketio.AsyncClient(reconnection=False)
        self._socket.on("*", self._heard)

    async def enter(self, password: str = PASSWORD) -> None:
        """Log in; without a name, as whoever is at this machine."""
        if self.name:
            form = {"username": self.name, "password": password}
            answer = await self.http.post("/login", data=form)
        else:
            answer = await self.http.post("/auth/header")
        answer.raise_for_status()

    async def open(self, thread: str = "") -> None:
        """Open a new conversation, or one that there is."""
        cookies = "; ".join(f"{name}={value}" for name, value in self.http.cookies.items())
        self.thread = thread
        auth = {"clientType": "webapp", "sessionId": self.session, "threadId": thread}
        await self._socket.connect(
            self.url,
            headers={"Cookie": cookies},
            socketio_path="/ws/socket.io",
            transports=["websocket"],
            auth=auth | {"userEnv": "{}", "chatProfile": ""},
            wait_timeout=120,
        )
        await self._socket.emit("connection_successful")

    async def say(self, text: str, *files: Path) -> None:
        """Send a message, with files."""
        references = [{"id": await self._attach(file)} for file in files]
        message = {"id": str(uuid.uuid4()), "threadId": self.thread, "name": self.name or "You"}
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        message |= {"type": "user_message", "output": text, "createdAt": now}
        payload = {"message": message, "fileReferences": references}
        await self._socket.emit("client_message", payload)

    async def _attach(self, file: Path) -> str:
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        answer = await self.http.post(
            "/project/file",
            params={"session_id": self.session},
            files={"file": (file.name, await asyncio.to_thread(file.read_bytes), kind)},
        )
        answer.raise_for_status()
        return str(answer.json()["id"])

    async def press(self, label: str, patience_s: float = 240) -> None:
        """Press the newest button whose label fits, as soon as there is one."""
        await until(lambda: self.button(label) is not None, patience_s, self.told)
        body = {"sessionId": self.session, "action": self.button(label)}
        (await self.http.post("/project/action", json=body)).raise_for_status()

    def button(self, label: str) -> Json | None:
        """The newest button whose label fits."""
        fits = [a for a in self.actions.values() if re.search(label, str(a["label"]), re.I)]
        return fits[-1] if fits else None

    def texts(self) -> list[str]:
        """What the messages and steps say now, in order."""
        return [str(step.get("output") or "") for step in self.steps.values()]

    def told(self) -> str:
        """Everything that is shown, for an error's text."""
        buttons = [a["label"] for a in self.actions.values()]
        return "\n---\n".join(self.texts()) + f"\n=== buttons {buttons}, toasts {self.toasts}"

    async def read(self, words: str, patience_s: float = 240) -> str:
        """Wait until something says this, a regular expression, and return all of it."""

        def found() -> str:
            return next((t for t in reversed(self.texts()) if re.search(words, t, re.I)), "")

        await until(lambda: bool(found()), patience_s, self.told)
        return found()

    async def leave(self) -> None:
        """Close the page."""
        await self._socket.disconnect()
        await self.http.aclose()

    async def _heard(self, event: str, data: object = None) -> None:
        self.changed_at = time.monotonic()
        if event == "resume_thread_error":
            self.not_found = True
        if not isinstance(data, dict):
            return
        if event in ("new_message", "update_message", "stream_start"):
            self.steps[str(data["id"])] = {**self.steps.get(str(data["id"]), {}), **data}
        elif event == "stream_token":
            step = self.steps.setdefault(str(data["id"]), {})
            so_far = "" if data.get("isSequence") else str(step.get("output") or "")
            step["output"] = so_far + str(data["token"])
        elif event == "delete_message":
            self.steps.pop(str(data["id"]), None)
        elif event in ("action", "remove_action"):
            self.actions.pop(str(data["id"]), None)
            if event == "action":
                self.actions[str(data["id"])] = data
        elif event == "element":
            self.elements[str(data["id"])] = data
        elif event == "first_interaction":
            self.thread = str(data["thread_id"])
        elif event == "resume_thread":
            self.steps |= {str(step["id"]): step for step in data["steps"]}
            self.elements |= {str(e["id"]): e for e in data["elements"]}
        elif event == "toast":
            self.toasts.append(str(data["message"]))


def carry_out(work: Coroutine[object, object, Result]) -> Result:
    """Run a benchmark; when it is told to end, it cleans up before it does.

    Raises:
        SystemExit: It was ended by a signal.
    """

    async def main() -> Result:
        task = asyncio.current_task()
        assert task is not None
        for signal_ in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(signal_, task.cancel)
        return await work

    try:
        return asyncio.run(main())
    except asyncio.CancelledError:
        raise SystemExit("ended before it was done") from None


async def until(
    what: Callable[[], bool], patience_s: float, told: Callable[[], str] = lambda: ""
) -> None:
    """Wait until something holds.

    Raises:
        TimeoutError: It did not, with what was shown instead.
    """
    ends = time.monotonic() + patience_s
    while not what():
        if time.monotonic() > ends:
            raise TimeoutError(f"after {patience_s:.0f} s:\n{told()}")
        await asyncio.sleep(0.02)
