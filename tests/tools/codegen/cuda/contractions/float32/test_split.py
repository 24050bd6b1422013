"""Float32 by parts: as exact as float32 on every distribution, whatever lies in the factors."""

import ctypes
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.cuda.contractions.float32.split import SPLIT_MMA
from kernelwright.tools.codegen.cuda.contractions.float32.streamed import STREAMED, STREAMED_SPLITS
from kernelwright.tools.codegen.cuda.contractions.float32.streamed_both import STREAMED_BOTH
from kernelwright.tools.codegen.cuda.contractions.float32.wgmma import SPLIT_WGMMA
from kernelwright.tools.languages import Built, compile_candidate, new_candidate

M, N, K = 72, 80, 144


def plain(build: Any) -> Any:
    b = build({"m": M, "n": N}, {"k": K})
    total = b.reduce("sum", b.op("mul", b.load("x", m=K, k=1), b.load("w", k=N, n=1)))
    b.store("y", b.op("add", total, b.load("bias", n=1)), m=N, n=1)
    return b


def turned(build: Any) -> Any:
    """Both factors the other way round, an activation before and after, odd sizes."""
    m, n, k = 45, 67, 90
    b = build({"m": m, "n": n}, {"k": k})
    x = b.op("tanh", b.load("x", m=1, k=m))
    total = b.reduce("sum", b.op("mul", x, b.load("w", n=k, k=1)))
    b.store("y", b.op("relu", total), m=1, n=m)
    return b


def batched(build: Any) -> Any:
    """A batch, and rows of two axes."""
    b = build({"b": 2, "i": 5, "j": 14, "n": 33}, {"k": 64})
    x = b.load("x", b=5 * 14 * 64, i=14 * 64, j=64, k=1)
    b.store("y", b.reduce("sum", b.op("mul", x, b.load("w", b=64 * 33, k=33, n=1))),
            b=5 * 14 * 33, i=14 * 33, j=33, n=1)  # fmt: skip
    return b


def triangle(build: Any) -> Any:
    """The upper triangle of a product; tiles below have no sum, and rows with tiny values."""
    m, k = 160, 100
    b = build({"m": m, "n": m}, {"k": k})
    total = b.reduce("sum", b.op("mul", b.load("x", m=k, k=1), b.load("w", k=m, n=1)))
    keep = b.op("ge", b.index("n"), b.index("m"), dtype="bool")
    b.store("y", b.op("where", keep, total, b.const(0.0)), m=m, n=1)
    b.fills["x"] = lambda x: x[::7].mul_(1e-20)
    return b


def deep(build: Any) -> Any:
    """The ring goes round several times, and a persistent block takes several tiles."""
    m, n, k = 136, 200, 520
    b = build({"m": m, "n": n}, {"k": k})
    total = b.reduce("sum", b.op("mul", b.load("x", m=k, k=1), b.load("w", k=n, n=1)))
    b.store("y", total, m=n, n=1)
    return b


def wide(build: Any) -> Any:
    """A depth of one step, with rows of zeros and of tiny numbers; blocks keep rows over tiles."""
    m, n, k = 140, 520, 40
    b = build({"m": m, "n": n}, {"k": k})
    total = b.reduce("sum", b.op("mul", b.load("x", m=k, k=1), b.load("w", n=k, k=1)))
    b.store("y", b.op("add", total, b.load("bias", n=1)), m=n, n=1)
    b.fills["x"] = lambda x: (x[::7].mul_(1e-20), x[::11].zero_())
    return b


def long(build: Any) -> Any:
    """Sums that are taken in parts, columns along the depth, a bias and a residual."""
    m, n, k = 20, 68, 1100
    b = build({"m": m, "n": n}, {"k": k})
    total = b.reduce("sum", b.op("mul", b.load("x", m=1, k=m), b.load("w", n=k, k=1)))
    y = b.op("add", b.op("relu", total), b.load("residual", m=n, n=1))
    b.store("y", b.op("add", y, b.load("bias", n=1)), m=n, n=1)
    return b


CASES = (deep, triangle, plain, turned, batched, wide, long)
# What copies of runs cannot bring is not streamed, and short sums are not taken in parts.
STREAMABLE = {one.__name__: one is long for one in CASES if one is not turned}
Kept = Callable[[list[Any], Callable[[Any], object]], list[Any]]


SIDE = 24
# The second one ends within a step, and is shared by several jobs that look for magnitudes.
DEPTHS = (64, 1100)
# By warps on Ampere's tensor cores and on Hopper's, which keep a bit more, and by warpgroups.
# Streamed, one factor is split on its way, in parts of the depth where that is long enough.
WAYS = {
    "ampere": (SPLIT_MMA, 80),
    "hopper": (SPLIT_MMA, 90),
    "group": (SPLIT_WGMMA, 90),
    "streamed": (STREAMED, 90),
    "parts": (STREAMED_SPLITS, 90),
    "both": (STREAMED_BOTH, 90),
}
# The least depth that each is tried with: short sums are not taken in parts.
LEAST = {way: DEPTHS[way in ("parts", "both")] for way in WAYS}


