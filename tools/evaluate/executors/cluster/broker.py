"""The one process that speaks Ray: joins or starts a cluster, and passes jobs to its devices.

It is started by `ray_fleet`, reads `Asked` and writes `Said`, a line each, and ends when its input
does. So nothing of Ray (threads, settings, tokens, crashes) enters the program that searches, and a
cluster of this machine's own can live in a network of its own, which no other process reaches.

Devices are placed by Ray's own resources: a GPU by `GPU` and `accelerator_type:H200`, which every
node with one has by itself, and processors by `kernelwright_cpu`. There is an actor for each;
machines that come later get theirs, and those that are lost cost what they were doing.
"""

import asyncio
import contextlib
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Coroutine
from itertools import count
from typing import TYPE_CHECKING, TextIO, cast

import ray

from kernelwright.tools.evaluate.executors.cluster.actor import DeviceActor
from kernelwright.tools.evaluate.executors.cluster.messages import (
    ASKED,
    LONGEST_LINE_BYTES,
    Done,
    Down,
    End,
    Failed,
    Greeting,
    Ground,
    Lost,
    Said,
    Seen,
    Up,
)

if TYPE_CHECKING:
    from ray.actor import ActorHandle

CPU, ANY_GPU, CPUS = "cpu", "gpu", "kernelwright_cpu"
_ACCELERATOR = "accelerator_type:"
_STORE_BYTES = 100 * 2**20
_LOOK_S = 2.0
_AGAIN_S = 0.5
_REFUSED_S = 10.0


def kinds_of(nodes: list[dict[str, object]]) -> dict[str, int]:
    """How many devices of each kind living nodes have, by what Ray says of them."""
    found: dict[str, int] = {}
    for node in nodes:
        resources = node.get("Resources")
        if not node.get("Alive") or not isinstance(resources, dict):
            continue
        gpus = int(resources.get("GPU", 0))
        names = [name for name in resources if name.startswith(_ACCELERATOR)]
        here = {name.removeprefix(_ACCELERATOR): gpus for name in names}
        here |= {ANY_GPU: gpus, CPU: int(resources.get(CPUS, 0))}
        for kind, number in here.items():
            found[kind] = found.get(kind, 0) + number
    return {kind: number for kind, number in found.items() if number}


def node_words(node: dict[str, object]) -> str:
    """One machine in words."""
    resources = node.get("Resources")
    held = resources if isinstance(resources, dict) else {}
    state = "" if node.get("Alive") else ", lost"
    kinds = kinds_of([{**node, "Alive": True}]).items()
    devices = ", ".join(f"{number} {kind}" for kind, number in kinds if kind != ANY_GPU)
    return (
        f"{node.get('NodeManagerHostname')} ({node.get('NodeManagerAddress')}{state}): "
        f"{devices or 'no device'}, {held.get('CPU', 0):g} processors"
    )


class Place:
    """The place of one device: an actor, and whoever comes after it when it is lost."""

    def __init__(self, name: str, kind: str, threads: str, say: Callable[[Said], None]) -> None:
        # The kind as it was asked for, which Ray may spell otherwise.
        self.name, self.kind, self.resource = name, kind, kind
        self._threads, self._say = threads, say
        self._actor: ActorHandle[DeviceActor] | None = None
        self._lost = asyncio.Event()

    async def attend(self) -> None:
        """Keep a device here, for good."""
        while True:
            try:
                await self._present()
            except ray.exceptions.ActorUnavailableError:
                pass  # it is being started again
            except (ray.exceptions.RayActorError, ray.exceptions.RayTaskError) as error:
                # It cannot be started there: another place may have come meanwhile.
                self._say(Down(device=self.name, words=_last(error)))
                self._drop()
                await asyncio.sleep(_REFUSED_S)
            await asyncio.sleep(_AGAIN_S)

    async def run(self, call: int, job: str) -> None:
        """Have a job done, and say what came of it."""
        try:
            assert self._actor is not None
            answer = await cast(Awaitable[str], self._actor.do.remote(job))
        except Exception as error:
            self._say(Lost(call=call, words=_last(error)))
            self._lost.set()
        else:
            self._say(Done(call=call, answer=answer))

    def end(self) -> None:
        """End what runs here; Ray starts another process for it."""
        if self._actor is not None:
            ray.kill(self._actor, no_restart=False)

    async def _present(self) -> None:
        """From a greeting to a loss."""
        self._lost.clear()
        self._actor = self._actor or self._made()
        text = await cast(Awaitable[str], self._actor.greet.remote())
        greeting = Greeting.model_validate_json(text)
        self._say(Up(device=self.name, kind=self.kind, greeting=greeting))
        await self._lost.wait()
        self._say(Down(device=self.name, words="lost"))

    def _made(self) -> "ActorHandle[DeviceActor]":
        resources: dict[str, float] = {}
        if self.kind == CPU:
            resources[CPUS] = 1
        elif self.kind != ANY_GPU:
            resources[f"{_ACCELERATOR}{self.resource}"] = 0.001
        target = "cpu" if self.kind == CPU else "cuda"
        actor = ray.remote(
            num_cpus=0,
            num_gpus=0 if self.kind == CPU else 1,
            resources=resources,
            max_restarts=-1,
            max_task_retries=0,
        )(DeviceActor)
        return cast("ActorHandle[DeviceActor]", actor.remote(target, self._threads))

    def _drop(self) -> None:
        if self._actor is not None:
            with contextlib.suppress(Exception):
                ray.kill(self._actor)
        self._actor = None


