"""A Ray cluster as a fleet: starts the broker, speaks with it, and replaces it where it is lost.

A cluster of this machine's own lives in a network namespace of its own (bubblewrap), since Ray
listens on every network that it finds; its session lies in a private folder, its token is drawn
for it. To join other hosts is said explicitly, by an address, and needs their token.
"""

import asyncio
import contextlib
import importlib.util
import os
import secrets
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from kernelwright.tools.evaluate.executors.cluster.messages import (
    LONGEST_LINE_BYTES,
    SAID,
    Asked,
    Done,
    Down,
    End,
    Failed,
    Ground,
    Lost,
    Run,
    Said,
    Seen,
    Up,
)
from kernelwright.tools.evaluate.executors.cluster.scheduler import DeviceLostError
from kernelwright.tools.evaluate.sandbox.walls import found as bubblewrap
from kernelwright.tools.runtime import home, python_path
from kernelwright.tools.types import EnvironmentLacksError

# Set to anything, what Ray writes is shown.
LOG = "KERNELWRIGHT_CLUSTER_LOG"
INSTALL = 'pip install "kernelwright[cluster]"'
_BROKER = "kernelwright.tools.evaluate.executors.cluster.broker"
_BROKERS = 3
_ENDING_S = 20.0
_TOKEN, _TOKEN_FILE = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"


def installed() -> bool:
    """Whether Ray is installed; it is not imported for that."""
    return importlib.util.find_spec("ray") is not None


def has_token(environment: Mapping[str, str]) -> bool:
    """Whether there is a token to join other hosts with, where Ray looks for one."""
    if environment.get(_TOKEN):
        return True
    named = environment.get(_TOKEN_FILE)
    return (Path(named) if named else Path.home() / ".ray" / "auth_token").is_file()


def check(ground: Ground, environment: Mapping[str, str] | None = None) -> None:
    """Whether a broker can be started there.

    Raises:
        EnvironmentLacksError: Ray, a token or bubblewrap is missing; the message has the remedy.
    """
    if not installed():
        raise EnvironmentLacksError(f"a cluster needs Ray: {INSTALL}")
    if ground.address:
        if not has_token(os.environ if environment is None else environment):
            raise EnvironmentLacksError(
                f"joining {ground.address} needs the cluster's token: set {_TOKEN}, or put it "
                "into ~/.ray/auth_token (`ray get-auth-token --generate` makes one)"
            )
    elif bubblewrap() is None:
        raise EnvironmentLacksError(
            "a cluster of this machine's own is kept off its networks by bubblewrap: "
            "apt-get install bubblewrap"
        )


