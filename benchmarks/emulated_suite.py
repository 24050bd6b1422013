"""Proves the playbook's CUDA kernels on a folder of KernelBench-style files, without a GPU.

    python benchmarks/emulated_suite.py FOLDER_OR_FILE... --out FILE [--match TEXT] [--share 0/1]
        [--kinds even,odd,one,float16,bfloat16,transposed] [--real]
        [--written] [--channels-last]

Every file's sizes are made small, it is traced and lowered as `kernelwright` does, every strategy
that CUDA offers for its loops is written under its first setting and another one, and the kernels
run in the emulator under their plan, each held against PyTorch in float64 by the judge's error
ratio. With `--real` the sizes stay: then nothing runs, and every strategy is compiled with NVRTC
for sm_90a and sm_80 instead; with `--written` they stay and nothing is compiled either. With
`--channels-last` files are put as the library convolves faster. One line of JSON a file and kind;
what fails stands in it.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import re
import signal
import tempfile
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

import torch
from emulated_device import Emulated, prelude
from emulated_sizes import resized, typed

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.candidates import valid_settings
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.ir import Loop, PlanLine, Program, Strategy
from kernelwright.tools.codegen.ir.rewrites import rewrite
from kernelwright.tools.codegen.library.assemble import assemble
from kernelwright.tools.codegen.lower import lower
from kernelwright.tools.evaluate.verify.errors import distance
from kernelwright.tools.languages import (
    CompileFailure,
    compile_candidate,
    new_candidate,
    parse_kernel,
)
from kernelwright.tools.tasks import Reference, draw, rehearse, trace
from kernelwright.tools.types import Candidate, Refusal, Setting, Task, TracePolicy

EMITTER = CudaEmitter()
H200, A100 = hardware_profile("H200"), hardware_profile("A100")
SMALL = H200.model_copy(update={"sm_count": 4, "cache_mib": 1.0})
CAPS = (1536, 384, 96, 48, 24, 16, 12, 8, 6)
MOST_ELEMENTS = 30_000
MOST_THREADS = 256
BOUND = 4.0
LAST = "channels last, "
_INDEX = re.compile(r"constexpr (int|long long) (?:END|ROWS|COLUMNS)")
Line = dict[str, object]


def main() -> None:
    """Every file in a process of its own; a crash or a hang costs its line only."""
    words = argparse.ArgumentParser(description="Every kernel of many files, emulated.")
    words.add_argument("paths", nargs="+", type=Path)
    words.add_argument("--out", required=True, type=Path)
    words.add_argument("--match", default="")
    words.add_argument("--share", default="0/1", help="which of how many equal shares")
    words.add_argument("--kinds", default="even,odd")
    words.add_argument("--real", action="store_true")
    words.add_argument("--written", action="store_true")
    words.add_argument("--channels-last", action="store_true")
    words.add_argument("--seconds", type=int, default=240, help="the most one file may take")
    asked = words.parse_args()
    index, count = map(int, asked.share.split("/"))
    own = [name for name in ("real", "written") if getattr(asked, name)]
    kinds = own or asked.kinds.split(",")
    if asked.channels_last:
        kinds = [LAST + kind for kind in kinds]
    torch.set_num_threads(1)
    rehearse()  # half of torch is imported at the first export; children inherit it
    with tempfile.TemporaryDirectory() as folder, asked.out.open("a", encoding="utf-8") as out:
        if not own:
            prelude(Path(folder))
        files = [p for p in _files(asked.paths) if asked.match in p.stem][index::count]
        for path in files:
            for kind in kinds:
                line = _in_a_process(path, kind, folder, asked.seconds)
                out.write(json.dumps(line) + "\n")
                out.flush()
                print(path.parent.name, path.stem, kind, _short(line), flush=True)


def _short(line: Line) -> str:
    failures = line.get("failures")
    count = len(failures) if isinstance(failures, list) else 0
    return str(line.get("error") or (f"{count} FAILED" if count else "ok"))[:200]


def _files(paths: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        found += sorted(path.glob("*.py")) if path.is_dir() else [path]
    return found


def _in_a_process(path: Path, kind: str, folder: str, seconds: int) -> Line:
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(
        target=_child, args=(sender, path, kind, folder)
    )
    start = time.perf_counter()
    child.start()
    sender.close()
    line: Line = {}
    try:
        line = receiver.recv() if receiver.poll(seconds) else {"error": "took too long"}
    except EOFError:
        child.join()
        line = {"error": f"crashed: exit {child.exitcode}"}
    if child.is_alive():
        os.kill(child.pid or 0, signal.SIGKILL)
    child.join()
    seconds_taken = round(time.perf_counter() - start, 1)
    return {"file": f"{path.parent.name}/{path.stem}", "kind": kind, **line, "s": seconds_taken}


def _child(sender: Connection, path: Path, kind: str, folder: str) -> None:
    try:
        line = checked(path, kind, Path(folder))
    except Exception as error:
        line = {"error": f"{type(error).__name__}: {error}"[:1500]}
    sender.send(line)


def checked(path: Path, kind: str, folder: Path) -> Line:
    """One file's line."""
    source = path.read_text(encoding="utf-8")
    last, kind = kind.startswith(LAST), kind.removeprefix(LAST)
    if kind in ("real", "written"):
        task = trace(source, str(path), TracePolicy())
        if isinstance(task, Refusal):
            return {"error": task.sentence}
        return asyncio.run(_compiled(task, last, compiles=kind == "real"))
    found = _traced(source, path, kind)
    if isinstance(found, str) and kind == "odd":  # groups and factors may not admit odd sizes
        found = _traced(source, path, "even")
    if isinstance(found, str):
        return {"error": found}
    return _emulated(*found, last, folder)


