"""CUDA candidates on a device: everything that the CPU tests of the same parts cannot see."""

from collections.abc import Callable, Iterable

import pytest
import torch

from kernelwright.tools.candidates import DeviceError, LaunchRefused
from kernelwright.tools.candidates.run import PlanRunner
from kernelwright.tools.languages import Built, compile_candidate, load_candidate, new_candidate
from kernelwright.tools.types import Setting

pytestmark = pytest.mark.gpu

SCALE = """#include "kernelwright.cuh"
// tune: THREADS in 128, 256
extern "C" __global__ void __launch_bounds__(THREADS) scale(
    const float* x, float* y, long long n, float by) {
    const long long i = blockIdx.x * (long long)THREADS + threadIdx.x;
    if (i < n) y[i] = x[i] * by;
}
"""
SCALE_PLAN = """def forward(x, by):
    n = x.numel()
    y = empty_like(x)
    launch("scale", grid=ceil_div(n, THREADS), block=THREADS, args=(x, y, n, by))
    return y
"""

REVERSE = """#include "kernelwright.cuh"
extern "C" __global__ void reverse(const float* x, float* y, int n) {
    extern __shared__ float kept[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) kept[i] = x[i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) y[i] = kept[n - 1 - i];
}
"""

CLUSTER = """#include "kernelwright.cuh"
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
// Every block of a cluster publishes its rank in shared memory, and sums those of all the others.
extern "C" __global__ void ranks(int* sums, int* sizes) {
    __shared__ int mine;
    auto cluster = cg::this_cluster();
    if (threadIdx.x == 0) mine = (int)cluster.block_rank();
    cluster.sync();
    if (threadIdx.x == 0) {
        int sum = 0;
        for (unsigned r = 0; r < cluster.num_blocks(); ++r) {
            sum += *cluster.map_shared_rank(&mine, r);
        }
        sums[blockIdx.x] = sum;
        sizes[blockIdx.x] = (int)gridDim.x;
    }
    cluster.sync();
}
"""

HALVES = """#include "kernelwright.cuh"
extern "C" __global__ void widen(
    const __half* h, const __nv_bfloat16* b, float* y, int n, bool twice) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (__half2float(h[i]) + __bfloat162float(b[i])) * (twice ? 2.f : 1.f);
}
"""

BOX = """#include "kernelwright.cuh"
#include "kernelwright_mma.cuh"
// One box of 8 x 16, brought by the copy engine.
extern "C" __global__ void box(
    int row, const __grid_constant__ kw::TensorMap map, float* y, int column) {
    __shared__ __align__(128) float brought[8 * 16];
    __shared__ unsigned long long arrived;
    if (threadIdx.x == 0) {
        kw::barrier_init(&arrived, 1);
        kw::barriers_ready();
        kw::barrier_expect(&arrived, sizeof(brought));
        kw::map_load(brought, map, &arrived, column, row);
    }
    __syncthreads();
    kw::barrier_wait(&arrived, 0);
    for (int i = threadIdx.x; i < 8 * 16; i += 32) y[i] = brought[i];
}
"""

Load = Callable[..., PlanRunner]


@pytest.fixture
def load() -> Load:
    """Compiles for the device at hand and loads the result."""
    major, minor = torch.cuda.get_device_capability()
    architecture = f"sm_{major}{minor}{'a' if major >= 9 else ''}"

    async def make(kernel: str, plan: str, settings: Iterable[Setting] = ()) -> PlanRunner:
        candidate = new_candidate("cuda", kernel, plan, settings=settings)
        built = await compile_candidate(candidate, architecture=architecture, timeout_s=120)
        assert isinstance(built, Built), built
        return load_candidate(candidate, built, "cuda")

    return make


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(1000, 33, device="cuda")


@pytest.mark.parametrize("threads", [128, 256])
async def test_a_kernel_runs_under_its_settings(load: Load, x: torch.Tensor, threads: int) -> None:
    runner = await load(SCALE, SCALE_PLAN, [Setting(name="THREADS", value=threads)])
    (y,) = runner((x, 2.5), {})
    assert torch.equal(y, x * 2.5)
    # The arguments' memory is reused: the first result must not follow the second launch.
    (z,) = runner((x, -1), {})
    assert torch.equal(z, -x)
    assert torch.equal(y, x * 2.5)