def environment_of(ground: Ground, token: str = "") -> dict[str, str]:
    """What a broker gets: tokens are obligatory, and nothing is reported to anyone.

    Args:
        ground: Where its devices are; a cluster of this machine's own gets a new token.
        token: Another one than Ray would find.
    """
    told = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    told["PYTHONPATH"] = python_path(told.get("PYTHONPATH", ""))
    told["KERNELWRIGHT_HOME"] = str(home().absolute())
    told |= {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
    if token or not ground.address:
        told.pop(_TOKEN_FILE, None)
        told[_TOKEN] = token or secrets.token_hex(32)
    return told


class RayFleet:
    """Devices of a Ray cluster. Nothing is started before `start`.

    Args:
        ground: Where they are; its folder is chosen here.
        on_up: Told when a device is ready, as `Scheduler.up`.
        on_down: Told when one is gone, as `Scheduler.down`.
        on_end: Told when there is no cluster any more, and nobody else can be started.
        token: Another one than Ray would find, if any.
    """

    def __init__(
        self,
        ground: Ground,
        *,
        on_up: Callable[[Up], None],
        on_down: Callable[[str], None],
        on_end: Callable[[Exception], None],
        token: str = "",
    ) -> None:
        self._token = token
        self._ground, self._on_up, self._on_down, self._on_end = ground, on_up, on_down, on_end
        self.seen: Seen | None = None
        self.refused: dict[str, str] = {}
        self._why = ""
        self._calls: dict[int, asyncio.Future[str]] = {}
        self._where: dict[int, str] = {}
        self._number = 0
        self._process: asyncio.subprocess.Process | None = None
        self._serving: asyncio.Task[None] | None = None
        self._looked = asyncio.Event()
        self._up: set[str] = set()

    def start(self) -> None:
        """Start the broker in the background, if there is none.

        Raises:
            EnvironmentLacksError: It cannot be started here.
        """
        if self._serving is None:
            check(self._ground)
            self._serving = asyncio.create_task(self._serve())

    async def looked(self, within_s: float = 60.0) -> Seen:
        """What the cluster holds, as soon as that is known.

        Raises:
            EnvironmentLacksError: There is no cluster.
        """
        self.start()
        assert self._serving is not None
        looking = asyncio.ensure_future(self._looked.wait())
        await asyncio.wait(
            {looking, self._serving}, timeout=within_s, return_when="FIRST_COMPLETED"
        )
        looking.cancel()
        if self.seen is None:
            at = f" at {self._ground.address}" if self._ground.address else ""
            raise EnvironmentLacksError(
                self._why or f"no cluster answered{at} within {within_s:.0f} s"
            )
        return self.seen

    async def run(self, device: str, job: str) -> str:
        """See `Fleet`."""
        self._number += 1
        call = self._number
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._calls[call], self._where[call] = answer, device
        try:
            await self._ask(Run(call=call, device=device, job=job))
            return await answer
        finally:
            self._calls.pop(call, None)
            self._where.pop(call, None)

    def end(self, device: str) -> None:
        """See `Fleet`."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.write(End(device=device).model_dump_json().encode() + b"\n")

    async def aclose(self) -> None:
        """End the broker, and a cluster of this machine's own with it."""
        if self._serving is not None:
            self._serving.cancel()
            await asyncio.gather(self._serving, return_exceptions=True)

    async def _ask(self, asked: Asked) -> None:
        process = self._process
        if process is None or process.stdin is None:
            raise DeviceLostError("the cluster's broker is gone")
        try:
            process.stdin.write(asked.model_dump_json().encode() + b"\n")
            await process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            raise DeviceLostError("the cluster's broker is gone") from None

    async def _serve(self) -> None:
        """Broker after broker, until one says that there can be no cluster."""
        words = ""
        for _ in range(_BROKERS):
            words = await self._one()
            if words:
                break
        self._why = f"there is no cluster: {words or 'its broker ended'}"
        self._on_end(EnvironmentLacksError(self._why))

    async def _one(self) -> str:
        """One broker from its beginning to its end; why there can be no other, or ""."""
        # Names of sockets in it may not be long.
        with tempfile.TemporaryDirectory(
            prefix="kw-ray-", dir="/tmp", ignore_cleanup_errors=True
        ) as folder:
            process = await self._begun(folder)
            self._process = process
            try:
                return await self._follow(process)
            finally:
                self._process = None
                await asyncio.shield(_ended(process))
                self._all_lost()

    async def _begun(self, folder: str) -> asyncio.subprocess.Process:
        threads = os.environ.get("OMP_NUM_THREADS", "")
        ground = self._ground.model_copy(update={"folder": folder, "threads": threads})
        command: Sequence[str] = (sys.executable, "-m", _BROKER, ground.model_dump_json())
        if not ground.address:
            # It is told of our end by its input's, however we end, and takes its cluster along.
            walled = ("--dev-bind", "/", "/", "--unshare-net", "--")
            command = (bubblewrap() or "bwrap", *walled, *command)
        shown = None if os.environ.get(LOG) else asyncio.subprocess.DEVNULL
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=shown,
            env=environment_of(ground, self._token), limit=LONGEST_LINE_BYTES,
            # Ctrl-C is for us, who end it.
            start_new_session=True,
        )  # fmt: skip

    async def _follow(self, process: asyncio.subprocess.Process) -> str:
        assert process.stdout is not None
        async for line in process.stdout:
            said = SAID.validate_json(line)
            if isinstance(said, Failed):
                return said.words
            self._hear(said)
        return ""

    def _hear(self, said: Said) -> None:
        match said:
            case Seen():
                self.seen = said
                self._looked.set()
            case Up():
                self._up.add(said.device)
                self._on_up(said)
            case Down(device=device, words=words):
                self._up.discard(device)
                self.refused[device] = words
                self._on_down(device)
            case Done(call=call, answer=answer):
                if (waiting := self._calls.get(call)) is not None and not waiting.done():
                    waiting.set_result(answer)
            case Lost(call=call, words=words):
                self._lose(call, words)

    def _lose(self, call: int, words: str) -> None:
        if (waiting := self._calls.get(call)) is not None and not waiting.done():
            waiting.set_exception(DeviceLostError(words))

    def _all_lost(self) -> None:
        for device in tuple(self._up):
            self._on_down(device)
        self._up.clear()
        for call in tuple(self._calls):
            self._lose(call, "the cluster's broker ended")


async def _ended(process: asyncio.subprocess.Process) -> None:
    """End a broker: when its input ends it ends the cluster, else it is killed."""
    if process.stdin is not None:
        process.stdin.close()
    if process.returncode is None:
        try:
            await asyncio.wait_for(process.wait(), _ENDING_S)
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
