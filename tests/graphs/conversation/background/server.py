"""A server in a process of its own, to be killed: two people with a running search each."""

import asyncio
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from kernelwright.agents.assistant.types import LoadTask, StartSearch
from kernelwright.graphs.conversation import ChatController, SearchManager

TOY = Path(__file__).parents[2] / "toy.py"


async def main(home: Path) -> None:
    spec = spec_from_file_location("toy_search", TOY)
    assert spec is not None
    assert spec.loader is not None
    toy = module_from_spec(spec)
    sys.modules["toy_search"] = toy
    spec.loader.exec_module(toy)
    search_manager = SearchManager(
        home,
        target="cpu",
        make_executor=lambda target, scratch, lease: toy.ToyExecutor(pause_s=0.1),
        make_agents=lambda around: toy.toy_agents(toy.LOOPS),
    )
    for person in ("ann", "bob"):
        controller = ChatController(home, search_manager, person, "one")
        await controller.do(LoadTask(source="x = 1", name="toy.py"))
        await controller.do(StartSearch(rounds=3, seconds=600))
    sys.stdout.write("two searches run\n")
    sys.stdout.flush()
    await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