def _traced(source: str, path: Path, kind: str) -> tuple[Task, int] | str:
    """The file at the largest sizes that are quick to emulate, or why there are none."""
    why = "no cap"
    for cap in CAPS:
        text = resized(source, cap, "odd" if kind == "odd" else "one" if kind == "one" else "even")
        if kind in ("float16", "bfloat16", "float64", "transposed"):
            text = typed(text, kind, transposed=kind == "transposed")
            policy = TracePolicy(entry="Typed")
        else:
            policy = TracePolicy()
        # Large tensors are not worth tracing: the sizes alone tell.
        task = trace(text, str(path), policy)
        if isinstance(task, Refusal):
            why = task.sentence
        elif _largest(task) <= MOST_ELEMENTS:
            return task, cap
        else:
            why = f"{_largest(task)} elements at a cap of {cap}" if why == "no cap" else why
    return why


def _largest(task: Task) -> int:
    return max(spec.numel for node in task.graph.nodes for spec in node.out)


def _lowered(task: Task, last: bool) -> Program:
    return lower(task.graph, tuple(spec.name for spec in task.inputs), channels_last=last)


def _about(program: Program) -> Line:
    lines = [s for s in program.steps if isinstance(s, PlanLine) and s.operator.startswith("aten")]
    return {
        "loops": [loop.family for loop in program.loops],
        "library": [line.operator for line in lines],
    }


def _emulated(task: Task, cap: int, last: bool, folder: Path) -> Line:
    program = _lowered(task, last)
    line = {"cap": cap, **_about(program)}
    candidates = list(_candidates(program, SMALL, 2))
    line["candidates"] = len(candidates)
    if not candidates:
        return line
    failures: list[str] = []
    for at in range(0, len(candidates), 12):
        shard = candidates[at : at + 12]
        made = Emulated([one for _, one in shard], folder)
        for label, candidate in shard:
            failures += [f"{label}: {said}" for said in _wrong(task, made, candidate)]
    return {**line, "failures": failures} if failures else line


def _wrong(task: Task, made: Emulated, candidate: Candidate) -> Iterator[str]:
    """What is wrong with a candidate's results on the task's own inputs and on normal ones."""
    for distribution in ("task", "normal"):
        inputs = draw(task, distribution, 3, "cpu")
        reference = Reference.build(task, "cpu", seed=1)
        double = reference.double()
        truth = double.forward(inputs)
        own_weights = {name: w.clone() for name, w in reference.weights().items()}
        own = reference.forward(inputs)
        try:
            got = made.runner(candidate)(inputs, own_weights)
        except Exception as error:
            yield f"{distribution}: {type(error).__name__}: {error}"[:400]
            return
        for at, (mine, theirs, true) in enumerate(zip(got, own, truth, strict=True)):
            said = _differs(mine, theirs, true)
            if said:
                yield f"{distribution} output {at}: {said}"
        for name, buffer in reference.module.named_buffers():
            said = _differs(own_weights[name], buffer, dict(double.module.named_buffers())[name])
            if said:
                yield f"{distribution} buffer {name}: {said}"