@pytest.mark.parametrize("part", ["", ", shape=(18, 20), strides=(24, 1), offset=28"])
async def test_a_tensor_map_brings_a_box_and_zeros_around_it(load: Load, part: str) -> None:
    if torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("copies by tensor maps begin with sm_90")
    plan = f"""def forward(x):
    y = empty((8, 16))
    launch("box", grid=1, block=32, args=(13, tensor_map(x, box=(8, 16), swizzle=0{part}), y, 16))
    return y
"""
    runner = await load(BOX, plan)
    for _ in range(2):
        x = torch.randn(20, 24, device="cuda")
        inside = x[1:19, 4:24] if part else x
        wanted = torch.zeros(8, 16, device="cuda")
        rows, columns = (inside[13:21, 16:32]).shape
        wanted[:rows, :columns] = inside[13:21, 16:32]
        assert torch.equal(runner((x,), {})[0], wanted)


async def test_work_goes_to_the_current_stream(load: Load, x: torch.Tensor) -> None:
    runner = await load(SCALE, SCALE_PLAN)
    runner((x, 1.0), {})
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(200_000_000)
        (y,) = runner((x, 3.0), {})
        waiting = not stream.query()
    assert waiting
    assert torch.cuda.default_stream().query()
    stream.synchronize()
    assert torch.equal(y, x * 3)


async def test_a_launch_can_be_captured_in_a_graph(load: Load, x: torch.Tensor) -> None:
    runner = await load(SCALE, SCALE_PLAN)
    runner((x, 1.0), {})
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (y,) = runner((x, 2.0), {})
    x.copy_(torch.ones_like(x))
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(y, torch.full_like(x, 2.0))


async def test_an_empty_grid_launches_nothing(load: Load) -> None:
    runner = await load(SCALE, SCALE_PLAN)
    (y,) = runner((torch.empty(0, device="cuda"), 2.0), {})
    assert y.numel() == 0


@pytest.mark.parametrize("kib", [16, 48, 64, 96])
async def test_shared_memory_beyond_48_kib_is_given(load: Load, kib: int) -> None:
    plan = """def forward(x):
    y = empty_like(x)
    n = x.numel()
    launch("reverse", grid=1, block=256, args=(x, y, n), shared=n * 4)
    return y
"""
    runner = await load(REVERSE, plan)
    if kib * 1024 > torch.cuda.get_device_properties(0).shared_memory_per_block_optin:
        pytest.skip("this device has less shared memory")
    x = torch.randn(kib * 256, device="cuda")
    (y,) = runner((x,), {})
    assert torch.equal(y, x.flip(0))


async def test_static_shared_memory_counts_towards_the_limit(load: Load) -> None:
    kernel = REVERSE.replace(
        "extern __shared__", "__shared__ float pad[8192];\n    extern __shared__"
    )
    kernel = kernel.replace("__syncthreads();", "pad[threadIdx.x] = n; __syncthreads();")
    kernel = kernel.replace("kept[n - 1 - i];", "kept[n - 1 - i] + pad[threadIdx.x] - n;")
    plan = """def forward(x):
    y = empty_like(x)
    launch("reverse", grid=1, block=256, args=(x, y, x.numel()), shared=x.numel() * 4)
    return y
"""
    runner = await load(kernel, plan)
    x = torch.randint(0, 100, (8 * 1024,), device="cuda").float()
    (y,) = runner((x,), {})
    assert torch.equal(y, x.flip(0))


async def test_too_much_shared_memory_is_refused_and_harms_nothing(load: Load) -> None:
    plan = """def forward(x, size):
    y = empty_like(x)
    launch("reverse", grid=1, block=256, args=(x, y, x.numel()), shared=size)
    return y
"""
    runner = await load(REVERSE, plan)
    x = torch.randn(100, device="cuda")
    with pytest.raises(LaunchRefused, match="more than the device gives"):
        runner((x, 1 << 20), {})
    (y,) = runner((x, 400), {})
    assert torch.equal(y, x.flip(0))


