"""Times attention in one kernel beside the library's, on shapes that models have.

For each shape: PyTorch's own call as it dispatches, each of its backends by name, and our kernel
under its first settings and a few others, compiled beforehand, with a flushed L2. Every result is
held against float64 on some heads, and against the library's on all. With a bias torch.compile
of the operators written out competes too, and in float32 torch.compile of the call, and what the
playbook makes of it without a kernel for attention: two products around a softmax. One JSON line a
measurement, written as it is made; `error_ratio` is the error over that of PyTorch's own call.

    python benchmarks/codegen/kernels/attention.py attention.jsonl --seconds 85
    python benchmarks/codegen/kernels/attention.py single.jsonl --seconds 60 --kind float32

What is not covered: backward passes, and clocks (read those beside it).
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks" / "codegen")]

import torch
import torch.nn.functional as F
from strategies.bench import Bench
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.candidates import complete_settings
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.cuda.attention.split import SPLIT_ATTENTION_FAMILY
from kernelwright.tools.codegen.cuda.emitter import FAMILIES
from kernelwright.tools.codegen.ir import Buffer, LibraryCall, PlanLine
from kernelwright.tools.codegen.library.forms.forms import PRODUCTS_FORM
from kernelwright.tools.codegen.library.kernel_library import FORM, repertoire_for
from kernelwright.tools.languages import (
    CompileFailure,
    compile_candidate,
    load_candidate,
    new_candidate,
    parse_kernel,
    shutdown_compilers,
    with_settings,
)
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Candidate, DType, Setting, Task, TracePolicy

EMITTER = CudaEmitter()
# What the playbook did before float32 attention had a kernel.
WITHOUT = CudaEmitter([one for one in FAMILIES if one is not SPLIT_ATTENTION_FAMILY])
# A candidate takes milliseconds: one that is not done by then waits for what never comes.
HANGS_S = 10.0
BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
# Changes to the first settings; what does not fit a shape is left out.
CHANGES: tuple[dict[str, int], ...] = (
    {},
    {"TURNS": 0},
    {"PERSISTENT": 0},
    {"ROWS": 192},
    {"ROWS": 64},
    {"KEYS": 64, "STAGES": 4},
    {"STAGES": 3},
    {"TOGETHER": 1},
    {"TOGETHER": 4},
    {"TOGETHER": 16},
    {"KEYS": 192},
    {"SUMS_FIRST": 1},
    {"SUMS_FIRST": 0, "TURNS": 1},
    {"KEYS": 64},
    {"ROWS": 192, "KEYS": 64},
)
OURS, SEPARATE = "ours", "separate_products"


@dataclass(frozen=True)
class Shape:
    """Sizes of one call.

    `mask`: "bias" (a number a pair), "padding" (a flag a key) or "padding_rows" (a flag a pair).
    """

    name: str
    batch: int
    heads: int
    length: int
    width: int
    is_causal: bool = False
    kind: str = "float16"
    key_heads: int = 0
    mask: str = ""

    @property
    def shared_heads(self) -> int:
        """Heads of keys and values."""
        return self.key_heads or self.heads

    @property
    def flops(self) -> float:
        """Of both products, half of them where the call is causal."""
        pairs = self.batch * self.heads * self.length**2 / (2 if self.is_causal else 1)
        return 4.0 * pairs * self.width

    def buffers(self) -> tuple[Buffer, ...]:
        """What the call reads."""
        sizes = {
            "q": (self.batch, self.heads, self.length, self.width),
            "k": (self.batch, self.shared_heads, self.length, self.width),
            "v": (self.batch, self.shared_heads, self.length, self.width),
        }
        kinds = dict.fromkeys(sizes, DType(self.kind))
        if self.mask == "bias":
            sizes["mask"] = (1, self.heads, self.length, self.length)
            kinds["mask"] = DType(self.kind)
        if self.mask == "padding":
            sizes["mask"] = (self.batch, 1, 1, self.length)
            kinds["mask"] = DType.BOOL
        if self.mask == "padding_rows":
            sizes["mask"] = (self.batch, 1, self.length, self.length)
            kinds["mask"] = DType.BOOL
        return tuple(
            Buffer(name=name, shape=size, dtype=kinds[name], role="input")
            for name, size in sizes.items()
        )

    def call(self) -> LibraryCall:
        """The call as a plan writes it."""
        inputs = self.buffers()
        words = ["q", "k", "v", "mask" if self.mask else "None", "0.0", str(self.is_causal)]
        words += ["enable_gqa=True"] if self.key_heads else []
        line = PlanLine(
            text=f"y = aten.scaled_dot_product_attention({', '.join(words)})",
            makes=("y",),
            uses=tuple(one.name for one in inputs),
            operator="aten.scaled_dot_product_attention.default",
        )
        result = inputs[0].model_copy(update={"name": "y", "role": "output"})
        return LibraryCall(line=line, operands=inputs, results=(result,))


SHAPES = (
    Shape("short_64", 32, 16, 512, 64),
    Shape("short_causal_128", 16, 16, 1024, 128, is_causal=True),
    Shape("long_64", 4, 16, 4096, 64),
    Shape("long_causal_64", 4, 16, 4096, 64, is_causal=True),
    Shape("long_128", 4, 16, 4096, 128),
    Shape("long_causal_128", 4, 16, 4096, 128, is_causal=True, kind="bfloat16"),
    Shape("longest_128", 4, 8, 8192, 128),
    Shape("longest_causal_128", 4, 8, 8192, 128, is_causal=True, kind="bfloat16"),
    Shape("shared_heads_128", 4, 32, 4096, 128, is_causal=True, kind="bfloat16", key_heads=8),
    Shape("bias_64", 4, 16, 2048, 64, mask="bias"),
    Shape("padding_64", 8, 16, 2048, 64, mask="padding"),
    Shape("odd_128", 8, 16, 1999, 128, is_causal=True),
    Shape("bert_64", 16, 12, 512, 64, kind="bfloat16", mask="padding_rows"),
    Shape("vit_64", 64, 12, 197, 64, kind="bfloat16"),
    Shape("patches_72", 32, 16, 256, 72, kind="bfloat16"),
    Shape("single_64", 4, 16, 2048, 64, kind="float32"),
    Shape("single_causal_96", 16, 8, 512, 96, is_causal=True, kind="float32"),
    Shape("single_causal_128", 4, 16, 2048, 128, is_causal=True, kind="float32"),
    Shape("single_short_64", 32, 16, 512, 64, kind="float32"),
    Shape("single_image_32", 2, 4, 8192, 32, kind="float32"),
    Shape("single_bias_64", 4, 16, 1024, 64, kind="float32", mask="bias"),
    Shape("single_windows_32", 640, 3, 49, 32, kind="float32", mask="bias"),
    Shape("single_padding_odd_64", 8, 16, 999, 64, kind="float32", mask="padding"),
)


def drawn(shape: Shape) -> dict[str, torch.Tensor]:
    """Inputs on the device; no row is masked out altogether."""
    torch.manual_seed(7)
    made = {}
    for one in shape.buffers():
        if one.dtype is DType.BOOL:
            made[one.name] = torch.rand(one.shape, device="cuda") < 0.8
            made[one.name][..., 0] = True
        else:
            dtype = getattr(torch, one.dtype.value)
            made[one.name] = torch.randn(one.shape, device="cuda", dtype=dtype)
    return made


def library(shape: Shape, data: dict[str, torch.Tensor]) -> torch.Tensor:
    """PyTorch's own call."""
    return F.scaled_dot_product_attention(
        data["q"],
        data["k"],
        data["v"],
        attn_mask=data.get("mask"),
        is_causal=shape.is_causal,
        enable_gqa=bool(shape.key_heads),
    )


