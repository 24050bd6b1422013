"""A grid of products from the command line: measure it, and say what the records come to."""

import asyncio
import signal
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from rich.text import Text

from kernelwright.graphs.gemm.tuning import Budget, prepare
from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.gemm.choice import guess
from kernelwright.tools.gemm.problem import (
    Arithmetic,
    arithmetic_of,
    check_device,
    check_shapes,
    check_torch,
)
from kernelwright.tools.gemm.record import GemmRecord, RecordsError, Terms, append, mend, read
from kernelwright.tools.gemm.shapes import GemmShape, layouts_of, shapes_of
from kernelwright.tools.hardware import detect
from kernelwright.tools.hardware.detect import detect_gpu
from kernelwright.tools.runtime import kernelwright_version
from kernelwright.ui.complaints import LACKING, Complaint, writable_file
from kernelwright.ui.grid import GridShare, measured, measured_on
from kernelwright.ui.suite import Gpu, chosen_gpus
from kernelwright.ui.terminal.grid_tables import guess_table, line_of, summary_of
from kernelwright.ui.terminal.output import console, remarks

INTERRUPTED = 130
_DIGITS = 12


@dataclass(frozen=True)
class Asked:
    """What the person wants; words as they were given."""

    shapes: str = ""
    dtype: str = "fp16"
    accumulate: str = "fp32"
    epilogue: str = ""
    layout: str = "nt"
    out: Path | None = None
    resume: bool = False
    candidates: int = 12
    shape_seconds: float = 10.0
    seconds: float | None = None
    seed: int = 0
    gpus: str = ""
    report: Path | None = None
    export: Path | None = None
    also: tuple[Path, ...] = ()
    predict: str = ""


def gemm(asked: Asked) -> None:
    """Measure what was named, then sum up, report and export what the records have."""
    arithmetic, wanted, between = _read(asked)
    interrupted = False
    if wanted:
        records, interrupted = _measure(asked, arithmetic, wanted)
    else:
        records = _kept(asked)
    if records:
        console().print(summary_of(records))
    if between:
        _predict(between, arithmetic, records)
    if asked.report is not None and records:
        _report(asked.report, records)
    if asked.export is not None:
        others = [record for path in asked.also for record in _records(path)]
        _export(asked.export, (*records, *others))
    if interrupted:
        raise Complaint(_go_on(asked), INTERRUPTED)


def _read(asked: Asked) -> tuple[Arithmetic, tuple[GemmShape, ...], tuple[GemmShape, ...]]:
    """What was asked for, every word of it checked before anything is begun."""
    try:
        arithmetic = arithmetic_of(asked.dtype, asked.accumulate, asked.epilogue)
        layouts = layouts_of(asked.layout)
        wanted = shapes_of(asked.shapes, layouts) if asked.shapes else ()
        between = shapes_of(asked.predict, layouts) if asked.predict else ()
        check_shapes(wanted, arithmetic)
        if wanted:
            check_torch(arithmetic)
    except ValueError as error:
        raise Complaint(str(error)) from None
    if asked.report is not None:
        writable_file(asked.report)
    if asked.export is not None:
        from kernelwright.tools.export.gemm import check_grid_place

        check_grid_place(asked.export)
    return arithmetic, wanted, between


def _kept(asked: Asked) -> tuple[GemmRecord, ...]:
    if asked.out is None:
        raise Complaint("name --shapes to measure, or --out with records that were measured")
    return _records(asked.out)


def _records(path: Path) -> tuple[GemmRecord, ...]:
    try:
        found = read(path)
    except RecordsError as error:
        raise Complaint(str(error)) from None
    if not found:
        raise Complaint(f"{path} has no records")
    return found


def _measure(
    asked: Asked, arithmetic: Arithmetic, wanted: Sequence[GemmShape]
) -> tuple[tuple[GemmRecord, ...], bool]:
    """All records, those of earlier sessions among them; whether the person interrupted it."""
    hardware = _gpu()
    try:
        check_device(arithmetic, hardware)
    except ValueError as error:
        raise Complaint(str(error), LACKING) from None
    gpus = chosen_gpus(asked.gpus)
    budget = Budget(candidates=asked.candidates, seconds=asked.shape_seconds)
    terms = _terms(asked, arithmetic, hardware, budget)
    known = _known(asked, terms)
    done = {record.shape for record in known if record.ended != "failed"}
    left = tuple(shape for shape in wanted if shape not in done)
    if len(left) < len(wanted):
        remarks().print(f"{len(wanted) - len(left)} of {len(wanted)} are there already")
    share = GridShare(
        shapes=left,
        terms=terms,
        budget=budget,
        seconds=asked.seconds,
        known=str(asked.out) if asked.out is not None and known else "",
    )
    found = {record.shape: record for record in known}
    interrupted = asyncio.run(_see_through(share, gpus, asked.out, found, len(wanted)))
    return tuple(found.values()), interrupted


