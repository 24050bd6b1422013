"""What the playbook makes of a folder of modules: library calls, loops and bytes, file by file.

Each file stands in the form that the roofline predicts fastest, named where it is not the module's
own.

    python benchmarks/codegen/planning/lowering_table.py FOLDER [FOLDER...]
        --out rows.jsonl [--hardware h200]
    python benchmarks/codegen/planning/lowering_table.py --table rows.jsonl [--before older.jsonl]
    python benchmarks/codegen/planning/lowering_table.py FOLDER [FOLDER...] --products
        [--match 1_*,17_*]

Files are traced on fake tensors and lowered; nothing is compiled, run or timed, so every time in
it is the roofline's. It runs the files in this process: use it on files that are trusted.

`moved` counts what loops, library calls and copies read and write; `least` counts, beside the
task's own bytes, each library result that our loops read once as written and once as read. Their
ratio is how far the fused tail is from as few passes as possible (norms and softmaxes over
values that do not fit on chip need a second reading, which is why it can stay above 1).
`floor` is the roofline's time of the whole task over that of its program.

With `--products` a line says of every file what becomes of its products of matrices: how each is
lowered (batch x rows x columns x depth, with what is computed on the way in and on the way out),
what the other loops are and what lies in memory between loops, what its kernels are predicted to
take, and the whole against the floor and against the module as written with the library's products.
Where algebra leaves no product, or the whole is constant, the form's column says so; a form of
products stands there wherever one is offered, predicted fastest or not.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatch
from math import prod
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from kernelwright.profiles.load import Hardware, hardware_profile
from kernelwright.tools.codegen.cuda import CudaEmitter
from kernelwright.tools.codegen.ir import Loop, PlanLine, Program, Stmt
from kernelwright.tools.codegen.ir.contraction import PRODUCT, contraction_of
from kernelwright.tools.codegen.ir.roofline import LIBRARY_PRODUCTS, line_ms, loop_bytes, loop_flops
from kernelwright.tools.codegen.library.forms.forms import (
    AS_WRITTEN,
    AS_WRITTEN_FORM,
    AS_WRITTEN_TITLE,
    PRODUCTS_FORM,
    PRODUCTS_TITLE,
    Form,
    forms,
)
from kernelwright.tools.codegen.library.kernel_library import (
    FORM,
    Option,
    PlaybookRepertoire,
    fastest,
    repertoire_for,
)
from kernelwright.tools.hardware import floor_ms
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import DType, Refusal, Task, TracePolicy

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
    words.add_argument("--products", action="store_true", help="what becomes of products")
    words.add_argument("--match", default="*", help="patterns of file names, with commas between")
    asked = words.parse_args()
    if asked.table is not None:
        print(table(_rows(asked.table), _rows(asked.before) if asked.before else []))
        return
    hardware = hardware_profile(asked.hardware)
    index, count = map(int, asked.share.split("/"))
    files = sorted(path for folder in asked.folders for path in _files(folder, asked.match))
    if asked.products:
        print(PRODUCTS_HEAD, flush=True)
        for path in sorted(files, key=lambda path: _number(path.stem)):
            print(products_line(path, hardware), flush=True)
        return
    with asked.out.open("a", encoding="utf-8") as out:
        for path in files[index::count]:
            out.write(json.dumps(row(path, hardware)) + "\n")
            out.flush()


def _files(folder: Path, patterns: str) -> list[Path]:
    found = sorted(folder.glob("*.py"))
    return [path for path in found if any(fnmatch(path.stem, one) for one in patterns.split(","))]


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


PRODUCTS_HEAD = (
    "| file | form | products: before; after | other loops | MB between | kernels, ms "
    "| predicted ms | floor ms | library ms |\n|---|---|---|---|---|---|---|---|---|"
)


def products_line(path: Path, hardware: Hardware) -> str:
    """One file's line of the table of products; a refusal stands in it."""
    task = _task(path)
    if isinstance(task, Refusal):
        return f"| {path.stem} | {task.sentence} | | | | | | | |"
    repertoire = repertoire_for(task, hardware)
    options = repertoire.options()
    known = {form.name: form for form in forms(task)}
    is_offered = any(option.family == PRODUCT for option in options)
    first = fastest(options).get(FORM, PRODUCTS_FORM.name if is_offered else next(iter(known)))
    form = known[PRODUCTS_FORM.name if is_offered else first]
    products = [loop for loop in form.program.loops if loop.family == PRODUCT]
    written = _as_written(task, hardware)
    floor = floor_ms(task.bytes_moved, task.flops, hardware)
    cells = [
        path.stem,
        "; ".join(_form_words(task, form, first)),
        "<br>".join(map(_product_words, products)),
        ", ".join(loop.family for loop in form.program.loops if loop not in products),
        f"{_between(form.program) / 1e6:.1f}",
        "<br>".join(_kernels(options, loop) for loop in products),
        f"{_predicted(repertoire, form.name):.3f}",
        f"{floor:.3f}",
        f"{_predicted(written, AS_WRITTEN):.3f}",
    ]
    return f"| {' | '.join(cells)} |"


