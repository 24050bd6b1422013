"""CUDA exports: what can be said without a GPU, and the whole on one."""

import ctypes
import shutil
import subprocess

import pytest

from kernelwright.tools.export import export_folder, export_kernelbench
from kernelwright.tools.languages import INCLUDE, in_mode
from kernelwright.tools.languages.cuda import cubins, launcher


@pytest.fixture(scope="module")
def exported(material, softmax, cuda_softmax, tmp_path_factory):
    made = material(softmax[0], *cuda_softmax, language="cuda")
    return export_folder(made, tmp_path_factory.mktemp("cuda") / "soft")


def test_the_kernel_compiles_for_its_architecture_without_a_gpu(exported):
    kernel = (exported / "kernel.cu").read_text()
    header = (INCLUDE / "kernelwright.cuh").read_text()
    cubin = cubins.compile_cubin(kernel, header, "sm_90a")
    assert cubin[:4] == b"\x7fELF"


def test_a_cubin_is_compiled_once_and_again_where_what_is_kept_is_not_whole(
    exported, monkeypatch, tmp_path
):
    monkeypatch.setenv("KERNELWRIGHT_EXPORT_CACHE", str(tmp_path / "kept"))
    compiled = []

    def counted(*given):
        compiled.append(given)
        return b"\x7fELF of " + given[2].encode()

    monkeypatch.setattr(cubins, "compile_cubin", counted)
    kernel = (exported / "kernel.cu").read_text()
    first = cubins.cubin_of(kernel, "", "sm_90a")
    assert cubins.cubin_of(kernel, "", "sm_90a") == first
    assert len(compiled) == 1
    assert cubins.cubin_of(kernel, "", "sm_80") != first
    assert cubins.cubin_of(kernel + " ", "", "sm_90a") == first
    assert len(compiled) == 3
    for path in (tmp_path / "kept").iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    assert cubins.cubin_of(kernel, "", "sm_90a") == first
    assert len(compiled) == 4
    assert {path.suffix for path in (tmp_path / "kept").iterdir()} == {".cubin"}