def written_out(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor
) -> torch.Tensor:
    """The operators as modules with a bias write them."""
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + mask
    return torch.softmax(scores, dim=-1) @ v


class Truth:
    """Some heads of a call in float64."""

    def __init__(self, shape: Shape, data: dict[str, torch.Tensor]) -> None:
        last = shape.batch - 1, shape.heads // 2
        places = (0, 0), (0, shape.heads - 1), last
        self._heads = {place: _true_head(shape, data, *place) for place in places}

    def worst_error(self, found: torch.Tensor) -> float:
        """The largest error, in the size of the largest result."""
        gaps = [
            (found[place].double() - true).abs().max() / true.abs().max()
            for place, true in self._heads.items()
        ]
        return max(gap.item() if gap.isfinite() else float("inf") for gap in gaps)


def _true_head(shape: Shape, data: dict[str, torch.Tensor], batch: int, head: int) -> torch.Tensor:
    shared = head * shape.shared_heads // shape.heads
    heads = zip("qkv", (head, shared, shared), strict=True)
    q, k, v = (data[name][batch, at].double() for name, at in heads)
    mask = None
    if shape.mask:
        mask = data["mask"].expand(shape.batch, shape.heads, -1, -1)[batch, head]
        mask = mask if mask.dtype is torch.bool else mask.double()
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=shape.is_causal)