@pytest.mark.parametrize("size", [1, 2, 8, 16])
async def test_clusters_form_and_the_grid_counts_blocks(load: Load, size: int) -> None:
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("clusters came with compute capability 9.0")
    plan = f"""def forward(blocks):
    sums = zeros(blocks, "int32")
    sizes = zeros(blocks, "int32")
    launch("ranks", grid=blocks, block=64, args=(sums, sizes), cluster={size})
    return sums, sizes
"""
    runner = await load(CLUSTER, plan)
    sums, sizes = runner((32,), {})
    assert sums.tolist() == [size * (size - 1) // 2] * 32
    assert sizes.tolist() == [32] * 32
    if size > 1:
        with pytest.raises(LaunchRefused, match="no multiple of the cluster"):
            runner((size + 1,), {})


async def test_a_cluster_size_can_change_between_launches(load: Load) -> None:
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("clusters came with compute capability 9.0")
    plan = """def forward(size):
    sums = zeros(16, "int32")
    sizes = zeros(16, "int32")
    launch("ranks", grid=16, block=64, args=(sums, sizes), cluster=size)
    return sums
"""
    runner = await load(CLUSTER, plan)
    for size in (8, 1, 16, 2, 8):
        (sums,) = runner((size,), {})
        assert sums.tolist() == [size * (size - 1) // 2] * 16


async def test_half_types_and_flags_arrive_as_they_are(load: Load) -> None:
    plan = """def forward(h, b, twice):
    y = empty(h.shape)
    launch("widen", grid=ceil_div(h.numel(), 64), block=64, args=(h, b, y, h.numel(), twice))
    return y
"""
    runner = await load(HALVES, plan)
    h = torch.randn(100, device="cuda", dtype=torch.float16)
    b = torch.randn(100, device="cuda", dtype=torch.bfloat16)
    for twice in (False, True):
        (y,) = runner((h, b, twice), {})
        assert torch.equal(y, (h.float() + b.float()) * (2 if twice else 1))
    with pytest.raises(LaunchRefused, match="takes float16, not bfloat16"):
        runner((b, b, True), {})
    with pytest.raises(LaunchRefused, match="bool twice"):
        runner((h, b, 2), {})


async def test_a_tensor_on_the_host_is_refused(load: Load, x: torch.Tensor) -> None:
    runner = await load(SCALE, SCALE_PLAN)
    with pytest.raises(LaunchRefused, match="is on cpu, the kernel runs on cuda:0"):
        runner((x.cpu(), 2.0), {})
    with pytest.raises(LaunchRefused, match="takes float32, not float64"):
        runner((x.double(), 2.0), {})
    (y,) = runner((x, 2.0), {})
    assert torch.equal(y, x * 2)


@pytest.mark.parametrize("geometry", ["grid=1, block=1025", "grid=-1, block=1", "grid=1, block=0"])
async def test_an_impossible_geometry_is_refused(
    load: Load, x: torch.Tensor, geometry: str
) -> None:
    plan = f'def forward(x):\n    launch("scale", {geometry}, args=(x, x, 1, 1.0))\n    return x\n'
    runner = await load(SCALE, plan)
    with pytest.raises(LaunchRefused) as caught:
        runner((x,), {})
    assert caught.value.line == 2


async def test_more_threads_than_a_kernel_was_compiled_for_are_refused(
    load: Load, x: torch.Tensor
) -> None:
    line = 'launch("scale", grid=1, block=1024, args=(x, x, 1, 1.0))'
    plan = f"def forward(x):\n    {line}\n    return x\n"
    runner = await load(SCALE, plan)
    with pytest.raises(LaunchRefused, match="CUDA_ERROR"):
        runner((x,), {})
    torch.cuda.synchronize()


async def test_an_object_for_another_architecture_is_refused() -> None:
    candidate = new_candidate("cuda", SCALE, SCALE_PLAN)
    other = "sm_75" if torch.cuda.get_device_capability() != (7, 5) else "sm_90a"
    built = await compile_candidate(candidate, architecture=other, timeout_s=120)
    assert isinstance(built, Built), built
    with pytest.raises(LaunchRefused, match="cannot be loaded"):
        load_candidate(candidate, built, "cuda")


async def test_library_operators_and_creators_work_on_the_device(
    load: Load, x: torch.Tensor
) -> None:
    plan = """def forward(x):
    ramp = aten.arange(x.shape[1], dtype="float32")
    return aten.mul(x, ramp), zeros((2,)), full((2,), inf)
"""
    product, zeros, infinities = (await load(SCALE, plan))((x,), {})
    assert torch.equal(product, x * torch.arange(33, device="cuda", dtype=torch.float32))
    assert zeros.device == infinities.device == x.device


def test_a_device_error_is_one_that_a_caller_can_tell_apart() -> None:
    assert issubclass(DeviceError, RuntimeError)
    assert not issubclass(LaunchRefused, RuntimeError)