def test_where_nothing_can_be_kept_the_cubin_is_compiled_all_the_same(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(cubins, "compile_cubin", lambda *_: b"cubin")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        monkeypatch.setenv("KERNELWRIGHT_EXPORT_CACHE", str(folder))
        assert cubins.cubin_of("", "", "sm_90a") == b"cubin"

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setenv("KERNELWRIGHT_EXPORT_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(cubins, "keep_cubin", full)
    assert cubins.cubin_of("", "", "sm_90a") == b"cubin"


def test_what_nvrtc_refuses_is_said(tmp_path):
    with pytest.raises(Exception, match="nonsense_type"):
        cubins.compile_cubin("nonsense_type x;", "", "sm_90a")


def test_what_is_included_besides_the_prelude_is_exported_with_it(
    material, softmax, cuda_softmax, tmp_path
):
    kernel = cuda_softmax[0].replace(
        "\n", '\n#include "kernelwright_mma.cuh"\nusing Tile = kw::FactorTile<64, 32, true>;\n', 1
    )
    made = material(softmax[0], kernel, cuda_softmax[1], language="cuda")
    folder = export_folder(made, tmp_path / "soft")
    header = (folder / "kernelwright.cuh").read_text()
    kernel = (folder / "kernel.cu").read_text()
    assert cubins.compile_cubin(kernel, header, "sm_80")[:4] == b"\x7fELF"


def test_without_a_gpu_the_reference_runs(exported, outside, tmp_path):
    code = """
import importlib.util, sys, torch
spec = importlib.util.spec_from_file_location("m", sys.argv[1] + "/module.py")
module = importlib.util.module_from_spec(spec)
sys.modules["m"] = module
spec.loader.exec_module(module)
x = torch.randn(48, 96)
with torch.no_grad():
    torch.testing.assert_close(module.Model()(x), torch.softmax(x, -1))
assert module.COUNTS == {"reference: device of x": 1}, module.COUNTS
"""
    outside(code, exported, cwd=tmp_path)


def test_the_launch_structures_are_the_drivers(tmp_path):
    header = pytest.importorskip("cuda.pathfinder").find_nvidia_header_directory("cudart")
    if header is None or shutil.which("g++") is None:
        pytest.skip("needs the CUDA headers and g++")
    source = tmp_path / "sizes.cpp"
    source.write_text(
        "#include <cuda.h>\n#include <cstddef>\n#include <cstdio>\n"
        'int main() { std::printf("%zu %zu %zu %zu %zu %zu %zu", sizeof(CUlaunchConfig), '
        "offsetof(CUlaunchConfig, hStream), offsetof(CUlaunchConfig, attrs), "
        "offsetof(CUlaunchConfig, numAttrs), offsetof(CUlaunchConfig, sharedMemBytes), "
        "sizeof(CUlaunchAttribute), offsetof(CUlaunchAttribute, value)); }\n"
    )
    program = tmp_path / "sizes"
    subprocess.run(["g++", "-I", str(header), str(source), "-o", str(program)], check=True)
    said = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    config, attribute = launcher.LaunchConfig, launcher.LaunchAttribute
    assert [int(word) for word in said.split()] == [
        ctypes.sizeof(config),
        config.stream.offset,
        config.attributes.offset,
        config.attribute_count.offset,
        config.shared_bytes.offset,
        ctypes.sizeof(attribute),
        attribute.value.offset,
    ]


KINDS = (ctypes.c_void_p, ctypes.c_bool, ctypes.c_int64, ctypes.c_float)


class FakeDriver:
    """Keeps what it was told to launch; enough, because the driver only reads."""

    def __init__(self):
        self.launches = []
        self.asked_for = []
        self.meanwhile = None
        self.static_shared_bytes = 0

    def cuLaunchKernelEx(self, config, function, parameters, extra):  # noqa: N802
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        config = config._obj
        values = [k.from_address(at).value for k, at in zip(KINDS, parameters._obj, strict=True)]
        clusters = [tuple(a.value[:3]) for a in config.attributes[: config.attribute_count]]
        geometry = [*config.grid, *config.block, config.shared_bytes, *clusters]
        self.launches.append((geometry, config.stream, values))
        return 0

    def cuFuncGetAttribute(self, place, attribute, function):  # noqa: N802
        assert attribute == launcher.SHARED_SIZE_BYTES
        place._obj.value = self.static_shared_bytes
        return 0

    def cuGetErrorName(self, status, place):  # noqa: N802
        place._obj.value = {1: b"CUDA_ERROR_INVALID_VALUE"}[status]
        return 0

    def cuFuncSetAttribute(self, function, attribute, value):  # noqa: N802
        self.asked_for.append((attribute, value))
        return 0


@pytest.fixture
def stream(monkeypatch):
    """The number of torch's current stream on the device that is asked about, to be set."""
    found = {0: 77}
    monkeypatch.setattr("torch._C._cuda_getCurrentRawStream", found.get, raising=False)
    return found


@pytest.fixture
def driver():
    return FakeDriver()


@pytest.fixture
def kernel(driver, stream):
    return launcher.Kernel(driver, "rows", ctypes.c_void_p(1), "P?qf", 0)


def test_every_argument_lies_where_its_address_says(kernel, driver):
    kernel((5, 2), 128, 1024, 1, 0xDEAD0000BEEF, True, -3, 0.5)
    geometry, stream, values = driver.launches[0]
    assert geometry == [5, 2, 1, 128, 1, 1, 1024]
    assert stream == 77
    assert values == [0xDEAD0000BEEF, True, -3, 0.5]


def test_each_launch_has_its_own_geometry_and_stream(kernel, driver, stream):
    for grid, block, shared, cluster in (
        (4, 64, 0, 1),
        (4, 64, 0, 2),
        (8, 64, 16, 2),
        (8, 32, 0, 1),
    ):
        for number in (5, 6):
            stream[0] = number
            kernel(grid, block, shared, cluster, 0, False, 1, 1.0)
            wanted = [grid, 1, 1, block, 1, 1, shared]
            wanted += [(cluster, 1, 1)] if cluster > 1 else []
            assert driver.launches[-1] == (wanted, number, [None, False, 1, 1.0])


def test_a_launch_amid_another_one_leaves_its_arguments_and_geometry_alone(kernel, driver):
    driver.meanwhile = lambda: kernel(9, 32, 0, 4, 8, False, 9, 9.0)
    kernel(4, 64, 0, 1, 16, True, 2, 2.0)
    assert driver.launches == [
        ([9, 1, 1, 32, 1, 1, 0, (4, 1, 1)], 77, [8, False, 9, 9.0]),
        ([4, 1, 1, 64, 1, 1, 0], 77, [16, True, 2, 2.0]),
    ]


def test_more_than_a_kernel_may_have_by_default_is_asked_for_once(kernel, driver):
    for shared, cluster in ((49_152, 8), (60_000, 8), (50_000, 16), (60_000, 16)):
        kernel(16, 32, shared, cluster, 0, False, 0, 0.0)
    assert driver.asked_for == [
        (launcher.MAX_DYNAMIC_SHARED_SIZE_BYTES, 60_000),
        (launcher.NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1),
    ]


def test_static_shared_memory_counts_towards_the_default(driver, stream):
    driver.static_shared_bytes = 40_000
    kernel = launcher.Kernel(driver, "rows", ctypes.c_void_p(1), "P?qf", 0)
    for shared in (9_000, 10_000):
        kernel(16, 32, shared, 1, 0, False, 0, 0.0)
    assert driver.asked_for == [(launcher.MAX_DYNAMIC_SHARED_SIZE_BYTES, 10_000)]


def test_a_launch_that_the_driver_refuses_is_an_error_of_its_name(driver, stream):
    driver.cuLaunchKernelEx = lambda *_: 1
    kernel = launcher.Kernel(driver, "rows", ctypes.c_void_p(1), "P?qf", 0)
    with pytest.raises(launcher.DriverError, match="rows could not be launched") as caught:
        kernel(1, 32, 0, 1, 0, False, 0, 0.0)
    assert caught.value.name == "CUDA_ERROR_INVALID_VALUE"


def test_an_empty_grid_launches_nothing(kernel, driver):
    kernel((0, 4), 32, 0, 1, 0, False, 0, 0.0)
    assert driver.launches == []


def test_a_kernel_without_parameters_is_launched(driver, stream):
    seen = []
    driver.cuLaunchKernelEx = lambda *given: seen.append(given) or 0
    launcher.Kernel(driver, "none", ctypes.c_void_p(1), "", 0)(1, 32, 0, 1)
    assert len(seen) == 1


GPU = """
import copy, importlib.util, sys, torch
spec = importlib.util.spec_from_file_location("m", sys.argv[1] + "/module.py")
module = importlib.util.module_from_spec(spec)
sys.modules["m"] = module
spec.loader.exec_module(module)
if torch.cuda.get_device_capability() != (9, 0):
    sys.exit(77)
model = module.Model().cuda()
with torch.no_grad():
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.randn(48, 96, device="cuda")
        torch.testing.assert_close(model(x), torch.softmax(x, -1))
    assert module.COUNTS == {"kernel": 3}, module.COUNTS
    model(torch.randn(3, 5, device="cuda"))                          # another shape
    model(torch.randn(48 * 96 + 1, device="cuda")[1:].view(48, 96))  # no 16-byte alignment
    assert module.COUNTS["reference: shape of x"] == 1, module.COUNTS
    assert module.COUNTS["reference: alignment of x"] == 1, module.COUNTS
    side = torch.cuda.Stream()                                       # on the caller's own stream
    with torch.cuda.stream(side):
        big = torch.randn(48, 96, device="cuda")
        y = model(big)
    side.synchronize()
    torch.testing.assert_close(y, torch.softmax(big, -1))
    graph = torch.cuda.CUDAGraph()                                   # and inside a CUDA graph
    static = torch.randn(48, 96, device="cuda")
    with torch.cuda.graph(graph):
        out = model(static)
    static.copy_(x)
    graph.replay()
    torch.cuda.synchronize()
    torch.testing.assert_close(out, torch.softmax(x, -1))
    whole = torch.compile(model, fullgraph=True)
    torch.testing.assert_close(whole(x), torch.softmax(x, -1))
    assert module.COUNTS["kernel (compiled)"] >= 1, module.COUNTS
y = x.clone().requires_grad_()
model(y).sum().backward()
assert y.grad is not None and module.COUNTS["reference: gradient"] == 1
if torch.cuda.device_count() > 1:
    with torch.no_grad():
        z = torch.randn(48, 96, device="cuda:1")
        torch.testing.assert_close(copy.deepcopy(model).to("cuda:1")(z), torch.softmax(z, -1))
"""


def run_on_gpu(code, *arguments, cwd, python):
    done = subprocess.run(
        [python, "-I", "-c", code, *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if done.returncode == 77:
        pytest.skip("verified for sm_90a, and this GPU is another")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.gpu
def test_on_a_gpu_streams_graphs_compile_and_fallbacks_work(exported, tmp_path, python):
    run_on_gpu(GPU, exported, cwd=tmp_path, python=python)


CLUSTERS = """
import importlib.util, sys, torch
spec = importlib.util.spec_from_file_location("m", sys.argv[1] + "/module.py")
module = importlib.util.module_from_spec(spec)
sys.modules["m"] = module
spec.loader.exec_module(module)
if torch.cuda.get_device_capability() != (9, 0):
    sys.exit(77)
x = torch.randn(48, 96, device="cuda")
with torch.no_grad():
    torch.testing.assert_close(module.Model().cuda()(x), torch.softmax(x, -1))
assert module.COUNTS == {"kernel": 1}, module.COUNTS
"""


@pytest.mark.gpu
def test_on_a_gpu_clusters_and_much_shared_memory_work(
    material, softmax, cuda_softmax, tmp_path, python
):
    plan = cuda_softmax[1].replace("block=THREADS", "block=THREADS, shared=100000, cluster=2")
    kernel = cuda_softmax[0].replace(
        "  const int row", "  extern __shared__ float unused[];\n  const int row"
    )
    made = material(softmax[0], kernel, plan, language="cuda")
    run_on_gpu(CLUSTERS, export_folder(made, tmp_path / "out"), cwd=tmp_path, python=python)


@pytest.mark.gpu
def test_on_a_gpu_verify_finds_it_correct(exported, python):
    code = """
import runpy, sys
sys.argv = ["verify.py", "--no-timing"]
runpy.run_path("verify.py", run_name="__main__")
"""
    assert "WRONG" not in run_on_gpu(code, cwd=exported, python=python)


@pytest.mark.gpu
def test_on_a_gpu_verify_times_it(exported, python):
    code = """
import runpy, sys
sys.argv = ["verify.py", "--seconds", "0.5", "--no-compile"]
try:
    runpy.run_path("verify.py", run_name="__main__")
except SystemExit as end:
    assert end.code in (0, 1), end.code   # so small a softmax need not be faster
"""
    assert "against eager" in run_on_gpu(code, cwd=exported, python=python)


@pytest.mark.gpu
def test_on_a_gpu_the_kernelbench_file_agrees(material, softmax, cuda_softmax, tmp_path, python):
    made = material(softmax[0], *cuda_softmax, language="cuda")
    path = export_kernelbench(made, tmp_path / "model_new.py")
    code = """
import sys, torch
context = {}
exec(open(sys.argv[1]).read(), context)
if torch.cuda.get_device_capability() != (9, 0):
    sys.exit(77)
x = torch.randn(48, 96, device="cuda")
with torch.no_grad():
    a, b = context["Model"]().cuda()(x), context["ModelNew"]().cuda()(x)
assert torch.allclose(a, b, atol=1e-4, rtol=1e-4)
"""
    run_on_gpu(code, path, cwd=tmp_path, python=python)


MODES = """
import importlib.util, sys, torch, warnings
warnings.filterwarnings("error", message="the kernels are called eagerly")
spec = importlib.util.spec_from_file_location("m", sys.argv[1] + "/module.py")
module = importlib.util.module_from_spec(spec)
sys.modules["m"] = module
spec.loader.exec_module(module)
if torch.cuda.get_device_capability() != (9, 0):
    sys.exit(77)
model = module.Model().cuda()
for mode in ("eager", "graph", "compile"):
    module.MODE = mode
    kept = []
    for seed in range(3):
        torch.manual_seed(seed)
        x = torch.randn(48, 96, device="cuda")
        with torch.no_grad():
            kept.append((model(x), torch.softmax(x, -1)))
    for got, right in kept:  # no later call wrote into an earlier one's result
        torch.testing.assert_close(got, right)
assert module.COUNTS == {"kernel": 9}, module.COUNTS
"""


@pytest.mark.gpu
def test_on_a_gpu_every_way_to_call_gives_the_references_results(
    material, softmax, cuda_softmax, tmp_path, python
):
    made = material(softmax[0], *cuda_softmax, language="cuda")
    made = made.model_copy(update={"candidate": in_mode(made.candidate, "graph")})
    folder = export_folder(made, tmp_path / "soft")
    run_on_gpu(MODES, folder, cwd=tmp_path, python=python)
