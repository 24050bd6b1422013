"""Norms behind products on a device: statistics taken by the product, and by kernels of their own.

    python benchmarks/codegen/kernels/norm_statistics.py OUT.jsonl [--seconds 420]
        [--match conv,linear] [--plan-only]

For every module one line for eager PyTorch and one for torch.compile (its default mode), then one
for each form under its first setting and a wider strip: as the module wrote it (the library's
product and a norm of ours), with a product of ours and a norm behind it, and with the norm's
statistics taken by the product (`norm_statistics`). Each has the median of repeated calls on a
flushed L2 with the host ahead, the time that was expected, microseconds of each kernel, the largest
error against float64, and how many times eager's own error that is. `--plan-only` writes what is
expected and compiles nothing; it needs no device.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

import torch

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.candidates import complete_settings
from kernelwright.tools.codegen.library.forms.products import STATISTICS
from kernelwright.tools.codegen.library.kernel_library import (
    FORM,
    Option,
    PlaybookRepertoire,
    repertoire_for,
)
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
from kernelwright.tools.types import Candidate, Refusal, Setting, TracePolicy

FORMS = ("as_written", "products", "convolutions", STATISTICS)
FILE = """
import torch
import torch.nn.functional as F

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = torch.nn.{first}
        self.norm = torch.nn.{norm}

    def forward(self, x):
        return {returned}

def get_inputs():
    torch.manual_seed(1)
    return [torch.randn({shape})]
"""
# The product, the norm, the input's shape, and what is returned.
MODULES = {
    "conv_group": (
        "Conv2d(64, 128, 3, padding=1)", "GroupNorm(8, 128)", "16, 64, 256, 256",
        "F.hardswish(self.norm(self.first(x)))",
    ),
    "conv_batch": (
        "Conv2d(64, 128, 3, padding=1)", "BatchNorm2d(128)", "64, 64, 112, 112",
        "F.relu(self.norm(self.first(x)))",
    ),
    "conv_instance": (
        "Conv2d(64, 128, 3)", "InstanceNorm2d(128)", "64, 64, 192, 192",
        "self.norm(self.first(x)) / 2",
    ),
    "conv_group_pool": (
        "Conv2d(16, 64, 3)", "GroupNorm(16, 64)", "64, 16, 192, 192",
        "F.max_pool2d(self.norm(self.first(x)), 4)",
    ),
    "conv_volume": (
        "Conv3d(32, 64, 3)", "GroupNorm(8, 64)", "16, 32, 24, 64, 64",
        "self.norm(F.hardswish(self.first(x)))",
    ),
    "turned_batch": (
        "ConvTranspose2d(64, 64, 4, stride=2, padding=1)", "BatchNorm2d(64)", "32, 64, 96, 96",
        "torch.tanh(self.norm(self.first(x)))",
    ),
    "points_group": (
        "Conv2d(64, 256, 1)", "GroupNorm(32, 256)", "64, 64, 56, 56",
        "F.relu(self.norm(self.first(x)))",
    ),
    "linear_layer": (
        "Linear(1024, 1024)", "LayerNorm(1024)", "65536, 1024", "self.norm(self.first(x))",
    ),
    "linear_group": (
        "Linear(4096, 8192)", "GroupNorm(16, 8192)", "4096, 4096",
        "F.silu(self.norm(self.first(x)))",
    ),
    "linear_batch": (
        "Linear(512, 2048)", "BatchNorm1d(2048)", "65536, 512", "F.gelu(self.norm(self.first(x)))",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Job:
    """One candidate of one module; `expected_ms` is the whole module's time."""

    module: str
    form: str
    expected_ms: float
    changes: str
    candidate: Candidate


def source_of(name: str) -> str:
    """The module's file."""
    first, norm, shape, returned = MODULES[name]
    return FILE.format(first=first, norm=norm, shape=shape, returned=returned)


def jobs_of(name: str, hardware: Hardware) -> Iterator[Job]:
    """Every form under its first setting, products of ours with a wider strip as well."""
    small = source_of(name).replace("torch.randn", "torch.empty")  # nothing is drawn to trace it
    task = trace(small, f"{name}.py", TracePolicy(device="cpu"))
    if isinstance(task, Refusal):
        raise ValueError(f"{name}: {task.sentence}")
    repertoire = repertoire_for(task, hardware)
    for form, (expected_ms, choices) in _forms(repertoire).items():
        draft = repertoire.draft(choices)
        base = new_candidate("cuda", draft.kernel, draft.plan)
        parsed = parse_kernel(draft.kernel, "cuda")
        for changes in ({}, {"SPAN": 32}):
            wanted = [
                Setting(name=one.name, value=value)
                for one in parsed.tunables
                for key, value in changes.items()
                if one.name.endswith(f"_{key}") and value in one.values
            ]
            if len(wanted) < len(changes):
                continue
            shown = " ".join(f"{key}={value}" for key, value in changes.items())
            setting = complete_settings(parsed, wanted)
            yield Job(name, form, expected_ms, shown, with_settings(base, setting))


