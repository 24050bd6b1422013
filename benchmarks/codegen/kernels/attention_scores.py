"""Times attention with a score function of its own beside what PyTorch makes of it.

For each module: eager PyTorch, torch.compile, `flex_attention` under torch.compile where it can say
the same, the playbook's first candidate of every other form (two products around loops among them),
and ours in one kernel under its first settings and a few others. A flushed L2, the host ahead;
every result is held against float64 on one batch. One JSON line a measurement.

    python benchmarks/codegen/kernels/attention_scores.py attention_scores.jsonl --seconds 200
    python benchmarks/codegen/kernels/attention_scores.py scores_single.jsonl --kind float32
        --seconds 150

What is not covered: backward passes, and clocks (read those beside it).
"""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks" / "codegen")]

import torch
from strategies.bench import Bench
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.candidates import complete_settings
from kernelwright.tools.codegen.library.kernel_library import FORM, repertoire_for
from kernelwright.tools.languages import (
    Built,
    compile_candidate,
    load_candidate,
    new_candidate,
    parse_kernel,
    shutdown_compilers,
    with_settings,
)
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Candidate, Setting, Task, TracePolicy

FILE = """
import math

import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.register_buffer("slopes", 2.0 ** -torch.arange(1, {heads} + 1).float())

    def forward(self, q, k, v):
        i = torch.arange({length}, device=q.device)[:, None]
        j = torch.arange({length}, device=q.device)[None]
        s = q @ k.mT / math.sqrt({width})
{body}

def get_inputs():
    return [torch.randn({batch}, {heads}, {length}, {width}, dtype=torch.{kind}) for _ in range(3)]
"""
SOFTCAP = "s = 30.0 * torch.tanh(s / 30.0)"
CAUSAL = "s = s.masked_fill(j > i, float('-inf'))"
SOFTMAX = "return torch.softmax(s, -1) @ v"
LINEAR = "s = s + self.slopes.to(q.dtype)[:, None, None] * (j - i)"
WINDOW = "s = s.masked_fill((j > i) | (i - j > 512), float('-inf'))"
# Changes to the first settings; what does not fit is left out.
CHANGES: tuple[dict[str, int], ...] = (
    {}, {"TURNS": 0}, {"ROWS": 128}, {"ROWS": 64}, {"ROWS": 192, "KEYS": 64}, {"KEYS": 64},
    {"TOGETHER": 4}, {"PERSISTENT": 0}, {"SUMS_FIRST": 1}, {"SUMS_FIRST": 0},
)  # fmt: skip
Data = list[torch.Tensor]


@dataclass(frozen=True)
class Scored:
    """A forward's lines, what flex_attention calls it ("" where it has no words), and sizes."""

    name: str
    body: str
    flex: str = ""
    batch: int = 4
    heads: int = 16
    length: int = 2048
    width: int = 128

    def source(self, kind: str) -> str:
        """The module's file."""
        body = "\n".join(f"        {line}" for line in self.body.splitlines())
        return FILE.format(body=body, heads=self.heads, length=self.length, width=self.width,
                           batch=self.batch, kind=kind)  # fmt: skip


CASES = (
    Scored("softcap_causal", f"{SOFTCAP}\n{CAUSAL}\n{SOFTMAX}", "softcap causal"),
    Scored("softcap_64", f"{SOFTCAP}\n{SOFTMAX}", "softcap", width=64),
    Scored("alibi_causal", f"{LINEAR}\n{CAUSAL}\n{SOFTMAX}", "alibi causal"),
    Scored("alibi_64", f"{LINEAR}\n{SOFTMAX}", "alibi", width=64),
    Scored("window", f"{WINDOW}\n{SOFTMAX}", "window"),
    Scored("relu", "return torch.relu(s) @ v"),
    Scored("relu_64", "return torch.relu(s) @ v", width=64),
    Scored("sigmoid", "return torch.sigmoid(s - math.log(2048)) @ v"),
    Scored("squared_relu_causal", "s = torch.relu(s).square().masked_fill(j > i, 0.0)\n"
           "return s / 2048 @ v"),
)  # fmt: skip


def flex(words: str, slopes: torch.Tensor, length: int) -> Callable[[Data], torch.Tensor]:
    """What flex_attention makes of it, compiled."""

    def changed(score: torch.Tensor, b: int, h: int, q: int, k: int) -> torch.Tensor:
        if "softcap" in words:
            score = 30.0 * torch.tanh(score / 30.0)
        return score + slopes[h] * (k - q) if "alibi" in words else score

    def kept(b: int, h: int, q: int, k: int) -> torch.Tensor:
        return (q >= k) & (q - k <= 512) if "window" in words else q >= k

    is_masked = "causal" in words or "window" in words
    mask = create_block_mask(kept, None, None, length, length) if is_masked else None
    compiled = torch.compile(flex_attention)
    return lambda data: compiled(*data, score_mod=changed, block_mask=mask)


