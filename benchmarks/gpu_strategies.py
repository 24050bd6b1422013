"""Times every CUDA strategy of the playbook on loops of the sizes that suites use.

For each problem every strategy is compiled under its default setting and a few random ones,
checked against float64, and timed with a flushed L2. The share of the floor is the bytes that
must move over the measured copy bandwidth. One JSON line a measurement is written as it is made,
so a run that is cut short loses nothing; a table of the best ends each problem.

    python benchmarks/gpu_strategies.py results.jsonl --seconds 540 --settings 6 --only softmax

What is not covered: library baselines beyond one eager call, and clocks (read those beside it).
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from agents.playbook.assemble import assemble  # noqa: E402
from agents.playbook.cuda import CudaEmitter  # noqa: E402
from agents.playbook.ir import (  # noqa: E402
    Access,
    Axis,
    Buffer,
    Loop,
    Program,
    ReduceKind,
    Stmt,
    Store,
    Strategy,
    Stride,
)
from profiles.load import Hardware, hardware_profile  # noqa: E402
from tools.candidates import new_candidate, parse_kernel, valid_settings, with_settings  # noqa: E402
from tools.candidates.run import PlanRunner  # noqa: E402
from tools.compile import CompileFailure, compile_candidate, shutdown_compilers  # noqa: E402
from tools.nouns import Candidate, DType, Language  # noqa: E402

# (output, first element, expected values) in pieces that fit beside the data.
Truth = Callable[[dict[str, torch.Tensor]], Iterator[tuple[str, int, torch.Tensor]]]


class Writer:
    """Writes a loop statement by statement; strides are keywords by axis (or statement) name."""

    def __init__(self, outer: dict[str, int], inner: dict[str, int]):
        self.sizes = {**outer, **inner}
        self.outer = tuple(Axis(name=n, size=s) for n, s in outer.items())
        self.inner = tuple(Axis(name=n, size=s) for n, s in inner.items())
        self.body: list[Stmt] = []
        self.stores: list[Store] = []
        self.buffers: dict[str, Buffer] = {}

    def _access(self, buffer: str, dtype: str, steps: dict[str, int], role: str, size: int):
        reach = sum((self.sizes[by] - 1) * step for by, step in steps.items() if by in self.sizes)
        shape = (max(size, reach + 1),)
        kept = self.buffers.get(buffer)
        if kept is None or kept.shape < shape:
            self.buffers[buffer] = Buffer.model_validate(
                {"name": buffer, "shape": shape, "dtype": dtype, "role": role}
            )
        strides = tuple(Stride(by=by, step=step) for by, step in steps.items())
        return Access(buffer=buffer, dtype=DType(dtype), strides=strides)

    def _add(self, op: str, dtype: str, **more: object) -> str:
        name = f"s{len(self.body)}"
        stmt = {"name": name, "op": op, "dtype": DType(dtype), **more}
        self.body.append(Stmt.model_validate(stmt))
        return name

    def load(self, buffer: str, dtype: str = "float32", size: int = 0, **steps: int) -> str:
        """A read, converted to the type computed in."""
        access = self._access(buffer, dtype, steps, "input", size)
        return self._add("load", "int64" if dtype == "int64" else "float32", access=access)

    def const(self, value: float) -> str:
        """A constant."""
        return self._add("const", "float32", value=value)

    def op(self, op: str, *args: str, dtype: str = "float32") -> str:
        """A pointwise operator."""
        return self._add(op, dtype, args=args)

    def reduce(self, kind: str, arg: str, dtype: str = "float32") -> str:
        """A reduction along the inner axes."""
        return self._add("reduce", dtype, args=(arg,), reduce=ReduceKind(kind))

    def scan(self, kind: str, arg: str) -> str:
        """A running reduction along the inner axes."""
        return self._add("scan", "float32", args=(arg,), scan=kind)

    def store(self, buffer: str, value: str, dtype: str = "float32", **steps: int) -> None:
        """A write."""
        access = self._access(buffer, dtype, steps, "output", 0)
        self.stores.append(Store(access=access, value=value))

    def program(self, name: str) -> Program:
        """The loop as a program of one step."""
        loop = Loop(
            name=name,
            outer=self.outer,
            inner=self.inner,
            body=tuple(self.body),
            stores=tuple(self.stores),
        )
        inputs = tuple(b.name for b in self.buffers.values() if b.role == "input")
        outputs = tuple(b.name for b in self.buffers.values() if b.role == "output")
        return Program(
            parameters=inputs,
            weights=(),
            buffers=tuple(self.buffers.values()),
            steps=(loop,),
            returns=outputs,
            output_structure="tuple",
        )


@dataclass(frozen=True)
class Problem:
    """A loop, what it should give, and what PyTorch would call instead."""

    name: str
    program: Program
    truth: Truth
    eager: Callable[[dict[str, torch.Tensor]], object]
    highs: dict[str, int] = field(default_factory=dict)

    @property
    def loop(self) -> Loop:
        """The one loop."""
        return self.program.loops[0]

    @property
    def moved_bytes(self) -> int:
        """Every buffer once."""
        return sum(b.shape[0] * b.dtype.itemsize_bytes for b in self.program.buffers)


def rowwise(rows: int, columns: int, output: str, call: Callable, *others: str) -> Truth:
    """Truth of a function of rows, evaluated in float64 some rows at a time."""

    def truth(data: dict[str, torch.Tensor]) -> Iterator[tuple[str, int, torch.Tensor]]:
        step = max(1, (1 << 27) // columns)
        for start in range(0, rows, step):
            x = data["x"][start * columns : (start + step) * columns].view(-1, columns).double()
            got = call(x, *(data[name] for name in others)).reshape(-1)
            yield output, start * (got.numel() // x.shape[0]), got

    return truth


def swish() -> Problem:
    """A swish, elementwise."""
    w = Writer({"n": 4096, "c": 393216}, {})
    x = w.load("x", n=393216, c=1)
    w.store("y", w.op("mul", x, w.op("sigmoid", x)), n=393216, c=1)
    return Problem(
        "swish",
        w.program("swish"),
        rowwise(4096, 393216, "y", F.silu),
        lambda d: d["x"] * torch.sigmoid(d["x"]),
    )


def softmax(rows: int = 4096, columns: int = 393216) -> Problem:
    """Softmax of rows, in three passes as traced."""
    w = Writer({"n": rows}, {"c": columns})
    x = w.load("x", n=columns, c=1)
    e = w.op("exp", w.op("sub", x, w.reduce("max", x)))
    w.store("y", w.op("div", e, w.reduce("sum", e)), n=columns, c=1)
    return Problem(
        f"softmax_{rows}x{columns}",
        w.program("softmax"),
        rowwise(rows, columns, "y", lambda x: torch.softmax(x, -1)),
        lambda d: torch.softmax(d["x"].view(rows, columns), -1),
    )


def _normalised(w: Writer, x: str, count: int) -> str:
    mean = w.reduce("moments", x)
    variance = w.op("div", f"{mean}_m2", w.const(float(count)))
    return w.op("mul", w.op("sub", x, mean), w.op("rsqrt", w.op("add", variance, w.const(1e-5))))


def layer_norm(rows: int = 16, columns: int = 4194304) -> Problem:
    """Layer norm of rows."""
    w = Writer({"n": rows}, {"c": columns})
    y = _normalised(w, w.load("x", n=columns, c=1), columns)
    y = w.op("fma", y, w.load("w", c=1), w.load("b", c=1))
    w.store("y", y, n=columns, c=1)

    def call(x, weight, bias):
        return F.layer_norm(x, (columns,), weight.double(), bias.double())

    return Problem(
        f"layer_norm_{rows}x{columns}",
        w.program("layer_norm"),
        rowwise(rows, columns, "y", call, "w", "b"),
        lambda d: F.layer_norm(d["x"].view(rows, columns), (columns,), d["w"], d["b"]),
    )


def group_norm(name: str, n: int, g: int, c: int, s: int) -> Problem:
    """Group norm of `n` images with `g` groups of `c` channels of `s` pixels."""
    w = Writer({"n": n, "g": g}, {"c": c, "s": s})
    steps = {"n": g * c * s, "g": c * s, "c": s, "s": 1}
    y = _normalised(w, w.load("x", **steps), c * s)
    w.store("y", w.op("fma", y, w.load("w", g=c, c=1), w.load("b", g=c, c=1)), **steps)

    def call(x, weight, bias):
        return F.group_norm(x.view(-1, g * c, s), g, weight.double(), bias.double())

    return Problem(
        name,
        w.program("group_norm"),
        rowwise(n, g * c * s, "y", call, "w", "b"),
        lambda d: F.group_norm(d["x"].view(n, g * c, s), g, d["w"], d["b"]),
    )


def instance_norm() -> Problem:
    """Instance norm without weights."""
    rows, columns = 112 * 64, 512 * 512
    w = Writer({"n": rows}, {"s": columns})
    w.store("y", _normalised(w, w.load("x", n=columns, s=1), columns), n=columns, s=1)
    return Problem(
        "instance_norm",
        w.program("instance_norm"),
        rowwise(rows, columns, "y", lambda x: F.layer_norm(x, (columns,))),
        lambda d: F.instance_norm(d["x"].view(112, 64, 512, 512)),
    )


def batch_norm() -> Problem:
    """Batch norm over (N, HW), training statistics."""
    n, c, s = 64, 64, 512 * 512
    w = Writer({"c": c}, {"n": n, "s": s})
    steps = {"n": c * s, "c": s, "s": 1}
    y = _normalised(w, w.load("x", **steps), n * s)
    w.store("y", w.op("fma", y, w.load("w", c=1), w.load("b", c=1)), **steps)

    def truth(data):
        x = data["x"].view(n, c, s)
        for at in range(c):
            one = x[:, at].double()
            y = (one - one.mean()) / (one.var(unbiased=False) + 1e-5).sqrt()
            y = y * data["w"][at].double() + data["b"][at].double()
            for row in range(0, n, 16):
                yield "y", (row * c + at) * s, y[row]

    def eager(d):
        return F.batch_norm(d["x"].view(n, c, s), None, None, d["w"], d["b"], True)

    return Problem("batch_norm", w.program("batch_norm"), truth, eager)


def rms_norm() -> Problem:
    """RMS norm over dimension 1 of NCHW."""
    n, c, s = 112, 64, 512 * 512
    w = Writer({"n": n, "s": s}, {"c": c})
    steps = {"n": c * s, "c": s, "s": 1}
    x = w.load("x", **steps)
    mean = w.op("div", w.reduce("sum", w.op("square", x)), w.const(float(c)))
    root = w.op("sqrt", w.op("add", mean, w.const(1e-5)))
    w.store("y", w.op("div", x, root), **steps)

    def call(x):
        x = x.view(-1, c, s)
        return x / (x.square().mean(1, keepdim=True) + 1e-5).sqrt()

    return Problem(
        "rms_norm_dim1",
        w.program("rms_norm"),
        rowwise(n, c * s, "y", call),
        lambda d: (lambda x: x / torch.sqrt(torch.mean(x**2, 1, keepdim=True) + 1e-5))(
            d["x"].view(n, c, s)
        ),
    )


def _middle(name: str, kind: str, dtype: str, call: Callable) -> Problem:
    n, r, c = 128, 4096, 4095
    w = Writer({"n": n, "c": c}, {"r": r})
    x = w.load("x", n=r * c, r=c, c=1)
    w.store("y", w.reduce(kind, x, dtype), dtype, n=c, c=1)
    return Problem(
        name,
        w.program(name),
        rowwise(n, r * c, "y", lambda x: call(x.view(-1, r, c), 1)),
        lambda d: call(d["x"].view(n, r, c), 1),
    )


def total(rows: int = 1 << 30) -> Problem:
    """The sum of everything."""
    w = Writer({}, {"n": rows})
    w.store("y", w.reduce("sum", w.load("x", n=1)))
    return Problem(
        "sum_all",
        w.program("sum_all"),
        rowwise(1, rows, "y", lambda x: x.sum(-1)),
        lambda d: d["x"].sum(),
    )


def cumulative_sum() -> Problem:
    """Running sums of square rows."""
    n = 32768
    w = Writer({"n": n}, {"c": n})
    w.store("y", w.scan("sum", w.load("x", n=n, c=1)), n=n, c=1)
    return Problem(
        "cumsum",
        w.program("cumsum"),
        rowwise(n, n, "y", lambda x: x.cumsum(-1)),
        lambda d: d["x"].view(n, n).cumsum(-1),
    )


def huber() -> Problem:
    """The mean Huber loss of two matrices."""
    n = 32768
    w = Writer({}, {"n": n, "c": n})
    gap = w.op("sub", w.load("x", n=n, c=1), w.load("t", n=n, c=1))
    size = w.op("abs", gap)
    near = w.op("lt", size, w.const(1.0), dtype="bool")
    inside = w.op("mul", w.op("square", gap), w.const(0.5))
    loss = w.op("where", near, inside, w.op("sub", size, w.const(0.5)))
    w.store("y", w.op("div", w.reduce("sum", loss), w.const(float(n * n))))

    def truth(data):
        x, t = data["x"].view(n, n), data["t"].view(n, n)
        parts = [
            F.smooth_l1_loss(x[i : i + 4096].double(), t[i : i + 4096].double(), reduction="sum")
            for i in range(0, n, 4096)
        ]
        yield "y", 0, torch.stack(parts).sum().reshape(1) / (n * n)

    return Problem("huber", w.program("huber"), truth, lambda d: F.smooth_l1_loss(d["x"], d["t"]))


def cross_entropy() -> Problem:
    """Cross-entropy of rows, not reduced."""
    n, c = 32768, 4096
    w = Writer({"n": n}, {"c": c})
    x = w.load("x", n=c, c=1)
    target = w.load("t", "int64", n=1)
    top = w.reduce("max", x)
    total_ = w.reduce("sum", w.op("exp", w.op("sub", x, top)))
    chosen = w.load("x", n=c, **{target: 1})
    w.store("y", w.op("sub", w.op("add", top, w.op("log", total_)), chosen), n=1)

    def truth(data):
        x = data["x"].view(n, c).double()
        yield "y", 0, F.cross_entropy(x, data["t"], reduction="none")

    return Problem(
        "cross_entropy",
        w.program("cross_entropy"),
        truth,
        lambda d: F.cross_entropy(d["x"].view(n, c), d["t"], reduction="none"),
        {"t": c},
    )


def problems() -> dict[str, Callable[[], Problem]]:
    """Every problem by name, made when it is its turn."""
    return {
        "softmax": softmax,
        "layer_norm": layer_norm,
        "group_norm": lambda: group_norm("group_norm", 112, 8, 8, 512 * 512),
        "group_norm_medium": lambda: group_norm("group_norm_medium", 64, 32, 8, 128 * 128),
        "instance_norm": instance_norm,
        "batch_norm": batch_norm,
        "rms_norm": rms_norm,
        "mean_middle": lambda: _middle("sum_middle", "sum", "float32", torch.sum),
        "argmax_middle": lambda: _middle("argmax_middle", "argmax", "int64", torch.argmax),
        "sum_all": total,
        "cumsum": cumulative_sum,
        "huber": huber,
        "cross_entropy": cross_entropy,
        "swish": swish,
        "softmax_short": lambda: softmax(1 << 20, 256),
        "softmax_medium": lambda: softmax(1 << 15, 16384),
        "layer_norm_medium": lambda: layer_norm(1 << 16, 4096),
    }


class Bench:
    """Times callables with a flushed L2, and writes down what was found."""

    def __init__(self, path: Path, hardware: Hardware):
        self._path, self.hardware = path, hardware
        self._flush = torch.empty(256 << 20, dtype=torch.int8, device="cuda")
        path.write_text("")

    def write(self, **entry: object) -> None:
        """Append one entry at once."""
        with self._path.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def median_ms(self, job: Callable[[], object], samples: int = 7) -> float:
        """Median time; a slow job gets fewer samples."""
        times = []
        for _ in range(samples):
            self._flush.zero_()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            result = job()
            end.record()
            end.synchronize()
            del result
            times.append(start.elapsed_time(end))
            if sum(times) > 200:
                break
        return statistics.median(times)

    def copy_gb_s(self) -> float:
        """Bytes read plus written a second by a large copy."""
        source = torch.randn(1 << 29, device="cuda")
        into = torch.empty_like(source)
        into.copy_(source)
        return 2 * source.numel() * 4 / self.median_ms(lambda: into.copy_(source)) / 1e6


def drawn(problem: Problem) -> dict[str, torch.Tensor]:
    """Random inputs on the device."""
    torch.manual_seed(7)
    made = {}
    for buffer in problem.program.buffers:
        if buffer.role != "input":
            continue
        if buffer.dtype is DType.INT64:
            high = problem.highs[buffer.name]
            made[buffer.name] = torch.randint(0, high, buffer.shape, device="cuda")
        else:
            made[buffer.name] = torch.randn(buffer.shape, device="cuda")
    return made


def candidates(
    problem: Problem, hardware: Hardware, settings: int, only: list[str]
) -> list[tuple[Strategy, Candidate]]:
    """Candidates in the order to try them: every strategy's default, then further settings."""
    emitter, queues = CudaEmitter(), []
    for strategy in emitter.strategies(problem.loop, hardware):
        if only and not any(word in strategy.name for word in only):
            continue
        text = assemble(problem.program, emitter, {problem.loop.name: strategy}, hardware)
        base = new_candidate(Language.CUDA, text.kernel, text.plan)
        first, *rest = valid_settings(parse_kernel(text.kernel, Language.CUDA))
        tried = [first, *random.Random(1).sample(rest, min(len(rest), settings - 1))]
        queues.append([(strategy, with_settings(base, setting)) for setting in tried])
    return [q[i] for i in range(settings) for q in queues if i < len(q)]