def _forms(repertoire: PlaybookRepertoire) -> dict[str, tuple[float, dict[str, str]]]:
    """Forms with the strategies predicted fastest: the time of all, and the choices."""
    options, found = repertoire.options(), dict[str, tuple[float, dict[str, str]]]()
    fixed = {one.strategy.name: one.predicted_ms for one in options if one.loop == FORM}
    for form in (one for one in FORMS if one in fixed):
        mine = [one for one in options if one.loop != FORM and one.form == form]
        best: dict[str, Option] = {}
        for one in sorted(mine, key=lambda option: option.predicted_ms):
            best.setdefault(one.loop, one)
        choices = {loop: one.strategy.name for loop, one in best.items()}
        expected_ms = fixed[form] + sum(one.predicted_ms for one in best.values())
        found[form] = (expected_ms, {**choices, FORM: form})
    return found


async def run(options: argparse.Namespace, names: list[str], hardware: Hardware) -> None:
    """Compile everything, then measure module after module until the time is over."""
    from strategies.bench import Bench

    bench, end = Bench(options.output, hardware), time.monotonic() + options.seconds
    jobs = {name: list(jobs_of(name, hardware)) for name in names}
    builds = {
        job.candidate.id: asyncio.ensure_future(
            compile_candidate(job.candidate, architecture=hardware.architecture, timeout_s=90)
        )
        for of in jobs.values()
        for job in of
    }
    for name, of in jobs.items():
        built = [await builds[job.candidate.id] for job in of]
        if time.monotonic() > end:
            print(f"no time left for {name}")
            continue
        _measure(bench, name, of, built)
    shutdown_compilers()


def _module(name: str) -> tuple[torch.nn.Module, torch.Tensor]:
    space: dict[str, Any] = {}
    exec(source_of(name), space)
    (x,) = space["get_inputs"]()
    return space["Model"](), x


def _measure(bench: Any, name: str, jobs: list[Job], built: list[Any]) -> None:
    torch.cuda.empty_cache()
    model, x = _module(name)
    weights = {key: value.detach().cuda() for key, value in model.state_dict().items()}
    model, x = model.cuda(), x.cuda()
    with torch.no_grad():
        truth = _module(name)[0].double().cuda()(x.double())
        own = float((model(x).double() - truth).abs().max())
        eager = bench.median_ms(lambda: model(x))
        bench.write(module=name, kind="eager", ms=eager, error=own)
        compiled = torch.compile(model)
        compiled(x)
        bench.write(module=name, kind="compiled", ms=bench.median_ms(lambda: compiled(x)))
    for job, made in zip(jobs, built, strict=True):
        entry: dict[str, object] = {"module": name, "form": job.form, "changes": job.changes}
        entry["expected_ms"] = round(job.expected_ms, 4)
        try:
            entry |= _one(bench, job.candidate, made, (x, weights), truth, own)
        except Exception as error:
            entry["failure"] = f"{type(error).__name__}: {error}"[:400]
        bench.write(**entry)
        print(json.dumps(entry), flush=True)


def _one(
    bench: Any,
    candidate: Candidate,
    built: Any,
    given: tuple[torch.Tensor, dict[str, torch.Tensor]],
    truth: torch.Tensor,
    own: float,
) -> dict[str, object]:
    from strategies.bench import kernels_us

    if isinstance(built, CompileFailure):
        return {"failure": built.message[:400]}
    x, weights = given
    runner = load_candidate(candidate, built, "cuda:0")
    fresh = {key: value.clone() for key, value in weights.items()}
    runner.prepare(fresh)
    (found,) = runner([x], fresh)
    error = float((found.double() - truth).abs().max())
    del found
    ms = bench.median_ms(lambda: runner([x], fresh))
    reports = [(one.registers, one.spill_bytes) for one in built.reports]
    times = kernels_us(lambda: runner([x], fresh))
    return {
        "ms": ms, "error": error, "times_eager_error": error / own if own else None,
        "reports": reports, "kernels_us": times,
    }  # fmt: skip


def plan(options: argparse.Namespace, names: list[str], hardware: Hardware) -> None:
    """Write what each form is expected to take."""
    with options.output.open("w", encoding="utf-8") as file:
        for name in names:
            for job in jobs_of(name, hardware):
                entry: dict[str, object] = {
                    "module": name,
                    "form": job.form,
                    "changes": job.changes,
                }
                entry["expected_ms"] = round(job.expected_ms, 4)
                print(json.dumps(entry), file=file, flush=True)
                print(json.dumps(entry), flush=True)


def main() -> None:
    """Plan, or measure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=Path)
    parser.add_argument("--seconds", type=float, default=420)
    parser.add_argument("--match", default="", help="parts of modules' names, by commas")
    parser.add_argument("--hardware", default="H200")
    parser.add_argument("--plan-only", action="store_true")
    options = parser.parse_args()
    names = [one for one in MODULES if any(part in one for part in options.match.split(","))]
    hardware = hardware_profile(options.hardware)
    if options.plan_only:
        plan(options, names, hardware)
    else:
        asyncio.run(run(options, names, hardware))


if __name__ == "__main__":
    main()