class Broker:
    """Keeps a place for every device that is wanted, and passes calls on."""

    def __init__(self, ground: Ground, say: Callable[[Said], None]) -> None:
        self._ground, self._say = ground, say
        self._places: dict[str, Place] = {}
        self._numbers = count()
        self._tasks: set[asyncio.Task[None]] = set()
        self._seen: Seen | None = None

    async def look(self) -> None:
        """Tell what there is, and give places to devices that have none; again and again."""
        while True:
            nodes = await asyncio.to_thread(ray.nodes)
            found = kinds_of(nodes)
            seen = Seen(kinds=found, nodes=tuple(map(node_words, nodes)))
            if seen != self._seen:
                self._say(seen)
                self._seen = seen
            every = [kind for kind in found if kind != ANY_GPU] if self._ground.every else []
            for kind in (*self._ground.kinds, *every):
                spelt = next((name for name in found if name.lower() == kind.lower()), kind)
                self._grow(kind, spelt, found.get(spelt, 0))
            await asyncio.sleep(_LOOK_S)

    def heed(self, line: bytes) -> None:
        """Do what is asked."""
        asked = ASKED.validate_json(line)
        place = self._places[asked.device]
        if isinstance(asked, End):
            place.end()
        else:
            self._begin(place.run(asked.call, asked.job))

    def _grow(self, kind: str, resource: str, wanted: int) -> None:
        there = sum(place.kind == kind for place in self._places.values())
        for _ in range(wanted - there):
            name = f"{kind}-{next(self._numbers)}"
            place = self._places[name] = Place(name, kind, self._ground.threads, self._say)
            place.resource = resource
            self._begin(place.attend())

    def _begin(self, doing: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(doing)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def begin_cluster(ground: Ground) -> None:
    """Join the cluster at an address, or start one of this machine's own.

    Raises:
        RuntimeError: This machine's network could reach a cluster of its own.
        Exception: Ray's own, where it cannot be done.
    """
    if ground.address:
        ray.init(address=ground.address, log_to_driver=False, configure_logging=False)
        return
    if strange := networks() - {"lo"}:
        raise RuntimeError(f"it is not in a network of its own, but sees {min(strange)}")
    ray.init(
        num_cpus=os.cpu_count(),
        resources={CPUS: ground.cpus} if CPU in ground.kinds or not ground.kinds else None,
        include_dashboard=False,
        object_store_memory=_STORE_BYTES,
        log_to_driver=False,
        configure_logging=False,
        _temp_dir=ground.folder,
    )


def networks() -> set[str]:
    """The names of all network devices that this process can use."""
    with open("/proc/net/dev", encoding="ascii") as table:
        return {line.partition(":")[0].strip() for line in table if ":" in line}


async def serve(ground: Ground, lines: TextIO) -> None:
    """Do what is asked until nobody asks any more."""

    def say(said: Said) -> None:
        lines.write(said.model_dump_json() + "\n")
        lines.flush()

    try:
        begin_cluster(ground)
    except Exception as error:
        say(Failed(words=_last(error)))
        return
    broker = Broker(ground, say)
    looking = asyncio.create_task(broker.look())
    reader = asyncio.StreamReader(limit=LONGEST_LINE_BYTES)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        broker.heed(line)
    looking.cancel()


def _last(error: BaseException) -> str:
    """What went wrong, in its last line, which says most."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"[:500]


def main() -> None:
    """The process; the ground is its argument."""
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as lines:
        os.dup2(2, 1)
        ground = Ground.model_validate_json(sys.argv[1])
        try:
            asyncio.run(serve(ground, lines))
        except BrokenPipeError:
            sys.stderr.close()
        finally:
            ray.shutdown()
            if ground.folder:
                shutil.rmtree(ground.folder, ignore_errors=True)


if __name__ == "__main__":
    main()