def worst_error(problem: Problem, outputs: dict[str, torch.Tensor], data) -> float:
    """Largest error over the largest true value; for integers, the share that differs."""
    worst = 0.0
    for name, start, true in problem.truth(data):
        got = outputs[name].view(-1)[start : start + true.numel()]
        if not got.is_floating_point():
            worst = max(worst, (got != true).double().mean().item())
            continue
        gap = (got.double() - true.view(-1)).abs().max() / true.abs().max().clamp_min(1e-30)
        worst = max(worst, gap.item() if gap.isfinite() else float("inf"))
    return worst


async def measure(
    bench: Bench, problem: Problem, settings: int, seconds: float, only: list[str]
) -> None:
    """Compile, check and time a problem's candidates until its time is over."""
    end = time.monotonic() + seconds
    data = drawn(problem)
    floor = problem.moved_bytes / BANDWIDTH["gb_s"] / 1e6
    eager = bench.median_ms(lambda: problem.eager(data), 4)
    bench.write(problem=problem.name, kind="eager", ms=eager, floor_ms=floor)
    listed = candidates(problem, bench.hardware, settings, only)
    builds = [
        asyncio.ensure_future(
            compile_candidate(one, architecture=bench.hardware.architecture, timeout_s=60)
        )
        for _, one in listed
    ]
    rows = []
    for (strategy, candidate), building in zip(listed, builds, strict=True):
        if time.monotonic() > end:
            building.cancel()
            continue
        shown = " ".join(f"{s.name.split('_')[-1]}={s.value}" for s in candidate.settings)
        entry = {"problem": problem.name, "strategy": strategy.name, "settings": shown}
        try:
            entry |= await _one(bench, problem, candidate, await building, data)
        except Exception as error:
            entry["failure"] = f"{type(error).__name__}: {error}"[:400]
        bench.write(**entry)
        rows.append(entry)
    _table(problem, rows, floor, eager)


