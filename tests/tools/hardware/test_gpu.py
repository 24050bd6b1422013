"""On a machine of several GPUs, what is asked about a GPU is asked about the one that is used."""

import sys
import uuid
from types import ModuleType, SimpleNamespace

import pytest

from kernelwright.tools.evaluate.sandbox.device_queue import company
from kernelwright.tools.hardware.detect import detect_gpu, visible_gpu

FIRST, SECOND = uuid.UUID(int=1), uuid.UUID(int=2)


class Machine:
    """NVML's view of two GPUs, and a driver that sees one of them."""

    def __init__(self, used: uuid.UUID) -> None:
        self.used, self.bindings = used, SimpleNamespace()
        self.running = {f"GPU-{FIRST}": (11, 12, 13), f"GPU-{SECOND}": (21,)}

    def nvml(self) -> ModuleType:
        module = ModuleType("pynvml")
        module.NVMLError = RuntimeError
        module.nvmlInit = module.nvmlShutdown = lambda: None
        module.nvmlDeviceGetCount = lambda: len(self.running)
        module.nvmlDeviceGetHandleByIndex = lambda index: [*self.running][index]
        module.nvmlDeviceGetHandleByUUID = self.by_uuid
        module.nvmlDeviceGetComputeRunningProcesses = lambda handle: [
            SimpleNamespace(pid=pid) for pid in self.running[handle]
        ]
        return module

    def by_uuid(self, name: str) -> str:
        if name not in self.running:
            raise RuntimeError("not found")
        return name

    def driver(self) -> SimpleNamespace:
        attributes = {
            "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR": 9,
            "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR": 0,
            "CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT": 132,
        }
        return SimpleNamespace(
            CUresult=SimpleNamespace(CUDA_SUCCESS=0),
            CUdevice_attribute=Names(),
            cuInit=lambda flags: (0,),
            cuDeviceGet=lambda index: (0, index),
            cuDeviceGetUuid=lambda device: (0, SimpleNamespace(bytes=self.used.bytes)),
            cuDeviceGetName=lambda length, device: (0, b"NVIDIA H200".ljust(length, b"\0")),
            cuDeviceGetAttribute=lambda name, device: (0, attributes.get(name, 1024)),
            cuDeviceTotalMem=lambda device: (0, 64 * 2**30),
        )


class Names:
    """An enumeration whose members are their names."""

    def __getattr__(self, name: str) -> str:
        return name


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The driver sees the second GPU alone, as CUDA_VISIBLE_DEVICES=1 has it."""
    made = Machine(SECOND)
    made.bindings = made.driver()
    monkeypatch.setitem(sys.modules, "pynvml", made.nvml())
    package = pytest.importorskip("cuda.bindings")
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", made.bindings)
    monkeypatch.setattr(package, "driver", made.bindings, raising=False)
    return made


def test_the_gpu_that_is_used_is_the_one_that_is_looked_at(machine):
    assert visible_gpu()[1] == f"GPU-{SECOND}"
    assert company(()) == 0  # 21 may be a worker of ours; the three of the other GPU do not count
    machine.used = FIRST
    assert visible_gpu()[1] == f"GPU-{FIRST}"
    assert company(()) == 2


def test_a_slice_of_a_gpu_is_found_by_its_own_name(machine):
    machine.running = {f"GPU-{FIRST}": (), f"MIG-{SECOND}": ()}
    assert visible_gpu()[1] == f"MIG-{SECOND}"


def test_a_driver_that_sees_no_gpu_is_an_answer(machine, monkeypatch):
    monkeypatch.setattr(machine.bindings, "cuInit", lambda flags: ("CUDA_ERROR_NO_DEVICE",))
    found, why = detect_gpu()
    assert found is None
    assert "CUDA_ERROR_NO_DEVICE" in why


def test_the_gpu_that_is_described_is_the_one_that_is_used(machine):
    found, why = detect_gpu()
    assert found is not None, why
    assert (found.name, found.sm_count, found.memory_gib) == ("NVIDIA H200", 132, 64.0)


@pytest.mark.gpu
def test_nvml_and_torch_mean_the_same_gpu():
    import torch

    nvml, handle = visible_gpu()
    named = nvml.nvmlDeviceGetUUID(handle)
    named = named.decode() if isinstance(named, bytes) else named
    assert named.removeprefix("GPU-") == str(torch.cuda.get_device_properties(0).uuid)
