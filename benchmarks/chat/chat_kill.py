"""Kills the chat's server in the middle of searches, again and again: does everything come back?

`python benchmarks/chat/chat_kill.py --times 20` starts a server, begins a search, kills the server
with SIGKILL at a moment drawn by chance, starts it again, opens the conversation and looks: is
every message still there, is the search there and going on or ended, is every event of its archive
shown?
"""

import argparse
import asyncio
import json
import random
import tempfile
import time
from pathlib import Path

from chat_checks import runs_of, shown
from chat_driver import Server, Visitor, alive, carry_out, descendants, until
from chat_load import MODULE

SAID = "make this faster please"


async def deaths(home: Path, times: int, seed: int) -> dict[str, object]:
    """Kill, start, look; one search follows another when it has ended."""
    chance = random.Random(seed)
    faults: list[str] = []
    back_s: list[float] = []
    thread, begun = "", 0
    file = home / "softmax_killed.py"
    await asyncio.to_thread(file.write_text, MODULE.format(name="SoftmaxKilled", rows=256))
    async with Server(home, "--target", "cpu") as server:
        for number in range(times):
            visitor = Visitor(server.url)
            await visitor.enter()
            await visitor.open(thread)
            if visitor.thread:
                await until(lambda v=visitor: bool(v.steps), 120)
            if not thread or visitor.button("pause") is None:
                thread, begun = await _begin(visitor, file), begun + 1
            await asyncio.sleep(chance.uniform(0.2, 12))
            said = {i: s for i, s in visitor.steps.items() if s.get("type") == "user_message"}
            left = descendants(server.pid)
            await server.kill()
            await visitor.leave()
            started = time.monotonic()
            await server.start()
            if stayed := alive(left):
                faults.append(f"{number}: {len(stayed)} processes of the dead server go on")
            faults += [f"{number}: {fault}" for fault in await _look(server, thread, said)]
            back_s.append(round(time.monotonic() - started, 2))
    return {
        "killed": times,
        "searches": begun,
        "back_after_s": {"median": sorted(back_s)[len(back_s) // 2], "longest": max(back_s)},
        "faults": faults,
    }


async def _begin(visitor: Visitor, file: Path) -> str:
    await visitor.say(SAID, file)
    await visitor.press("^go", 300)
    await until(lambda: visitor.button("pause") is not None, 300, visitor.told)
    return visitor.thread


async def _look(server: Server, thread: str, said: dict[str, dict[str, object]]) -> list[str]:
    """What is wrong after a new start."""
    visitor = Visitor(server.url)
    try:
        await visitor.enter()
        await visitor.open(thread)
        await until(lambda: bool(visitor.steps), 120)
        # What was not told before the end is told when the conversation is opened again.
        await asyncio.sleep(6)
        faults = [f"message lost: {s['output']}" for i, s in said.items() if i not in visitor.steps]
        runs = runs_of(server.home, "local")
        if not runs:
            faults.append("the run is gone")
        elif visitor.button("pause|continue|export") is None:
            faults.append(f"the search has no buttons any more: {visitor.told()[-300:]}")
        for run in runs[:1]:
            faults += [f"not shown: {key}" for key in shown(visitor, run).missing]
        return faults
    except TimeoutError as error:
        return [f"the conversation did not come back: {error}"]
    finally:
        await visitor.leave()


def main() -> None:
    """Run it and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kernelwright-kill-") as folder:
        figures = carry_out(deaths(Path(folder), chosen.times, chosen.seed))
    print(json.dumps(figures, indent=1))
    if chosen.out:
        chosen.out.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
