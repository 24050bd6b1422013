"""Foreign code in guests on a GPU: device memory is shared by descriptor, three clocks agree."""

from pathlib import Path

import pytest

from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor
from kernelwright.tools.evaluate.messages import Foreign
from kernelwright.tools.evaluate.verify.changing_order import ORDER_CHANGED
from kernelwright.tools.types import Task, TracePolicy, Verdict

pytestmark = pytest.mark.gpu

TASK = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        return torch.nn.functional.silu(x * self.weight)

def get_inputs():
    return [torch.randn(1024, 2048)]

def get_init_inputs():
    return [2048]
"""

HEAD = """
import torch, triton
import triton.language as tl
from torch import nn

@triton.jit
def fused(x, w, y, n, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    v = tl.load(x + at, mask=inside) * tl.load(w + at % columns, mask=inside)
    tl.store(y + at, v / (1 + tl.exp(-v)), mask=inside)

class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(columns) + 0.5)
        self.side = torch.cuda.Stream()
"""

HONEST = f"""{HEAD}
    def forward(self, x):
        y = torch.empty_like(x)
        grid = (triton.cdiv(x.numel(), 1024),)
        fused[grid](x, self.weight, y, x.numel(), x.shape[1], BLOCK=1024)
        return y
"""

SIDE_STREAM = f"""{HEAD}
    def forward(self, x):
        y = torch.empty_like(x)
        with torch.cuda.stream(self.side):
            # A race that the side stream could win would end in a right answer.
            torch.cuda._sleep(200_000_000)
            y.copy_(torch.nn.functional.silu(x * self.weight))
        return y
"""


CONVOLUTION = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.ConvTranspose2d(8, 8, 3)

    def forward(self, x):
        return torch.relu(self.conv(x))

def get_inputs():
    return [torch.randn(4, 8, 64, 64)]

def get_init_inputs():
    return []
"""

# Other bits in every second call, as a library's that adds up in changing order.
RESTLESS = CONVOLUTION.replace("class Model", "class ModelNew").replace(
    "        return torch.relu(self.conv(x))",
    """        y = torch.relu(self.conv(x))
        self.calls = 1 - getattr(self, "calls", 0)
        return torch.where(y > 0, torch.nextafter(y, 2 * y), y) if self.calls and ELSE else y""",
)


async def judged(folder: Path, source: str, *, timed: bool, task_source: str = TASK):
    (folder / "task.py").write_text(task_source)
    executor = LocalExecutor.create("cuda", folder / "scratch")
    try:
        task = await executor.read(folder / "task.py", TracePolicy())
        assert isinstance(task, Task)
        return await executor.check_foreign(task, Foreign(name="it", source=source), timed=timed)
    finally:
        await executor.aclose()


async def test_a_triton_kernel_is_accepted_and_its_clocks_agree(tmp_path):
    found = await judged(tmp_path, HONEST, timed=True)
    assert found.verdict is Verdict.CORRECT, found.verification.reason
    assert found.verification.method.startswith("own kernels")
    assert found.clocks is not None
    assert found.clocks.work_ms <= 1.3 * found.clocks.wall_ms + 0.1
    assert {item.baseline for item in found.comparisons} >= {"eager", "graph"}


async def test_a_side_stream_is_seen_by_what_is_not_there(tmp_path):
    found = await judged(tmp_path, SIDE_STREAM, timed=False)
    assert found.verdict is Verdict.CHEATING, found.verification.reason
    assert "a stream of its own" in found.verification.reason


@pytest.mark.parametrize(
    ("condition", "verdict"),
    [
        ("not torch.backends.cudnn.deterministic", Verdict.CORRECT),
        ("True", Verdict.NONDETERMINISTIC),
    ],
)
async def test_a_library_that_adds_in_changing_order_is_no_race_and_a_race_is(
    tmp_path, condition, verdict
):
    source = RESTLESS.replace("ELSE", condition)
    found = await judged(tmp_path, source, timed=False, task_source=CONVOLUTION)
    assert found.verdict is verdict, found.verification.reason
    excused = verdict is Verdict.CORRECT
    assert (ORDER_CHANGED in found.verification.not_verified) is excused
