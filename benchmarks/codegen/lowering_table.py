"""What the playbook makes of a folder of modules: library calls, loops and bytes, file by file.

Each file stands in the form that the roofline predicts fastest, named where it is not the module's
own.

    python benchmarks/codegen/lowering_table.py FOLDER [FOLDER...]
        --out rows.jsonl [--hardware h200]
    python benchmarks/codegen/lowering_table.py --table rows.jsonl [--before older.jsonl]

Files are traced on fake tensors and lowered; nothing is compiled, run or timed, so every time in
it is the roofline's. It runs the files in this process: use it on files that are trusted.

`moved` counts what loops, library calls and copies read and write; `least` counts, beside the
task's own bytes, each library result that our loops read once as written and once as read. Their
ratio is how far the fused tail is from as few passes as possible (norms and softmaxes over
values that do not fit on chip need a second reading, which is why it can stay above 1).
`floor` is the roofline's time of the whole task over that of its program.
"""

import argparse
import json
import sys
import time
from math import prod
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.codegen.ir import Loop, PlanLine, Program
from kernelwright.tools.codegen.ir.roofline import line_ms, loop_bytes, loop_flops
from kernelwright.tools.codegen.library.forms import AS_WRITTEN_TITLE, forms
from kernelwright.tools.codegen.library.kernel_library import FORM, fastest, repertoire_for
from kernelwright.tools.hardware import floor_ms
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Refusal, Task, TracePolicy

Row = dict[str, object]


def main() -> None:
    """Write a row for every file, or print the table of rows written before."""
    words = argparse.ArgumentParser(description="How the playbook lowers many files.")
    words.add_argument("folders", nargs="*", type=Path)
    words.add_argument("--out", type=Path)
    words.add_argument("--hardware", default="h200")
    words.add_argument("--share", default="0/1", help="which of how many equal shares of the files")
    words.add_argument("--table", type=Path)
    words.add_argument("--before", type=Path)
    asked = words.parse_args()
    if asked.table is not None:
        print(table(_rows(asked.table), _rows(asked.before) if asked.before else []))
        return
    hardware = hardware_profile(asked.hardware)
    index, count = map(int, asked.share.split("/"))
    files = sorted(path for folder in asked.folders for path in folder.glob("*.py"))
    with asked.out.open("a", encoding="utf-8") as out:
        for path in files[index::count]:
            out.write(json.dumps(row(path, hardware)) + "\n")
            out.flush()


def row(path: Path, hardware: Hardware) -> Row:
    """One file's line; a refusal or an error stands in it."""
    start = time.perf_counter()
    line: Row = {"file": path.stem}
    task = _task(path)
    if isinstance(task, Refusal):
        return {**line, "refused": task.sentence}
    try:
        options = repertoire_for(task, hardware).options()
        known = {form.name: form for form in forms(task)}
        form = known[fastest(options).get(FORM, next(iter(known)))]
    except Exception as error:
        return {**line, "error": f"{type(error).__name__}: {error}"[:300]}
    found = facts(task, form.program, hardware)
    seconds = round(time.perf_counter() - start, 1)
    return {**line, "form": form.idea.title, **found, "s": seconds}


def _task(path: Path) -> Task | Refusal:
    return trace(path.read_text(encoding="utf-8"), str(path), TracePolicy())


def facts(task: Task, program: Program, hardware: Hardware) -> Row:
    """Calls, loops, passes, bytes and predicted times of a program."""
    lines = [step for step in program.steps if isinstance(step, PlanLine)]
    calls = [line for line in lines if line.operator.startswith("aten")]
    own_ms = sum(_loop_ms(loop, hardware) for loop in program.loops)
    calls_ms = sum(line_ms(line, hardware) for line in lines)
    floor = floor_ms(task.bytes_moved, task.flops, hardware)
    return {
        "calls": [line.operator.split(".")[1] for line in calls],
        "copies": sum(line.operator == "contiguous" for line in lines),
        "loops": [f"{loop.name}:{loop.family}" for loop in program.loops],
        "passes": sum(max(loop.passes().values(), default=0) + 1 for loop in program.loops),
        "loop_bytes": sum(sum(loop_bytes(loop)) for loop in program.loops),
        "call_bytes": sum(line.cost_bytes for line in lines),
        "least_loop_bytes": _least(task, program, calls),
        "flops": task.flops,
        "call_flops": sum(line.cost_flops for line in calls),
        "own_ms": round(own_ms, 4),
        "calls_ms": round(calls_ms, 4),
        "floor_ms": round(floor, 4),
        "constant": any(badge.name == "constant" for badge in task.badges),
    }


def _loop_ms(loop: Loop, hardware: Hardware) -> float:
    by_memory = sum(loop_bytes(loop)) / (hardware.bandwidth_gb_s * 1e6)
    return max(by_memory, loop_flops(loop) / (hardware.fp32_tflops * 1e9))


def _least(task: Task, program: Program, calls: list[PlanLine]) -> int:
    """Bytes our loops must move: library results, inputs and weights they read, and outputs."""
    made = {name for line in calls for name in line.makes}
    stored = {store.access.buffer for loop in program.loops for store in loop.stores}
    read = {
        stmt.access.buffer
        for loop in program.loops
        for stmt in loop.body
        if stmt.access is not None
    }
    given = {b.name for b in program.buffers if b.role in ("input", "weight")}
    fed = {name for line in calls for name in line.uses} & stored
    taken = (read & (made | given)) | (stored & set(program.returns)) | fed
    return sum(_size(program, name) for name in taken)


def _size(program: Program, name: str) -> int:
    buffer = program.buffer(name)
    return prod(buffer.shape) * buffer.dtype.itemsize_bytes


def _rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def table(rows: list[Row], before: list[Row]) -> str:
    """Markdown; with an older table the loops and bytes it had."""
    older = {str(row["file"]): row for row in before}
    head = (
        "| file | library calls | loops | passes | MB moved by loops | least | floor / predicted |"
    )
    lines = [head, "|---|---|---|---|---|---|---|"]
    for row in sorted(rows, key=lambda row: _number(str(row["file"]))):
        lines.append(_line(row, older.get(str(row["file"]))))
    return "\n".join(lines)


def _number(name: str) -> tuple[int, str]:
    first = name.split("_")[0]
    return (int(first) if first.isdigit() else 0, name)


def _line(row: Row, older: Row | None) -> str:
    said = row.get("refused") or row.get("error")
    if said:
        return f"| {row['file']} | {said} | | | | | |"
    calls = row["calls"]
    assert isinstance(calls, list)
    loops = _loops(row)
    moved = float(str(row["loop_bytes"])) / 1e6
    if older and "loops" in older:
        loops = f"{_loops(older)} -> {loops}" if _loops(older) != loops else loops
    was = f"{float(str(older['loop_bytes'])) / 1e6:.0f} -> " if older and "loops" in older else ""
    least = float(str(row["least_loop_bytes"])) / 1e6
    predicted = float(str(row["own_ms"])) + float(str(row["calls_ms"]))
    share = float(str(row["floor_ms"])) / predicted if predicted else 0.0
    names = ", ".join(map(str, calls)) or "none"
    if row.get("form", "") not in ("", AS_WRITTEN_TITLE):
        names += f"; {row['form']}"
    if row.get("constant"):
        names += "; constant"
    return (
        f"| {row['file']} | {names} | {loops} | {row['passes']} | {was}{moved:.1f} | {least:.1f} "
        f"| {share:.2f} |"
    )


def _loops(row: Row) -> str:
    loops = row["loops"]
    assert isinstance(loops, list)
    return str(len(loops))


if __name__ == "__main__":
    main()
