"""The audit in a chat: what PyTorch really runs, and badges with their reasons."""

from types import ModuleType

from kernelwright.agents.assistant.types import AuditTask, LoadTask
from kernelwright.graphs.conversation import ChatController, SearchManager, Settings
from kernelwright.graphs.conversation.loading import rows_of
from kernelwright.tools.evaluate.executors.base.executor import Capabilities
from kernelwright.tools.evaluate.messages import DispatchSeen
from kernelwright.tools.types import Badge, Dispatched, Doubt, Task

SOURCE = "import torch\n\nclass Model(torch.nn.Module):\n    pass\n"
KERNEL = Dispatched(name="softmax_warp_forward", calls=2, time_ms=0.25)


async def test_kernels_that_pytorch_ran_are_listed_not_what_was_traced(
    toy: ModuleType, search_manager: SearchManager
) -> None:
    class Watching(toy.ToyExecutor):  # type: ignore[misc, name-defined]
        capabilities = Capabilities(watches=True)

        async def dispatch(self, task: Task) -> DispatchSeen:
            return DispatchSeen(kernels=(KERNEL,))

    told = SearchManager(
        search_manager.home,
        target="cpu",
        make_executor=lambda target, scratch, lease: Watching(),
        make_agents=lambda around: toy.toy_agents(toy.LOOPS),
    )
    controller = ChatController(
        search_manager.home, told, "bea", "one", Settings(target="cpu", search="quick")
    )
    try:
        await controller.do(LoadTask(source=SOURCE, name="toy.py"))
        said = str((await controller.do(AuditTask())).pieces)
    finally:
        await told.aclose()
    assert "250 µs in softmax_warp_forward, 2 times" in said


async def test_a_device_that_is_elsewhere_is_said(controller: ChatController) -> None:
    await controller.do(LoadTask(source=SOURCE, name="toy.py"))
    assert "not seen: this device is somewhere else" in str(
        (await controller.do(AuditTask())).pieces
    )


def test_badges_stand_by_name_and_once(toy: ModuleType) -> None:
    badge = Badge(name=Doubt.NULL_PASSES, reason="zeros are right")
    update = {"badges": (badge,), "warnings": (badge.words, "another remark")}
    rows = rows_of(toy.TASK.model_copy(update=update), None, DispatchSeen())
    assert ("null passes", "zeros are right") in rows
    assert ("warning", "another remark") in rows
    assert sum("zeros are right" in words for _, words in rows) == 1
