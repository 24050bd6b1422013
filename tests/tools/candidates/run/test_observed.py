"""How a plan launched its kernels, as it really ran."""

import torch

from kernelwright.tools.candidates.run import PlanRunner
from kernelwright.tools.languages import new_candidate, parse_kernel
from kernelwright.tools.types import LaunchShape, Setting

KERNEL = """
// tune: THREADS in 256, 128
extern "C" __global__ void first(const float* x, float* y) {}
extern "C" __global__ void rest(float* y) {}
"""
PLAN = """
def forward(x):
    rows, columns = x.shape
    y = empty_like(x)
    tile = min(columns, 1024)
    launch("first", grid=(rows, 2), block=(THREADS // 2, 2), shared=4 * tile + 16,
           cluster=(1, 2), args=(x, y))
    for step in range(3):
        launch("rest", grid=ceil_div(rows, THREADS), block=THREADS, args=(y,))
    return y
"""


class Device:
    """Takes launches without a GPU."""

    def __init__(self):
        self.taken = 0

    def __call__(self, arguments, grid=1, block=1, shared=0, cluster=1):
        self.taken += 1


def runner(device):
    candidate = new_candidate("cuda", KERNEL, PLAN, settings=(Setting(name="THREADS", value=128),))
    launchers = {"first": device, "rest": device}
    return PlanRunner(candidate, parse_kernel(KERNEL, "cuda"), lambda *_: launchers, "cpu")


def test_every_configuration_is_noted_with_the_values_that_the_plan_worked_out():
    shapes = runner(Device()).launches((torch.zeros(300, 4096),), {})
    assert shapes == (
        LaunchShape(
            kernel="first", grid=(300, 2, 1), block=(64, 2, 1), cluster=(1, 2, 1),
            shared_bytes=4112,
        ),
        LaunchShape(kernel="rest", grid=(3, 1, 1), block=(128, 1, 1), launches=3),
    )  # fmt: skip
    assert (shapes[0].blocks, shapes[0].threads) == (600, 128)


def test_launches_are_really_made_while_they_are_noted_and_nothing_is_noted_after():
    device = Device()
    made = runner(device)
    once = made.launches((torch.zeros(300, 4096),), {})
    assert device.taken == 4
    made((torch.zeros(300, 4096),), {})
    assert device.taken == 8
    assert made.launches((torch.zeros(300, 4096),), {}) == once