@dataclass(frozen=True)
class Product:
    """x times w, SIDE by SIDE results over some depth, on emulated tensor cores."""

    variant: Any
    architecture: int
    toolbox: SimpleNamespace

    def run(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = torch.full((SIDE, SIDE), float("nan"))
        library = ctypes.CDLL(str(self.variant.library[0]))
        library.emulate_architecture(self.architecture)
        buffers = {"x": x.contiguous(), "w": w.contiguous(), "y": y}
        emulated = self.toolbox.Emulated(library, buffers, self.variant.settings)
        exec("\n".join(self.variant.emitted.plan), emulated.names())
        return y


Ways = dict[tuple[str, int], Product]


def _ways(toolbox: SimpleNamespace, hardware: Hardware, depths: tuple[int, ...]) -> Ways:
    """Every way to multiply over every depth, not compiled yet."""
    made: Ways = {}
    for depth in depths:
        b = toolbox.Build({"m": SIDE, "n": SIDE}, {"k": depth})
        total = b.reduce("sum", b.op("mul", b.load("x", m=depth, k=1), b.load("w", k=SIDE, n=1)))
        b.store("y", total, m=SIDE, n=1)
        for way, (strategy, architecture) in WAYS.items():
            start = 100 + len(made)
            found = toolbox.make_variants(
                {"p": b}, hardware, settings=1, names=(strategy,), start=start, most_threads=256
            )
            for variant in found:
                if way == "ampere":
                    variant.settings[f"K{start}_PROMOTE"] = 32
                made[way, depth] = Product(variant, architecture, toolbox)
    return made


@pytest.fixture(scope="module")
def ways(toolbox: SimpleNamespace, small_device: Hardware) -> Ways:
    """Every way to multiply, compiled together."""
    made = _ways(toolbox, small_device, DEPTHS)
    variants = [product.variant for product in made.values()]
    toolbox.compile_emulated(variants)
    return made


@pytest.fixture(scope="module")
def cases(toolbox: SimpleNamespace, small_device: Hardware, swept: Kept) -> list[Any]:
    """Every loop under every strategy, compiled together."""
    builds = {case.__name__: case(toolbox.Build) for case in CASES}
    names = (SPLIT_MMA, SPLIT_WGMMA, STREAMED, STREAMED_SPLITS)
    made = toolbox.make_variants(builds, small_device, settings=1, names=names, most_threads=384)
    kept: list[Any] = swept(made, lambda one: (one.label.split("-")[0], one.strategy.name))
    toolbox.compile_emulated(kept)
    return kept


def test_every_product_is_right_and_reads_without_conflicts(
    toolbox: SimpleNamespace, cases: list[Any]
) -> None:
    taken = {tuple(variant.label.split("-")[:2]) for variant in cases}
    every = {(case.__name__, name) for case in CASES for name in (SPLIT_MMA, SPLIT_WGMMA)}
    every |= {(name, STREAMED) for name in STREAMABLE}
    assert taken == every | {(name, STREAMED_SPLITS) for name in STREAMABLE if STREAMABLE[name]}
    for variant in cases:
        device = ctypes.CDLL(str(variant.library[0]))
        device.emulate_architecture(90)
        device.matrix_bank_conflicts()
        toolbox.check(*variant.run(), variant.loop)
        assert device.matrix_bank_conflicts() == 0, variant.label


def _distribution(name: str, *shape: int) -> torch.Tensor:
    normal = torch.randn(shape)
    if name == "extremes":
        kind = torch.randint(0, 32, shape)
        spread = torch.where(kind == 0, 1e4, torch.where(kind == 2, 1e-30, 1.0))
        return torch.where(kind == 1, 0.0, normal * spread)
    signs, short = torch.randint(0, 2, shape) * 2.0 - 1, torch.randint(-3, 0, shape)
    made = {
        "normal": normal,
        "uniform": torch.rand(shape),
        "large_offset": normal + 1000,
        "heavy_tail": normal / torch.randn(shape).abs().clamp_min(1e-3),
        "tiny": normal * 1e-6,
        "large_scale": normal * 1e5,
        "constant_rows": torch.randn(shape[0], 1).expand(shape).clone(),
        "short_significand": torch.exp2(short.float()) * (1 + 2.0**-9 + 2.0**-12) * signs,
        "rowscaled": normal * torch.exp2(torch.randint(-20, 20, (shape[0], 1)).float()),
        "elemscaled": normal * torch.exp2(torch.rand(shape) * 32 - 16),
        "denormal": normal * 1e-40,
    }
    return made[name]


DISTRIBUTIONS = (
    "normal", "uniform", "large_offset", "heavy_tail", "tiny", "large_scale", "extremes",
    "constant_rows", "short_significand", "rowscaled", "elemscaled",
)  # fmt: skip


def _in_order(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """The product as one chain of float32 sums."""
    total = torch.zeros(x.shape[0], w.shape[1])
    for k in range(x.shape[1]):
        total = (total.double() + x[:, k : k + 1].double() * w[k].double()).float()
    return total


def _errors(got: torch.Tensor, truth: torch.Tensor) -> tuple[float, float]:
    """The root of the mean square, and the largest against its place and the mean."""
    away = (got.double() - truth).abs()
    least = torch.finfo(torch.float32).eps
    return (
        max((away.norm() / truth.norm()).item(), least),
        max((away / (truth.abs() + truth.abs().mean())).max().item(), least),
    )


def _ratios(products: Iterable[Product], x: torch.Tensor, w: torch.Tensor) -> list[float]:
    """How much larger each product's errors are than those of one chain of float32 sums."""
    truth = x.double() @ w.double()
    plain = _errors(_in_order(x, w), truth)
    found = (_errors(product.run(x, w), truth) for product in products)
    return [max(mine / its for mine, its in zip(got, plain, strict=True)) for got in found]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize(
    ("way", "depth"), [(way, depth) for way in WAYS for depth in DEPTHS if depth >= LEAST[way]]
)
def test_the_error_is_that_of_float32(ways: Ways, name: str, depth: int, way: str) -> None:
    torch.manual_seed(0)
    x, w = _distribution(name, SIDE, depth), _distribution(name, SIDE, depth).T.contiguous()
    assert _ratios([ways[way, depth]], x, w)[0] <= 2


@pytest.mark.exhaustive
def test_the_error_is_that_of_float32_in_long_sums(
    toolbox: SimpleNamespace, small_device: Hardware
) -> None:
    depth = 4096
    # Those whose errors grow with the sum.
    names = ("normal", "uniform", "large_offset", "heavy_tail", "short_significand")
    ways = _ways(toolbox, small_device, (depth,))
    toolbox.compile_emulated([one.variant for one in ways.values()])
    for name in names:
        torch.manual_seed(0)
        x, w = _distribution(name, SIDE, depth), _distribution(name, SIDE, depth).T.contiguous()
        found = dict(zip(ways, _ratios(ways.values(), x, w), strict=True))
        assert max(found.values()) <= 1, (name, found)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WAYS)
def test_infinities_and_nan_come_out_as_in_ieee(ways: Ways, way: str) -> None:
    torch.manual_seed(0)
    x, w = torch.randn(SIDE, LEAST[way]), torch.randn(LEAST[way], SIDE)
    x[0, 3], x[1, 5], x[2, 0], x[2, 9] = torch.tensor([1, torch.nan, 1, -1]) * torch.inf
    w[7, 4], w[8, 5], x[4, 7] = torch.inf, torch.nan, 0.0
    got = ways[way, LEAST[way]].run(x, w)
    truth = (x.double() @ w.double()).float()
    torch.testing.assert_close(got, truth, equal_nan=True, rtol=1e-5, atol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WAYS)
def test_where_most_results_are_short_lanes_sum_their_own(ways: Ways, way: str) -> None:
    torch.manual_seed(0)
    x, w = torch.randn(SIDE, LEAST[way]), torch.randn(LEAST[way], SIDE)
    # Each piece's largest number meets zeros alone, and decides how all others are scaled.
    x[:, 1:] *= 2.0**-22
    x[:, ::16], w[::16] = 1.0, 0.0
    got = ways[way, LEAST[way]].run(x, w)
    assert _errors(got, x.double() @ w.double())[0] < 3e-7
    x[: SIDE // 2] = torch.nan
    got = ways[way, LEAST[way]].run(x, w)
    assert got[: SIDE // 2].isnan().all()
    assert _errors(got[SIDE // 2 :], x[SIDE // 2 :].double() @ w.double())[0] < 3e-7


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WAYS)
def test_sixty_orders_of_magnitude_lie_between_rows_and_columns(ways: Ways, way: str) -> None:
    torch.manual_seed(0)
    orders = torch.linspace(-30, 30, SIDE, dtype=torch.float64)
    x = (torch.randn(SIDE, LEAST[way]) * (10**orders)[:, None]).float()
    w = (torch.randn(LEAST[way], SIDE) * 10**-orders).float()
    truth = x.double() @ w.double()
    inside = (truth.abs() < 3e38) & (truth.abs() > 1e-37)
    got = ways[way, LEAST[way]].run(x, w).double()
    scale = x.double().abs() @ w.double().abs()
    assert ((got - truth).abs() / scale)[inside].max() < 1e-6
    assert torch.equal(got.isinf(), truth.abs() > 3.4028235677973366e38)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("left", "right"),
    [([1e25, 1e-25], [1e-25, 1e25]), ([1.0, 2.0**-40], [2.0**-29, 1.0]), ([0.0, 0.0], [1.0, 2.0]),
     ([2.0**-140, 2.0**-149], [2.0**100, 2.0**120]), ([3e38, 1.0], [1e-38, 1e38])],
)  # fmt: skip
@pytest.mark.parametrize("way", ["hopper", "streamed", "parts", "both"])
def test_a_row_that_is_wider_than_its_parts_is_repaired(
    ways: Ways, way: str, left: list[float], right: list[float]
) -> None:
    x, w = torch.zeros(SIDE, LEAST[way]), torch.zeros(LEAST[way], SIDE)
    x[5, :2], w[:2, 3] = torch.tensor(left), torch.tensor(right)
    truth = (x.double() @ w.double()).float()
    got = ways[way, LEAST[way]].run(x, w)
    torch.testing.assert_close(got, truth, rtol=2.0**-22, atol=0)


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", ["hopper", "streamed", "parts", "both"])
def test_denormals_are_factors_like_any_other(ways: Ways, way: str) -> None:
    torch.manual_seed(0)
    x = _distribution("denormal", SIDE, LEAST[way])
    w = torch.randn(LEAST[way], SIDE) * 1e30
    truth = x.double() @ w.double()
    assert _errors(ways[way, LEAST[way]].run(x, w), truth)[0] < 3e-7


@pytest.mark.parametrize(("m", "splits"), [(256, 33), (8192, 4)])
def test_sums_longer_than_a_chain_may_be_are_taken_in_parts(
    toolbox: SimpleNamespace, m: int, splits: int
) -> None:
    """Seen on a device: a chain of 524,288 missed the judge's bound, parts of it did not."""
    n, k = 256 if m == 256 else 8192, 131072
    b = toolbox.Build({"m": m, "n": n}, {"k": k})
    total = b.reduce("sum", b.op("mul", b.load("x", m=k, k=1), b.load("w", k=n, n=1)))
    b.store("y", total, m=n, n=1)
    emitter, hardware = CudaEmitter(), hardware_profile("H200")
    found = {one.name: one for one in emitter.strategies(b.loop("k"), hardware)}
    assert STREAMED_SPLITS in found
    assert not {STREAMED, SPLIT_WGMMA, SPLIT_MMA} & set(found)
    emitted = emitter.emit(b.loop("k"), found[STREAMED_SPLITS], "k", hardware)
    assert f"// tune: K_SPLITS in {splits}," in emitted.source


OTHERS = (("A100", SPLIT_MMA), ("L40S", SPLIT_MMA), ("H200", SPLIT_MMA), ("B200", SPLIT_MMA),
          ("RTX 5090", SPLIT_MMA))  # fmt: skip


@pytest.mark.parametrize(
    ("device", "strategy"),
    [
        ("H200", SPLIT_WGMMA),
        pytest.param("H200", STREAMED, marks=pytest.mark.exhaustive),
        *(pytest.param(*other, marks=pytest.mark.exhaustive) for other in OTHERS),
    ],
)
async def test_first_settings_compile_without_spills(
    toolbox: SimpleNamespace, device: str, strategy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "MNK":
        monkeypatch.setitem(globals(), name, 4096)
    emitter, hardware = CudaEmitter(), hardware_profile(device)
    loop = plain(toolbox.Build).loop("k")
    found = {one.name: one for one in emitter.strategies(loop, hardware)}
    times = {name: emitter.predicted_ms(loop, one, hardware) for name, one in found.items()}
    # Consumer cards add in float32 at half the rate: no gain there, and none predicted.
    best = {"A100": SPLIT_MMA, "H200": SPLIT_WGMMA, "B200": SPLIT_MMA}
    fastest = min(times, key=lambda name: times[name])
    assert fastest == best.get(device, fastest)
    assert (fastest in best.values()) is (device in best)
    source = emitter.header() + emitter.emit(loop, found[strategy], "k", hardware).source
    candidate = new_candidate("cuda", source, "def forward(x):\n    return x\n")
    built = await compile_candidate(candidate, architecture=hardware.architecture, timeout_s=120)
    assert isinstance(built, Built), built
    assert all(not report.spill_bytes for report in built.reports)
    assert not await toolbox.never_runs(built.artifact)
