"""What a search would try first on a folder of modules, and how long each of it takes on a device.

    python benchmarks/codegen/module_candidates.py plan FOLDER plans.json [--hardware h200]
        [--ideas 6] [--match 1_*,17_*]
    python benchmarks/codegen/module_candidates.py plan PROJECT plans.json
        --builds zoo.gpt:make_model,zoo.vit:make_model [--train]
    python benchmarks/codegen/module_candidates.py run plans.json results.jsonl --seconds 300
        [--compiled] [--autotuned] [--held]
    python benchmarks/codegen/module_candidates.py table results.jsonl
    python benchmarks/codegen/module_candidates.py steps FOLDER steps.md [--match 1_*,17_*]

`plan` traces and writes the candidates of a first round and needs no device; with `--train` those
of a model's training step, a forward that keeps what the backward needs, and the backward, whose
files are written beside the plans. Their arguments are drawn like any task's: what is kept is no
forward's, which is enough to tell right answers from wrong ones and how long they take. `run`
compiles all of them, calls each once beside the module itself, and times it with the host ahead
and a flushed L2, kernel by kernel; `--compiled` does the same with torch.compile's, `--autotuned`
with its mode max-autotune-no-cudagraphs, and `--held` with plans that let go of nothing, for what
that is worth. `peak_mib` is what one call has allocated
at its height. Where a predicted time and a measured one differ, a cost model is wrong: that is what
this is for. `differs` is the largest difference from the module's own answer over the largest value
there; whether an answer is right only the judge says. Files are executed in this process: use it on
files that are trusted.

`steps` needs no device either: of each file that convolves it says what every form leaves to the
library, and which tensors kernels hand on through memory.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from math import prod
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from kernelwright.agents.coder.coder import CoderRequest, PlaybookCoder
from kernelwright.agents.planner.planner import PlannerInput
from kernelwright.agents.planner.playbook import PlaybookPlanner
from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.ir import PlanLine, Program
from kernelwright.tools.codegen.ir.roofline import line_ms
from kernelwright.tools.codegen.library.forms.forms import forms
from kernelwright.tools.codegen.library.kernel_library import Recipe, repertoire_for
from kernelwright.tools.tasks import import_exporter, trace
from kernelwright.tools.tasks.sources import find
from kernelwright.tools.types import Candidate, Idea, Refusal, Task, TracePolicy, Value


class Draft(Value):
    """One candidate of a first round, with what its idea expects."""

    choices: dict[str, str]
    predicted_ms: float
    candidate: Candidate


class Planned(Value):
    """One file's candidates, the most promising first."""

    task: Task
    drafts: tuple[Draft, ...]


class Plans(Value):
    """What `plan` hands to `run`."""

    files: tuple[Planned, ...]


def plan(options: argparse.Namespace) -> None:
    """Write the candidates of each file's first round."""
    hardware, found = hardware_profile(options.hardware), []
    options.output = options.output.absolute()
    for name, task in _built(options) if options.builds else _files(options):
        if isinstance(task, Refusal):
            print(f"{name}: {task.sentence}")
            continue
        began = time.perf_counter()
        drafts = asyncio.run(first_drafts(task, hardware, options.ideas))
        took_s = time.perf_counter() - began
        print(f"{name}: {len(drafts)} candidates in {took_s:.0f} s", flush=True)
        found.append(Planned(task=task, drafts=drafts))
    options.output.write_text(Plans(files=tuple(found)).model_dump_json(), encoding="utf-8")


def _files(options: argparse.Namespace) -> Iterator[tuple[str, Task | Refusal]]:
    """The modules of a folder whose names match, the shortest names first."""
    for path in sorted(options.source.glob("*.py"), key=lambda p: (len(p.stem), p.stem)):
        if any(fnmatch(path.stem, one) for one in options.match.split(",")):
            policy = TracePolicy(device="cpu")
            yield path.stem, trace(path.read_text(encoding="utf-8"), str(path), policy)


