"""Many people at once, one running search each: is anything lost, mixed up, or late?

`python benchmarks/chat/chat_load.py --people 20` starts a server of its own, lets everybody attach
a module with a name of its own, begin a search and steer it, closes a few pages and opens them
again. Printed and written: how long first answers and steering took, how often the page of
everybody stood still, which events of the archives were not shown, and who saw something of
somebody else's.
"""

import argparse
import asyncio
import contextlib
import json
import re
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from chat_checks import crossed, runs_of, shown
from chat_driver import COMMAND, PASSWORD, ROOT, Server, Visitor, carry_out, until

MODULE = '''\
import torch
from torch import nn


class {name}(nn.Module):
    """Softmax over rows, step by step."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        grown = torch.exp(x - x.max(dim=1, keepdim=True).values)
        return grown / grown.sum(dim=1, keepdim=True)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn({rows}, 512)]


def get_init_inputs() -> list[object]:
    return []
'''


class Guest:
    """One of them, with what was measured."""

    def __init__(self, number: int, url: str, folder: Path) -> None:
        self.number, self.person = number, f"person{number:02d}"
        self.task = f"Softmax{number:02d}of{number * 7919}"
        self.file = folder / f"{self.task.lower()}.py"
        self.file.write_text(MODULE.format(name=self.task, rows=128 + number))
        self.visitor = Visitor(url, self.person)
        self.card_s = 0.0
        self.acks_s: list[float] = []
        self.problem = ""

    async def come(self) -> None:
        """Log in, attach the file, begin the search."""
        await self.visitor.enter()
        await self.visitor.open()
        began = time.monotonic()
        await self.visitor.say("make this faster", self.file)
        await until(lambda: self.visitor.button("^go") is not None, 600, self.visitor.told)
        self.card_s = time.monotonic() - began
        await self.visitor.press("^go")
        await until(lambda: self.visitor.button("pause") is not None, 900, self.visitor.told)

    async def steer(self, words: str) -> None:
        """Say something during the search, and time the answer."""
        before = set(self.visitor.steps)
        began = time.monotonic()
        await self.visitor.say(words)

        def answered() -> bool:
            return any(_is_answer(s) for i, s in self.visitor.steps.items() if i not in before)

        await until(answered, 60, self.visitor.told)
        self.acks_s.append(time.monotonic() - began)

    async def see_the_end(self, ends: float) -> None:
        """Wait until the search has ended, or until it is late."""
        with contextlib.suppress(TimeoutError):
            left = max(0.0, ends - time.monotonic())
            await until(lambda: self.visitor.button("pause") is None, left)

    async def reopen(self) -> None:
        """Close the page, and open the conversation again."""
        thread = self.visitor.thread
        await self.visitor.leave()
        await asyncio.sleep(1)
        self.visitor = Visitor(self.visitor.url, self.person)
        await self.visitor.enter()
        await self.visitor.open(thread)
        await until(lambda: bool(self.visitor.steps), 120)


def _is_answer(step: dict[str, object]) -> bool:
    return step.get("type") == "assistant_message" and not step.get("parentId")


async def everybody(home: Path, people: int, minutes: float) -> dict[str, object]:
    """The whole party."""
    for number in range(people):
        await asyncio.to_thread(_add, home, f"person{number:02d}")
    async with Server(home, "--target", "cpu") as server:
        settled_s = await server.settle()
        guests = [Guest(number, server.url, home) for number in range(people)]
        try:
            await _party(guests, minutes)
            return {"settled_after_s": round(settled_s, 1)} | _figures(home, server, guests)
        finally:
            for guest in guests:
                await guest.visitor.leave()


async def _party(guests: list[Guest], minutes: float) -> None:
    """Everybody comes, steers, sees the end or says stop, and looks at it all once more."""
    await asyncio.gather(*(_guarded(guest, guest.come()) for guest in guests))
    ends = time.monotonic() + minutes * 60
    for words in ("focus on vectorised loads", "stop trying shared memory", "show my steering"):
        await asyncio.gather(*(_guarded(guest, guest.steer(words)) for guest in guests))
        await asyncio.sleep(2)
    for guest in guests[::3]:
        await _guarded(guest, guest.reopen())
    await asyncio.gather(*(guest.see_the_end(ends) for guest in guests))
    for guest in guests:
        await _guarded(guest, guest.steer("stop"))
    await asyncio.sleep(10)
    for guest in guests:
        await _guarded(guest, guest.reopen())
    await asyncio.sleep(5)


async def _guarded(guest: Guest, what: object) -> None:
    """One guest's trouble is noted and spoils nobody else's evening."""
    try:
        await what  # type: ignore[misc]
    except Exception as error:
        guest.problem = guest.problem or f"{type(error).__name__}: {str(error)[:2000]}"


def _add(home: Path, person: str) -> None:
    command = [*COMMAND, "user", "add", person, "--run-dir", str(home)]
    subprocess.run(command, input=PASSWORD + "\n", text=True, check=True, cwd=ROOT)


def _figures(home: Path, server: Server, guests: list[Guest]) -> dict[str, object]:
    tasks = tuple(guest.task for guest in guests)
    ids = {guest.person: [run.name for run in runs_of(home, guest.person)] for guest in guests}
    looked = [shown(guest.visitor, run) for guest in guests for run in runs_of(home, guest.person)]
    every = tuple(run for runs in ids.values() for run in runs)
    mixed = {g.person: crossed(g.visitor, g.task, tasks) for g in guests}
    for guest in guests:
        others = tuple(run for run in every if run not in ids[guest.person])
        mixed[guest.person] += crossed(guest.visitor, "", others)
    stalls = [int(ms) for ms in re.findall(r"stood still for (\d+) ms", server.said())]
    collected = re.findall(r"full collection took (\d+) ms", server.said())
    own = [int(ms) for ms in re.findall(r"ms, (\d+) of them ours", server.said())]
    acks = [ack for guest in guests for ack in guest.acks_s]
    return {
        "people": len(guests),
        "first_answer_s": _spread([g.card_s for g in guests]),
        "steering_acknowledged_s": _spread(acks),
        "stalls_over_200_ms": len(stalls),
        "longest_stall_ms": max(stalls, default=0),
        "longest_stall_of_ours_ms": max(own, default=0),
        "stalls_of_collections": len(re.findall(r"took \d+ ms of it", server.said())),
        "longest_collection_ms": max(map(int, collected), default=None),
        "runs": len(looked),
        "events": sum(one.events for one in looked),
        "lines": sum(one.lines for one in looked),
        "lines_not_shown": sum(len(one.missing) for one in looked),
        "saw_somebody_elses": {who: names for who, names in mixed.items() if names},
        "problems": {g.person: g.problem for g in guests if g.problem},
    }


def _spread(values: list[float]) -> dict[str, float]:
    if not values:
        return {}
    return {
        "median": round(statistics.median(values), 3),
        "longest": round(max(values), 3),
    }


def main() -> None:
    """Run it and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=20)
    parser.add_argument(
        "--minutes", type=float, default=3.0, help="how long searches go on once all have begun"
    )
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kernelwright-load-") as folder:
        figures = carry_out(everybody(Path(folder), chosen.people, chosen.minutes))
    print(json.dumps(figures, indent=1))
    if chosen.out:
        chosen.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
