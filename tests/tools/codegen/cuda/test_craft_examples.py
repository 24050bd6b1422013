"""The kernels that coders are given as examples multiply what they say, run by the emulator."""

from __future__ import annotations

import ctypes
import re
from types import SimpleNamespace

import pytest
import torch

from kernelwright.agents.prompting.templates import craft
from kernelwright.tools.codegen.ir import Emitted

EXAMPLE = re.compile(r"```cuda\n(.*?)```\n```python\n(.*?)```", re.DOTALL)
# As small as both examples' tiles and rings can be told wrong.
ROWS, COLUMNS, DEPTH, STAGES = 128, 256, 384, 3


@pytest.mark.parametrize(
    "number",
    [pytest.param(0, id="warps", marks=pytest.mark.exhaustive), pytest.param(1, id="warpgroups")],
)
def test_an_example_is_right(toolbox: SimpleNamespace, number: int) -> None:
    kernel, plan = EXAMPLE.findall(craft("cuda", "sm_90a"))[number]
    small = kernel.replace(
        "M = 4096, N = 4096, K = 1024", f"M = {ROWS}, N = {COLUMNS}, K = {DEPTH}"
    )
    assert small != kernel
    emitted = Emitted(source=small.replace("const __grid_constant__ ", ""), plan=())
    settings = {"STAGES": STAGES}
    playable = SimpleNamespace(emitted=emitted, settings=settings, library=[])
    toolbox.compile_emulated([playable])
    torch.manual_seed(3)
    x, weight = (torch.randn(side, DEPTH).half() for side in (ROWS, COLUMNS))
    play = toolbox.Emulated(ctypes.CDLL(str(playable.library[0])), {}, settings)
    names = {**play.names(), "weights": {"weight": weight}}
    exec(plan, names)
    found = names["forward"](x)
    wanted = (x.double() @ weight.double().T).half()
    torch.testing.assert_close(found, wanted, rtol=2e-3, atol=2e-2)