def _built(options: argparse.Namespace) -> Iterator[tuple[str, Task | Refusal]]:
    """Models that functions of a project build; their weights are written beside the plans."""
    os.chdir(options.source)
    policy = TracePolicy(makes=True, device="cuda")
    models = [(one, find(Path(one).absolute(), policy)) for one in options.builds.split(",")]
    os.chdir(options.output.parent)
    import_exporter()
    for name, model in models:
        if isinstance(model, Refusal):
            yield name, model
            continue
        began = time.perf_counter()
        task = trace(model.source, str(model.path), model.policy)
        print(f"{name}: read in {time.perf_counter() - began:.0f} s", flush=True)
        if options.train and isinstance(task, Task):
            yield from _step(name, task, options.output.parent)
        else:
            yield name, task


def _step(name: str, task: Task, folder: Path) -> Iterator[tuple[str, Task | Refusal]]:
    """The tasks of a training step: the forward of its own, where it has one, and the backward."""
    import torch

    from kernelwright.tools.tasks import Reference, draw
    from kernelwright.tools.tasks.gradients.backward import backward_of

    device, began = "cuda:0" if torch.cuda.is_available() else "cpu", time.perf_counter()
    reference = Reference.build(task, device)
    found = backward_of(reference, task, draw(task, "task", 0, device))
    print(f"{name}: backward traced in {time.perf_counter() - began:.0f} s", flush=True)
    print(found.model_copy(update={"source": "", "forward": ""}).model_dump_json(), flush=True)
    del reference
    for kind, source in (("forward", found.forward), ("backward", found.source)):
        if source:
            path = folder / f"{task.name}_{kind}.py"
            path.write_text(source, encoding="utf-8")
            policy = TracePolicy(device="cuda", allow=task.allow)
            yield f"{name} {kind}", trace(source, str(path), policy)


async def first_drafts(task: Task, hardware: Hardware, wanted: int) -> tuple[Draft, ...]:
    """The candidates of so many first ideas, the most promising first."""
    repertoire = repertoire_for(task, hardware)
    planner_input = PlannerInput(round=1, wanted=wanted, floor_ms=1e-3)
    ideas = (await PlaybookPlanner(repertoire).plan(planner_input)).ideas
    coder, made = PlaybookCoder(repertoire), []
    for idea in ideas:
        answer = await coder.write(CoderRequest(idea=idea, count=1))
        made += [_draft(idea, one) for one in answer.candidates]
    return tuple(made)


def _draft(idea: Idea, candidate: Candidate) -> Draft:
    recipe = Recipe.from_idea(idea)
    choices = recipe.choices if recipe else {}
    return Draft(choices=choices, predicted_ms=idea.predicted_ms or 0.0, candidate=candidate)


async def run(options: argparse.Namespace) -> None:
    """Compile everything, then call and time it, until the time is over."""
    from strategies.bench import Bench

    from kernelwright.tools.languages import compile_candidate, shutdown_compilers

    plans = Plans.model_validate_json(options.source.read_text(encoding="utf-8"))
    bench = Bench(options.output, hardware_profile(options.hardware))
    end = time.monotonic() + options.seconds
    architecture = bench.hardware.architecture
    builds = {
        draft.candidate.id: asyncio.ensure_future(
            compile_candidate(draft.candidate, architecture=architecture, timeout_s=90)
        )
        for planned in plans.files
        for draft in planned.drafts
    }
    for planned in plans.files:
        if time.monotonic() > end:
            print(f"no time left for {planned.task.name}")
            continue
        built = [await builds[draft.candidate.id] for draft in planned.drafts]
        try:
            _measure(bench, planned, built, options)
        except Exception as error:
            bench.write(file=planned.task.name, failure=f"{type(error).__name__}: {error}"[:400])
    for building in builds.values():
        building.cancel()
    shutdown_compilers()