def candidates(shape: Shape, hardware: Hardware) -> list[tuple[str, Candidate]]:
    """Our kernel under its first settings and changes of them that fit, and what was before."""
    call = shape.call()
    (strategy,) = EMITTER.strategies(call, hardware)
    emitted = EMITTER.emit(call, strategy, "k", hardware)
    kernel = EMITTER.header() + emitted.source
    parsed = parse_kernel(kernel, "cuda")
    made = f'y = empty({call.results[0].shape}, dtype="{shape.kind}")'
    lines = "".join(f"    {line}\n" for line in (made, *emitted.plan, "return y"))
    names = ", ".join(one.name for one in call.operands)
    base = new_candidate("cuda", kernel, f"def forward({names}):\n{lines}")
    tried: list[Candidate] = []
    for change in CHANGES:
        wanted = [Setting(name=f"K_{name}", value=value) for name, value in change.items()]
        try:
            chosen = with_settings(base, complete_settings(parsed, wanted))
        except ValueError:
            continue
        if all(chosen.settings != other.settings for other in tried):
            tried.append(chosen)
    separate = _separate_products(shape, hardware) if shape.kind == "float32" else None
    first, *others = [(OURS, one) for one in tried]
    return [first, *([(SEPARATE, separate)] if separate else []), *others]


MODULE = """
import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def forward(self, {names}):
        return {attention}

def get_inputs():
    return [{inputs}]
"""


def _separate_products(shape: Shape, hardware: Hardware) -> Candidate | None:
    """What the playbook made of it without the kernel; None where that is the library's call."""
    if shape.mask.startswith("padding"):
        return None
    attention = f"F.scaled_dot_product_attention(q, k, v, is_causal={shape.is_causal})"
    if shape.mask:
        factor = 1 / math.sqrt(shape.width)
        attention = f"torch.softmax(q @ k.transpose(-2, -1) * {factor} + mask, dim=-1) @ v"
    buffers = shape.buffers()
    inputs = ", ".join(f"torch.empty({one.shape})" for one in buffers)
    names = ", ".join(one.name for one in buffers)
    source = MODULE.format(names=names, attention=attention, inputs=inputs)
    task = trace(source, "attention_module.py", TracePolicy())
    if not isinstance(task, Task):
        return None
    playbook = repertoire_for(task, hardware, WITHOUT)
    forms = [one.strategy.name for one in playbook.options() if one.loop == FORM]
    # Where it is the only form there is nothing to choose.
    draft = playbook.draft({FORM: PRODUCTS_FORM.name} if PRODUCTS_FORM.name in forms else {})
    if "aten.scaled_dot_product" in draft.plan:
        return None
    return with_settings(
        new_candidate("cuda", draft.kernel, draft.plan),
        complete_settings(parse_kernel(draft.kernel, "cuda")),
    )


def measured_library(
    bench: Bench, shape: Shape, data: dict[str, torch.Tensor], truth: Truth
) -> torch.Tensor:
    """Times what PyTorch has; its result."""

    def timed(kind: str, job: Callable[[], torch.Tensor]) -> None:
        try:
            error = truth.worst_error(job())
            ms = bench.median_ms(job)
            entry = {"ms": ms, "tflops": shape.flops / ms / 1e9, "error": error}
        except Exception as refused:
            entry = {"failure": str(refused)[:200]}
        bench.write(problem=shape.name, kind=kind, **entry)
        print(f"{shape.name:20s} {kind:18s} {_shown(entry)}", flush=True)

    timed("library", lambda: library(shape, data))
    for name, backend in BACKENDS.items():
        with sdpa_kernel(backend):
            timed(f"library_{name}", lambda: library(shape, data))
    if shape.kind == "float32":
        called = torch.compile(library)
        timed("compiled_call", lambda: called(shape, data))
    if shape.mask == "bias":
        compiled = torch.compile(written_out)
        timed("compiled", lambda: compiled(*(data[name] for name in ("q", "k", "v", "mask"))))
    return library(shape, data)