def _as_written(task: Task, hardware: Hardware) -> PlaybookRepertoire:
    """The task with the library's products alone."""
    emitter = CudaEmitter()
    return PlaybookRepertoire(forms(task, kinds=(AS_WRITTEN_FORM,)), emitter, hardware)


def _predicted(repertoire: PlaybookRepertoire, form: str) -> float:
    """Milliseconds of a form: the library's calls, and the fastest way of every loop."""
    options = repertoire.options()
    best: dict[str, float] = {}
    for option in options:
        if option.loop != FORM and option.form in ("", form):
            held = best.get(option.loop, option.predicted_ms)
            best[option.loop] = min(held, option.predicted_ms)
    calls = [o.predicted_ms for o in options if o.loop == FORM and o.strategy.name == form]
    return sum(best.values()) + (calls[0] if calls else repertoire.fixed_ms)


def _form_words(task: Task, form: Form, first: str) -> Iterator[str]:
    """The form, and what a reader of its time must know about it."""
    yield form.name if form.name == first else f"{form.name} ({first} is predicted faster)"
    if form.idea.title not in (AS_WRITTEN_TITLE, PRODUCTS_TITLE):
        yield form.idea.title.removeprefix(PRODUCTS_TITLE).strip()
    calls = _library_products(form.program)
    yield from (f"library's {name}" for name in calls)
    if not calls and not any(loop.family == PRODUCT for loop in form.program.loops):
        is_gone = _library_products(forms(task, kinds=(AS_WRITTEN_FORM,))[0].program)
        yield "NO PRODUCT LEFT" if is_gone else "no product of two matrices"
    if any(badge.name == "constant" for badge in task.badges):
        yield "CONSTANT RESULT"


def _library_products(program: Program) -> list[str]:
    lines = (step for step in program.steps if isinstance(step, PlanLine))
    return [line.operator for line in lines if line.operator in LIBRARY_PRODUCTS]


def _product_words(loop: Loop) -> str:
    """Sizes, what is computed on the way in, and on the way out."""
    found = contraction_of(loop)
    if found is None:
        return "a product that no family of products takes"
    sizes = "x".join(map(str, (found.batches, found.m, found.n, found.k)))
    before = _operators([*found.left.body, *found.right.body])
    after = _operators(found.epilogue)
    kind = "" if found.precision is DType.FLOAT32 else f" {found.precision.value}"
    return f"{sizes}{kind}: {before or '-'}; {after or '-'}"


def _operators(body: Sequence[Stmt]) -> str:
    """What is computed, without constants and loads."""
    return " ".join(stmt.op for stmt in body if stmt.op not in ("load", "const", "index"))


def _between(program: Program) -> int:
    """Bytes of what one step leaves in memory for another."""
    return sum(_size(program, one.name) for one in program.buffers if one.role == "temporary")


def _kernels(options: Iterable[Option], loop: Loop) -> str:
    """Every strategy offered for a product, with its time."""
    offered = [option.only([loop.name]) for option in options if loop.name in option.loops]
    return ", ".join(f"{option.strategy.name} {option.predicted_ms:.3f}" for option in offered)


if __name__ == "__main__":
    main()
