"""Clusters at the command line: which one a suite is run on, what one holds, what works there."""

import asyncio
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.tools.types import EnvironmentLacksError
from kernelwright.ui.complaints import LACKING, Complaint

if TYPE_CHECKING:
    from kernelwright.graphs.suite import Ground as Thinking
    from kernelwright.graphs.suite import Outcome, Terms
    from kernelwright.graphs.suite.runner import Begun
    from kernelwright.profiles.load import SearchProfile
    from kernelwright.tools.evaluate.executors.cluster.messages import Ground, Seen
    from kernelwright.ui.doctor import Row

# A device greets within seconds; a first start compiles Python's bytecode and takes longer.
_GREETING_S = 60.0
_LOOK_S = 0.1
_ANY = "gpu"


def chosen_cluster(
    executor: str, gpu: str | None, cluster: str | None, target: str
) -> "Ground | None":
    """Where a suite is run, None for this machine without a cluster; kinds of GPUs by commas.

    Raises:
        Complaint: When the options contradict each other.
    """
    from kernelwright.tools.evaluate.executors.cluster import kind_of
    from kernelwright.tools.evaluate.executors.cluster.messages import Ground
    from kernelwright.ui.cli.work import wished

    if executor not in ("local", "ray"):
        raise Complaint(f"a suite is run by the executor local or ray, not {executor!r}")
    named = [name.strip() for name in (gpu or "").split(",") if name.strip()]
    choices = [
        wished(executor, None, name, target, cluster) for name in dict.fromkeys(named) or (None,)
    ]
    if executor == "local":
        return None
    kinds = tuple(kind_of(choice, target) for choice in choices)
    return Ground(address=cluster or "", kinds=kinds)


async def spread_over_cluster(
    files: Sequence[Path],
    done: Sequence[tuple[str, str]],
    profile: "SearchProfile | None",
    terms: "Terms",
    thinking: "Thinking",
    ground: "Ground",
    begun: "Begun",
) -> "AsyncIterator[Outcome]":
    """Run a suite on a cluster, each file on every kind of device.

    Args:
        files: All files of the suite.
        done: Files by name, each with the kind of device on which it is done already.
        profile: How much each search may spend.
        terms: Stand in every outcome.
        thinking: Where the searches think.
        ground: The cluster.
        begun: Told when a file's turn comes.
    """
    from kernelwright.graphs.suite.on_cluster import run_on_cluster
    from kernelwright.tools.evaluate.executors.cluster.executor import Cluster

    left = [(path, kind) for path in files for kind in ground.kinds]
    left = [(path, kind) for path, kind in left if (path.name, kind) not in done]
    if not left:
        return
    with tempfile.TemporaryDirectory(prefix="kernelwright-", ignore_cleanup_errors=True) as scratch:
        cluster = Cluster(ground, Path(scratch))
        outcomes = run_on_cluster(left, profile, terms, thinking, cluster, begun=begun)
        try:
            async with aclosing(outcomes):  # type: ignore[type-var]
                async for outcome in outcomes:
                    yield outcome
        finally:
            await cluster.aclose()


def status(address: str | None) -> None:
    """Say what a cluster holds: its machines, and devices by their kind."""
    seen = asyncio.run(_seen(address or ""))
    for line in told(seen):
        sys.stdout.write(f"{line}\n")


def told(seen: "Seen") -> list[str]:
    """A cluster in lines."""
    kinds = [f"{number} {kind}" for kind, number in seen.kinds.items() if kind != _ANY]
    return [*seen.nodes, f"devices: {', '.join(kinds) or 'none'}"]


async def _seen(address: str) -> "Seen":
    from kernelwright.tools.evaluate.executors.cluster.executor import Cluster
    from kernelwright.tools.evaluate.executors.cluster.messages import Ground

    with tempfile.TemporaryDirectory(prefix="kernelwright-") as scratch:
        cluster = Cluster(Ground(address=address), Path(scratch))
        try:
            return await cluster.fleet.looked()
        finally:
            await cluster.aclose()


def doctor(address: str | None) -> int:
    """Print what works on a cluster, device by device; 0 when all of them take candidates."""
    from kernelwright.ui.doctor import print_rows

    rows = asyncio.run(examine(address or ""))
    print_rows(rows)
    return 0 if all(row.outcome == "works" for row in rows) else LACKING


async def examine(address: str) -> "tuple[Row, ...]":
    """Try a cluster: can it be joined, by whom, and does every device take candidates."""
    from kernelwright.tools.evaluate.executors.cluster.messages import Ground
    from kernelwright.tools.evaluate.executors.cluster.ray_fleet import check
    from kernelwright.ui.doctor import Row

    ground = Ground(address=address, every=True)
    try:
        check(ground)
        devices = await _greeted(ground)
    except EnvironmentLacksError as error:
        return (Row(subject="cluster", outcome="missing", words=str(error)),)
    return (*devices, await _token(address)) if address else devices


async def _greeted(ground: "Ground") -> "tuple[Row, ...]":
    """The cluster, and each of its devices as it introduced itself."""
    from kernelwright.tools.evaluate.executors.cluster.executor import Cluster
    from kernelwright.ui.doctor import Row

    with tempfile.TemporaryDirectory(prefix="kernelwright-") as scratch:
        cluster = Cluster(ground, Path(scratch))
        try:
            seen = await cluster.fleet.looked()
            wanted = sum(number for kind, number in seen.kinds.items() if kind != _ANY)
            with suppress(TimeoutError):
                async with asyncio.timeout(_GREETING_S):
                    await _until(
                        lambda: len(cluster.scheduler.devices) + len(cluster.refusals), wanted
                    )
            up, refused = dict(cluster.scheduler.devices), cluster.refusals
        finally:
            await cluster.aclose()
    rows = [Row(subject="cluster", outcome="works", words="; ".join(told(seen)))]
    for name, device in sorted(up.items()):
        words = f"{device.name} on {device.greeting.node}, {device.greeting.software}"
        rows.append(Row(subject=name, outcome="works", words=words))
    for name, words in sorted(refused.items()):
        rows.append(Row(subject=name, outcome="missing", words=words))
    if silent := wanted - len(up) - len(refused):
        words = f"{silent} of {wanted} did not answer within {_GREETING_S:.0f} s"
        rows.append(Row(subject="devices", outcome="missing", words=words))
    return tuple(rows)


async def _until(counted: Callable[[], int], wanted: int) -> None:
    while counted() < wanted:  # noqa: ASYNC110 - the fleet sets no event
        await asyncio.sleep(_LOOK_S)


async def _token(address: str) -> "Row":
    """Whether the cluster turns away who has another token."""
    from kernelwright.tools.evaluate.executors.cluster.executor import Cluster
    from kernelwright.tools.evaluate.executors.cluster.messages import Ground
    from kernelwright.ui.doctor import Row

    with tempfile.TemporaryDirectory(prefix="kernelwright-") as scratch:
        stranger = Cluster(Ground(address=address), Path(scratch), token=secrets.token_hex(32))
        try:
            await stranger.fleet.looked()
        except EnvironmentLacksError:
            return Row(subject="token", outcome="works", words="another token is turned away")
        finally:
            await stranger.aclose()
    words = f"{address} takes in whoever asks: start it with RAY_AUTH_MODE=token"
    return Row(subject="token", outcome="missing", words=words)