def _shown(entry: dict[str, object]) -> str:
    if "failure" in entry:
        return f"FAILED {entry['failure']}"
    return f"{entry['ms']:8.3f} ms {entry['tflops']:6.0f} TFLOP/s  error {entry['error']:.1e}"


def measured(
    bench: Bench,
    shape: Shape,
    one: Candidate,
    built: object,
    data: dict[str, torch.Tensor],
    truth: Truth,
) -> dict[str, object]:
    """One candidate's time and errors."""
    if isinstance(built, CompileFailure):
        return {"failure": built.message[:300]}
    runner = load_candidate(one, built, "cuda:0")
    inputs = [data[buffer.name] for buffer in shape.buffers()]
    (found,) = runner(inputs, {})
    torch.cuda.synchronize()
    error = truth.worst_error(found)
    gap = (found.float() - data["library"].float()).abs().max().item()
    ms = bench.median_ms(lambda: runner(inputs, {}))
    reports = [(report.registers, report.spill_bytes) for report in built.reports]
    rate = shape.flops / ms / 1e9
    return {
        "ms": ms,
        "tflops": rate,
        "error": error,
        "error_ratio": error / truth.worst_error(data["library"]),
        "unlike_library": gap,
        "reports": reports,
    }


async def main() -> None:
    """Measure every shape."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--seconds", type=float, default=85.0, help="for everything")
    parser.add_argument("--only", nargs="*", default=[], help="shapes")
    parser.add_argument("--kind", default="", help="shapes of this type alone")
    parser.add_argument("--begin", type=int, help="go on with the candidate of this number")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    bench = Bench(options.output, hardware_profile("H200"), goes_on=options.begin is not None)
    shapes = [one for one in SHAPES if not options.only or one.name in options.only]
    shapes = [one for one in shapes if options.kind in ("", one.kind)]
    listed = [(shape, *one) for shape in shapes for one in candidates(shape, bench.hardware)]
    builds = [
        asyncio.ensure_future(compile_candidate(one, architecture="sm_90a", timeout_s=60))
        for _, _, one in listed
    ]
    begin = options.begin or 0
    data: dict[str, torch.Tensor] = {}
    held, mine = None, end
    for at, ((shape, kind, one), building) in enumerate(zip(listed, builds, strict=True)):
        is_late = time.monotonic() > (mine if held is shape else end)
        if at < begin or is_late:
            building.cancel()
            continue
        built = await building
        if held is not shape:
            # Every shape has an equal share of the time that is left.
            left = len(shapes) - shapes.index(shape)
            mine = time.monotonic() + (end - time.monotonic()) / left
            data, held = drawn(shape), shape
            truth = Truth(shape, data)
            is_first = at == 0 or listed[at - 1][0] is not shape
            measure = measured_library(bench, shape, data, truth) if is_first else None
            data["library"] = library(shape, data) if measure is None else measure
        words = " ".join(f"{s.name.removeprefix('K_')}={s.value}" for s in one.settings)
        entry: dict[str, object] = {"problem": shape.name, "kind": kind, "settings": words}
        timer = threading.Timer(HANGS_S, _go_on, (bench, entry, options, at + 1, end))
        timer.start()
        try:
            entry |= measured(bench, shape, one, built, data, truth)
        except Exception as error:
            entry["failure"] = f"{type(error).__name__}: {error}"[:300]
        finally:
            timer.cancel()
        bench.write(**entry)
        print(f"{shape.name:20s} {kind:18s} {_shown(entry)}  {words}", flush=True)
        if "failure" in entry and _context_is_lost():
            _become_another(options, at + 1, end)
    shutdown_compilers()


def _context_is_lost() -> bool:
    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def _go_on(
    bench: Bench, entry: dict[str, object], options: argparse.Namespace, at: int, end: float
) -> None:
    """A candidate hangs: say so, and become a process that begins with the next one."""
    bench.write(**entry, failure=f"not done within {HANGS_S:g} s")
    _become_another(options, at, end)


def _become_another(options: argparse.Namespace, at: int, end: float) -> None:
    left = max(1.0, end - time.monotonic())
    line = [str(options.output), "--seconds", f"{left:.0f}", "--begin", str(at)]
    line += ["--only", *options.only] if options.only else []
    line += ["--kind", options.kind] if options.kind else []
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, __file__, *line])


if __name__ == "__main__":
    asyncio.run(main())