def _gpu() -> Hardware:
    found, why_not = detect_gpu()
    if found is None:
        raise Complaint(
            f"gemm measures products on an NVIDIA GPU, and none can be used here: {why_not}",
            LACKING,
        )
    return detect("cuda")


def _terms(asked: Asked, arithmetic: Arithmetic, hardware: Hardware, budget: Budget) -> Terms:
    figures = Rules.of("library").model_dump_json() + budget.model_dump_json()
    return Terms(
        arithmetic=arithmetic,
        seed=asked.seed,
        device=hardware.name,
        kernelwright=kernelwright_version(),
        torch=version("torch"),
        figures=sha256(figures.encode()).hexdigest()[:_DIGITS],
    )


def _known(asked: Asked, terms: Terms) -> tuple[GemmRecord, ...]:
    """What `--out` has already."""
    if asked.out is None:
        if asked.resume:
            raise Complaint("--resume goes on with the file that --out names")
        return ()
    writable_file(asked.out)
    if not asked.out.exists() or not asked.out.stat().st_size:
        return ()
    if not asked.resume:
        raise Complaint(f"{asked.out} is there already: go on with --resume, or name another")
    mend(asked.out)
    found = _records(asked.out) if asked.out.stat().st_size else ()
    if other := next((record for record in found if record.terms != terms), None):
        raise Complaint(
            f"{asked.out} was made under other terms ({_words(other.terms)}) than these "
            f"({_words(terms)}): name another file"
        )
    return found


def _words(terms: Terms) -> str:
    arithmetic = terms.arithmetic
    return (
        f"{arithmetic.words}, seed {terms.seed}, {terms.device}, "
        f"kernelwright {terms.kernelwright}, torch {terms.torch}, figures {terms.figures}"
    )


async def _see_through(
    share: GridShare,
    gpus: Sequence[Gpu],
    out: Path | None,
    found: dict[GemmShape, GemmRecord],
    total: int,
) -> bool:
    """Measure what is left; answers whether the person interrupted it."""
    working = asyncio.ensure_future(_work(share, gpus, out, found, total))
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, working.cancel)
    try:
        await working
    except asyncio.CancelledError:
        return True
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
    return False


async def _work(
    share: GridShare,
    gpus: Sequence[Gpu],
    out: Path | None,
    found: dict[GemmShape, GemmRecord],
    total: int,
) -> None:
    """In this process, or on several GPUs by a process for each."""
    records = measured_on(share, gpus) if gpus else measured(share)
    async with aclosing(records):  # type: ignore[type-var]
        async for record in records:
            if out is not None:
                append(out, record)
            found[record.shape] = record
            remarks().print(Text(f"{len(found)}/{total} {line_of(record)}"))


def _predict(
    between: Sequence[GemmShape], arithmetic: Arithmetic, records: Sequence[GemmRecord]
) -> None:
    """What is expected of shapes by the nearest that were measured, and by the cost model."""
    hardware = next((record.hardware for record in records if record.hardware), None)
    if hardware is None:
        raise Complaint("--predict goes by records, and there are none")
    terms = records[0].terms.model_copy(update={"arithmetic": arithmetic})
    made = [(shape, prepare(shape, terms, hardware, ()).model) for shape in between]
    guesses = [guess(shape, model, records) for shape, model in made]
    console().print(
        guess_table([(shape, one) for (shape, _), one in zip(made, guesses, strict=True)])
    )


def _report(path: Path, records: Sequence[GemmRecord]) -> None:
    from kernelwright.ui.report.grid import grid_page

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(grid_page(records), encoding="utf-8")
    remarks().print(f"report: {path}")


def _export(folder: Path, records: Sequence[GemmRecord]) -> None:
    from kernelwright.tools.export.gemm import export_grid

    count = export_grid(records, folder)
    remarks().print(f"exported {count} kernel{'s' if count != 1 else ''} to {folder}")


def _go_on(asked: Asked) -> str:
    if asked.out is None:
        return "interrupted; without --out nothing was kept"
    return "interrupted; go on with the same command and --resume"