def _measure(bench, planned: Planned, built: list, options: argparse.Namespace) -> None:
    import torch

    from kernelwright.tools.tasks import Reference, draw

    task = planned.task
    torch.cuda.empty_cache()  # what the file before took
    reference = Reference.build(task, "cuda:0")
    args = draw(task, "task", 0, "cuda:0")
    wanted = reference.forward(args)
    ways = {"eager": reference.forward}
    if options.compiled:
        ways["compiled"] = torch.compile(reference.forward)
    for kind, way in ways.items():
        _pytorch(bench, task.name, kind, lambda way=way: way(args))
    for draft, made in zip(planned.drafts, built, strict=True):
        entry = {"file": task.name, "predicted_ms": draft.predicted_ms, "choices": draft.choices}
        entry["settings"] = " ".join(f"{s.name}={s.value}" for s in draft.candidate.settings)
        given = (args, reference.weights())
        try:
            entry |= _one(bench, draft.candidate, made, given, wanted)
        except Exception as error:
            entry["failure"] = f"{type(error).__name__}: {error}"[:400]
        if options.held and "failure" not in entry:
            try:
                with _letting_nothing_go():
                    entry["held"] = _one(bench, draft.candidate, made, given, wanted)
            except Exception as error:
                entry["held"] = {"failure": f"{type(error).__name__}: {error}"[:400]}
        bench.write(**entry)
    if options.autotuned:  # last, as building it takes minutes
        tuned = torch.compile(reference.forward, mode="max-autotune-no-cudagraphs")
        _pytorch(bench, task.name, "autotuned", lambda: tuned(args))


def _pytorch(bench, file: str, kind: str, call: Callable[[], object]) -> None:
    """One of PyTorch's ways, which is built at the first call."""
    from strategies.bench import MODEL_AHEAD_CYCLES, kernels_us

    began = time.perf_counter()
    call()
    built_s = time.perf_counter() - began
    ms = bench.median_ms(call, 5, MODEL_AHEAD_CYCLES)
    used, peak = kernels_us(call), _peak_mib(call)
    bench.write(file=file, kind=kind, ms=ms, kernels_us=used, peak_mib=peak, built_s=built_s)


def _one(bench, candidate: Candidate, built, given, wanted) -> dict:
    from strategies.bench import MODEL_AHEAD_CYCLES, kernels_us

    from kernelwright.tools.languages import CompileFailure, load_candidate

    if isinstance(built, CompileFailure):
        return {"failure": built.message[:400]}
    runner = load_candidate(candidate, built, "cuda:0")
    runner.prepare(given[1])
    differs = max(map(_differs, runner(*given), wanted))
    ms = bench.median_ms(lambda: runner(*given), 5, MODEL_AHEAD_CYCLES)
    used = kernels_us(lambda: runner(*given))
    peak = _peak_mib(lambda: runner(*given))
    return {"ms": ms, "differs": differs, "kernels_us": used, "peak_mib": peak}


def _peak_mib(call: Callable[[], object]) -> float:
    """What a call has allocated at its height, its results included."""
    import torch

    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


@contextmanager
def _letting_nothing_go() -> Iterator[None]:
    """Plans that are loaded inside hold every tensor until they return."""
    from kernelwright.tools.candidates.run import runner

    usual = runner.letting_go
    runner.letting_go = lambda function: function
    try:
        yield
    finally:
        runner.letting_go = usual


def _differs(got, wanted) -> float:
    gap, most = (got.float() - wanted.float()).abs().max(), wanted.float().abs().max()
    return float(gap / most.clamp_min(1e-30))


def table(options: argparse.Namespace) -> None:
    """Print each file's candidates, the fastest first, with what was predicted."""
    rows = [json.loads(line) for line in options.source.read_text(encoding="utf-8").splitlines()]
    for name in dict.fromkeys(row["file"] for row in rows):
        mine = [row for row in rows if row["file"] == name]
        print(f"\n{name}")
        for row in sorted((row for row in mine if "ms" in row), key=lambda row: row["ms"]):
            if "kind" in row:
                print(f"  {row['ms']:8.3f} ms  {row['kind']}")
            else:
                chosen = " ".join(
                    f"{n} {way}" for way, n in Counter(row["choices"].values()).items()
                )
                print(f"  {row['ms']:8.3f} ms  predicted {row['predicted_ms']:.3f}  {chosen}")
                print(f"           differs {row['differs']:.1e}  {row['settings'][:400]}")
            longest = sorted(row.get("kernels_us", {}).items(), key=lambda one: -one[1])
            print("           " + "; ".join(f"{us:.0f} us {k[:48]}" for k, us in longest[:6]))
        for row in mine:
            if "failure" in row:
                print(f"  failed: {row.get('choices', '')} {row['failure'][:300]}")