def _differs(mine: torch.Tensor, own: torch.Tensor, true: torch.Tensor) -> str:
    if mine.shape != own.shape or mine.dtype != own.dtype:
        return f"{mine.dtype}{list(mine.shape)} for {own.dtype}{list(own.shape)}"
    if not own.is_floating_point():
        return "" if torch.equal(mine, own) else f"{int((mine != own).sum())} of {own.numel()}"
    found = distance(mine, own, true.double(), 1 << 20)
    if found.ratio <= BOUND:
        return ""
    return (
        f"ratio {found.ratio:.1f} (norm {found.norm:.1e} own {found.own_norm:.1e}, worst "
        f"{found.worst:.1e} own {found.own_worst:.1e}) at {found.worst_index}: "
        f"{found.worst_got} for {found.worst_expected}"
    )


def _candidates(
    program: Program, hardware: Hardware, settings: int
) -> Iterator[tuple[str, Candidate]]:
    """The program under every strategy of each of its loops, each with a few settings."""
    offered = {loop.name: EMITTER.strategies(loop, hardware) for loop in program.loops}
    rounds = max((len(found) for found in offered.values()), default=0)
    for number in range(rounds * settings):
        turn, which = divmod(number, settings)
        named = _renamed(program, f"V{number}")
        chosen = {
            new.name: offered[old.name][turn % len(offered[old.name])]
            for new, old in zip(named.loops, program.loops, strict=True)
        }
        assembled = assemble(named, EMITTER, chosen, hardware)
        given = [
            one
            for loop in named.loops
            for one in _setting(loop, chosen[loop.name], hardware, which)
            if one.name in assembled.kernel
        ]
        label = ",".join(
            f"{name.removeprefix(f'V{number}')}={s.name}" for name, s in chosen.items()
        )
        values = "-".join(f"{s.name.split('_', 1)[1]}{s.value}" for s in given)
        yield (
            f"{label}[{values}]",
            new_candidate("cuda", assembled.kernel, assembled.plan, settings=given),
        )


def _renamed(program: Program, prefix: str) -> Program:
    steps = tuple(
        step.model_copy(update={"name": f"{prefix}{step.name}"}) if isinstance(step, Loop) else step
        for step in program.steps
    )
    return program.model_copy(update={"steps": steps})


def _setting(loop: Loop, strategy: Strategy, hardware: Hardware, which: int) -> tuple[Setting, ...]:
    """The first setting that is small enough to emulate, or another one."""
    changed = rewrite(loop, strategy.rewrite) if strategy.rewrite else loop
    emitted = EMITTER.emit(changed, strategy, f"{loop.name}_", hardware)
    listed = valid_settings(parse_kernel(EMITTER.header() + emitted.source, "cuda"))
    least = min(map(_threads, listed))
    small = [one for one in listed if _threads(one) <= max(MOST_THREADS, least)]
    return small[0] if which == 0 else random.Random(f"{strategy.name}{which}").choice(small)


def _threads(setting: Sequence[Setting]) -> int:
    values = {one.name.split("_", 1)[1]: one.value for one in setting}
    return values.get("THREADS") or values.get("TX", 1) * values.get("TY", 1)


async def _compiled(task: Task, last: bool, *, compiles: bool) -> Line:
    """The program at its real sizes: what every strategy compiles to on two architectures."""
    program = _lowered(task, last)
    line: Line = _about(program)
    failures: list[str] = []
    kinds: set[str] = set()
    for hardware, architecture in ((H200, "sm_90a"), (A100, "sm_80")):
        for label, candidate in _real(program, hardware):
            kinds |= set(
                re.findall(r"constexpr (int|long long) (?:END|ROWS|COLUMNS)", candidate.kernel)
            )
            built = await compile_candidate(candidate, architecture=architecture, timeout_s=120)
            if isinstance(built, CompileFailure):
                failures.append(f"{architecture} {label}: {built.message}")
                continue
            spilled = {r.kernel: r.spill_bytes for r in built.reports if r.spill_bytes}
            if spilled:
                failures.append(f"{architecture} {label}: spills {spilled}")
    line["indices"] = sorted(kinds)
    line["largest"] = _largest(task)
    return {**line, "failures": failures} if failures else line


def _real(program: Program, hardware: Hardware) -> Iterator[tuple[str, Candidate]]:
    offered = {loop.name: EMITTER.strategies(loop, hardware) for loop in program.loops}
    rounds = max((len(found) for found in offered.values()), default=0)
    for turn in range(rounds):
        chosen = {name: found[turn % len(found)] for name, found in offered.items()}
        assembled = assemble(program, EMITTER, chosen, hardware)
        source = parse_kernel(assembled.kernel, "cuda")
        label = ",".join(f"{name}={s.name}" for name, s in chosen.items())
        for setting in valid_settings(source)[:2]:
            yield (
                label,
                new_candidate("cuda", assembled.kernel, assembled.plan, settings=setting),
            )


if __name__ == "__main__":
    main()