async def _one(bench: Bench, problem: Problem, candidate: Candidate, built, data) -> dict:
    if isinstance(built, CompileFailure):
        return {"failure": built.message[:400]}
    runner = PlanRunner(candidate, built, "cuda:0")
    args = [data[name] for name in problem.program.parameters]
    outputs = dict(zip(problem.program.returns, runner(args, {}), strict=True))
    torch.cuda.synchronize()
    error = worst_error(problem, outputs, data)
    del outputs
    reports = [(r.registers, r.spill_bytes) for r in built.reports] if built.reports else []
    ms = bench.median_ms(lambda: runner(args, {}))
    return {"ms": ms, "error": error, "reports": reports}


def _table(problem: Problem, rows: list[dict], floor: float, eager: float) -> None:
    print(f"\n{problem.name}: floor {floor:.3f} ms, eager {eager:.3f} ms, {len(rows)} candidates")
    timed = sorted((row for row in rows if "ms" in row), key=lambda row: row["ms"])
    seen: dict[str, int] = {}
    for row in timed:
        seen[row["strategy"]] = seen.get(row["strategy"], 0) + 1
        if seen[row["strategy"]] == 1:
            share = floor / row["ms"]
            print(
                f"  {row['strategy']:44s} {row['ms']:9.3f} ms  {share:5.1%} of the floor  "
                f"error {row['error']:.1e}  {row['settings']}"
            )
    failures: dict[str, str] = {}
    for row in rows:
        if "failure" in row:
            failures.setdefault(row["strategy"], row["failure"])
    for strategy, failure in failures.items():
        print(f"  {strategy:44s} FAILED {failure[:160]}")
    sys.stdout.flush()


BANDWIDTH = {"gb_s": 1.0}


async def main() -> None:
    """Measure every problem that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--seconds", type=float, default=540, help="for everything")
    parser.add_argument("--settings", type=int, default=6, help="tried for each strategy")
    parser.add_argument("--hardware", default="H200")
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--strategies", nargs="*", default=[], help="parts of their names")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    bench = Bench(options.output, hardware_profile(options.hardware))
    BANDWIDTH["gb_s"] = bench.copy_gb_s()
    print(f"{torch.cuda.get_device_name()}: copy {BANDWIDTH['gb_s']:.0f} GB/s")
    wanted = [name for name in problems() if not options.only or name in options.only]
    for at, name in enumerate(wanted):
        left = end - time.monotonic()
        if left < 5:
            print(f"no time left for {', '.join(wanted[at:])}")
            break
        try:
            share = left / (len(wanted) - at)
            await measure(bench, problems()[name](), options.settings, share, options.strategies)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}")
            bench.write(problem=name, failure=str(error)[:400])
        torch.cuda.empty_cache()
    shutdown_compilers()


if __name__ == "__main__":
    asyncio.run(main())