_HEAD = "| file | form | predicted ms | with the library | kernels | through memory, MB |"


def steps(options: argparse.Namespace) -> None:
    """Write what each form of files that convolve leaves to the library and hands on."""
    hardware = hardware_profile(options.hardware)
    lines = [_HEAD, "|---" * (_HEAD.count("|") - 1) + "|"]
    for name, task in _files(options):
        if isinstance(task, Refusal):
            lines.append(f"| {name} | {task.sentence} | | | | |")
        elif any("convolution" in node.op for node in task.graph.nodes):
            lines += _forms(name, task, hardware)
        options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _forms(name: str, task: Task, hardware: Hardware) -> list[str]:
    emitter = CudaEmitter()
    found = forms(task, takes=lambda loop: bool(emitter.strategies(loop, hardware)))
    return [
        f"| {name} | {one.name} | {_predicted_ms(one.program, emitter, hardware):.3f} | "
        f"{_left(one.program)} | {len(one.program.loops)} | {_handed_on(one.program)} |"
        for one in found
    ]


def _predicted_ms(program: Program, emitter: CudaEmitter, hardware: Hardware) -> float:
    lines = (step for step in program.steps if isinstance(step, PlanLine))
    total = sum(line_ms(line, hardware) for line in lines)
    for loop in program.loops:
        ways = emitter.strategies(loop, hardware)
        total += min(emitter.predicted_ms(loop, way, hardware) for way in ways)
    return total


def _left(program: Program) -> str:
    lines = (step for step in program.steps if isinstance(step, PlanLine))
    return ", ".join(one.operator.split(".")[1] for one in lines if one.cost_bytes) or "-"


def _handed_on(program: Program) -> str:
    """Tensors of more than a megabyte that a loop reads and another step made."""
    made = {name for step in program.steps if isinstance(step, PlanLine) for name in step.makes}
    made |= {store.access.buffer for loop in program.loops for store in loop.stores}
    read = {s.access.buffer for loop in program.loops for s in loop.body if s.access is not None}
    sizes = {
        name: prod(program.buffer(name).shape) * program.buffer(name).dtype.itemsize_bytes / 1e6
        for name in sorted(made & read)
    }
    return ", ".join(f"{name} {size:.0f}" for name, size in sizes.items() if size > 1) or "-"


def main() -> None:
    """Do what the first word says."""
    words = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    words.add_argument("what", choices=("plan", "run", "table", "steps"))
    words.add_argument("source", type=Path)
    words.add_argument("output", type=Path, nargs="?", default=Path("candidates.jsonl"))
    words.add_argument("--hardware", default="h200")
    words.add_argument("--ideas", type=int, default=6)
    words.add_argument("--match", default="*", help="patterns of file names, with commas between")
    words.add_argument("--builds", default="", help="package.module:function, with commas between")
    words.add_argument("--train", action="store_true", help="the step's tasks of what is built")
    words.add_argument("--seconds", type=float, default=300.0)
    words.add_argument("--compiled", action="store_true", help="time torch.compile too")
    words.add_argument("--autotuned", action="store_true", help="its max-autotune as well")
    words.add_argument("--held", action="store_true", help="time plans that let go of nothing")
    options = words.parse_args()
    if options.what == "run":
        asyncio.run(run(options))
    else:
        {"plan": plan, "table": table, "steps": steps}[options.what](options)


if __name__ == "__main__":
    main()