def shown(tunable: str) -> str:
    """A tunable's name without that of its kernel."""
    return re.sub(r"^.*_BY_ALGEBRA_\d+_", "", tunable)


def candidates(task: Task, hardware: Hardware) -> list[tuple[str, Candidate]]:
    """The first candidate of every form, and ours under changes of its first settings."""
    playbook = repertoire_for(task, hardware)
    forms = [one.strategy.name for one in playbook.options() if one.loop == FORM]
    found: list[tuple[str, Candidate]] = []
    for form in forms:
        draft = playbook.draft({FORM: form})
        plain = new_candidate("cuda", draft.kernel, draft.plan)
        parsed = parse_kernel(draft.kernel, "cuda")
        names = {shown(one.name): one.name for one in parsed.tunables}
        for change in CHANGES if form == "scored_attention" else ({},):
            wanted = [Setting(name=names.get(k, k), value=v) for k, v in change.items()]
            try:
                chosen = with_settings(plain, complete_settings(parsed, wanted))
            except ValueError:
                continue
            if all(chosen.settings != other.settings for _, other in found):
                found.append((form, chosen))
    return sorted(found, key=lambda one: one[0] != "scored_attention")


def error(found: torch.Tensor, truth: torch.Tensor) -> float:
    """The largest error of the first batch, in the size of the largest result."""
    gap = (found[:1].double() - truth).abs().max() / truth.abs().max()
    return gap.item() if gap.isfinite() else float("inf")


async def measured(bench: Bench, case: Scored, kind: str, end: float) -> None:
    """One module in every way."""
    space: dict[str, object] = {}
    source = case.source(kind)
    exec(source, space)
    module = space["Model"]().cuda().eval()  # type: ignore[operator]
    task = trace(source, "attention_scores.py", TracePolicy())
    if not isinstance(task, Task):
        raise SystemExit(f"{case.name}: {task.sentence}")
    listed = candidates(task, bench.hardware)
    builds = [
        asyncio.ensure_future(compile_candidate(one, architecture="sm_90a", timeout_s=60))
        for _, one in listed
    ]
    torch.manual_seed(7)
    sizes = (case.batch, case.heads, case.length, case.width)
    data = [torch.randn(sizes, device="cuda").to(getattr(torch, kind)) for _ in range(3)]
    with torch.no_grad():
        truth = module.double()(*(one[:1].double() for one in data))
        module.float()
        own = error(module(*data), truth)
        compiled = torch.compile(module)
        ways: dict[str, Callable[[], torch.Tensor]] = {
            "eager": lambda: module(*data), "compiled": lambda: compiled(*data)
        }  # fmt: skip
        if case.flex:
            other = flex(case.flex, module.slopes, case.length)
            ways["flex"] = lambda: other(data)
        for way, job in ways.items():
            _timed(bench, case, kind, way, "", job, truth, own)
        weights = dict(module.state_dict())
        for (way, one), building in zip(listed, builds, strict=True):
            if time.monotonic() > end:
                building.cancel()
                continue
            built = await building
            if not isinstance(built, Built):
                bench.write(problem=case.name, type=kind, kind=way, failure=built.message[:300])
                continue
            runner = load_candidate(one, built, "cuda:0")
            words = " ".join(f"{shown(s.name)}={s.value}" for s in one.settings)
            _timed(bench, case, kind, way, words, lambda r=runner: r(data, weights)[0], truth, own)


def _timed(
    bench: Bench,
    case: Scored,
    kind: str,
    way: str,
    words: str,
    job: Callable[[], torch.Tensor],
    truth: torch.Tensor,
    own: float,
) -> None:
    try:
        off = error(job(), truth)
        entry: dict[str, object] = {"ms": bench.median_ms(job), "error": off}
        entry["error_ratio"] = off / own
    except Exception as refused:
        entry = {"failure": f"{type(refused).__name__}: {refused}"[:300]}
    bench.write(problem=case.name, type=kind, kind=way, settings=words, **entry)
    print(f"{case.name:20s} {kind:9s} {way:24s} {entry} {words}", flush=True)


async def main() -> None:
    """Measure every module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--seconds", type=float, default=200.0, help="for everything")
    parser.add_argument("--only", nargs="*", default=[], help="modules")
    parser.add_argument("--kind", default="float16", help="float16, bfloat16 or float32")
    options = parser.parse_args()
    bench = Bench(options.output, hardware_profile("H200"))
    cases = [one for one in CASES if not options.only or one.name in options.only]
    for at, case in enumerate(cases):
        # Every module has an equal share of the time that is left.
        begin = time.monotonic()
        mine = options.seconds / (len(cases) - at)
        await measured(bench, case, options.kind, begin + mine)
        options.seconds -= time.monotonic() - begin
    shutdown_compilers()


if __name__ == "__main__":
    asyncio.run(main())
