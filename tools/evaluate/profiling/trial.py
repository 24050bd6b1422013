"""`python -m kernelwright.tools.evaluate.profiling.trial SECONDS`: launches a kernel that is empty.

Run under a profiler or a sanitizer, it tells whether that works here, whoever wrote candidates.
It asks the driver alone: importing torch would take longer than all the rest.
"""

import ctypes
import os
import signal
import sys

_PTX = b"""
.version 6.3
.target sm_75
.address_size 64
.visible .entry trial() { ret; }
"""


def main() -> None:
    """Launch it between the profiler's start and stop."""
    cuda = ctypes.CDLL("libcuda.so.1")
    context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    one, none = ctypes.c_uint(1), ctypes.c_void_p()
    _ask(cuda.cuInit(0))
    _ask(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    _ask(cuda.cuCtxSetCurrent(context))
    _ask(cuda.cuModuleLoadData(ctypes.byref(module), _PTX))
    _ask(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"trial"))
    _ask(cuda.cuProfilerStart())
    shape = (one, one, one, one, one, one, ctypes.c_uint(0))
    _ask(cuda.cuLaunchKernel(kernel, *shape, none, none, none))
    _ask(cuda.cuCtxSynchronize())
    _ask(cuda.cuProfilerStop())


def _ask(status: int) -> None:
    if status:
        sys.exit(f"the driver answered with error {status}")


if __name__ == "__main__":
    signal.alarm(int(sys.argv[1]))
    main()
    os._exit(0)
