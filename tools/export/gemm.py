"""Writes a measured grid of products as a package: its table, the kernels that won, the evidence.

Every kernel is an ordinary export in a folder of its own, with its guards and its evidence; the
package chooses between them by the table and leaves everything else to PyTorch. See
`exported_grid` for how it is used.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from kernelwright.profiles.load import Hardware
from kernelwright.tools.export.folder import export_folder
from kernelwright.tools.export.guards import ExportRefusedError, Material
from kernelwright.tools.gemm.choice import TITLES, is_ours
from kernelwright.tools.gemm.problem import task_name
from kernelwright.tools.gemm.record import GemmRecord
from kernelwright.tools.runtime import kernelwright_version
from kernelwright.tools.types import Comparison

TABLE, KERNELS = "table.json", "kernels"
_MODULE = Path(__file__).with_name("exported_grid.py")
_README = """# Products of matrices, shape by shape

`from {name} import Linear, bmm, linear, matmul, patch`

{ours} of {shapes} measured shapes run a kernel, the others and all that were not measured run
PyTorch's own. `__init__.py` says when, `{table}` has every shape with its times beside the
library's ways and 95 % intervals, and each folder of `{kernels}/` is an export of its own:
`python {kernels}/NAME/verify.py` verifies and times it again.

Measured on {device} with torch {torch}; factors {dtypes}, {sums}. Kernels that are faster
with calls queued and slower one by one run where a CUDA graph is captured: `queued_only` in the
table, `ALWAYS` in the module. A linear layer with a bias runs a kernel where such were measured.

Made by Kernelwright {version}.
"""


def check_grid_place(folder: Path) -> None:
    """Say before any work is done that a grid could not be exported there.

    Raises:
        ExportRefusedError: It is a file, or a folder of something else.
    """
    if folder.exists() and not folder.is_dir():
        raise ExportRefusedError(f"cannot export to {folder}: it is a file")
    held = {item.name for item in folder.iterdir()} if folder.exists() else set()
    if held and TABLE not in held:
        raise ExportRefusedError(
            f"cannot export to {folder}: it is not empty and is no earlier export"
        )


def export_grid(records: Sequence[GemmRecord], folder: Path) -> int:
    """Write the package; answers how many kernels it has.

    Raises:
        ExportRefusedError: There are no records of one device, or the folder cannot be written.
    """
    check_grid_place(folder)
    if any(record.terms.arithmetic.dtype == "fp8" for record in records):
        raise ExportRefusedError(
            "products of fp8 are measured and not exported yet: matmul and linear know no scales"
        )
    hardware = _device(records)
    chosen = [record for record in records if is_ours(record)]
    try:
        (folder / KERNELS).mkdir(parents=True, exist_ok=True)
        (folder / KERNELS / "__init__.py").write_text('"""The kernels."""\n', encoding="utf-8")
        for record in chosen:
            export_folder(_material(record), folder / KERNELS / _kernel_name(record))
        files = {
            "__init__.py": _MODULE.read_text(encoding="utf-8"),
            "README.md": _readme(records, len(chosen), folder.absolute().name),
            TABLE: table(records, hardware),
        }
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ExportRefusedError(f"cannot write to {folder}: {error.strerror}") from None
    return len(chosen)


def table(records: Iterable[GemmRecord], hardware: Hardware) -> str:
    """The table's text: a shape each, and the device that all of them were measured on."""
    # As CUDA numbers it: sm_90a is (9, 0), sm_120 is (12, 0).
    digits = "".join(filter(str.isdigit, hardware.architecture or "")) or "00"
    capability = [int(digits[:-1]), int(digits[-1])]
    shapes = [_row(record) for record in records]
    return json.dumps(
        {"capability": capability, "device": hardware.name, "shapes": shapes}, indent=1
    )


def _row(record: GemmRecord) -> dict[str, object]:
    shape, runs = record.shape, is_ours(record)
    claim = record.evaluation.claim if record.evaluation else None
    return {
        "m": shape.m, "n": shape.n, "k": shape.k, "layout": shape.layout, "batch": shape.batch,
        "dtype": record.terms.arithmetic.dtype,
        "accumulate": record.terms.arithmetic.accumulate,
        "epilogue": list(record.terms.arithmetic.epilogue),
        "kernel": _kernel_name(record) if runs else "",
        # Slower one by one: the host's time to issue a call is longer than what is gained.
        "queued_only": runs and claim is not None and claim.outcome != "faster",
        "setting": record.best.words if record.best else "",
        "offline": [_figures(one) for one in record.offline],
        "server": [_figures(one) for one in record.server],
        "library_ms": _library(record),
        # Sums in fp16 overflow there, the library's own too: nothing was judged.
        "overflown": list(record.overflown),
        "words": record.words,
    }  # fmt: skip


def _figures(one: Comparison) -> dict[str, object]:
    return {
        "beside": TITLES.get(one.baseline, one.baseline),
        "library_ms": one.baseline_ms,
        "ours_ms": one.candidate_ms,
        "ratio": one.ratio,
        "ci95": [one.ci95_low, one.ci95_high],
        "pairs": one.pairs,
    }


def _library(record: GemmRecord) -> dict[str, float]:
    items = record.baselines.items if record.baselines else ()
    return {
        TITLES.get(item.name, item.name): item.measurement.median_ms
        for item in items
        if item.measurement is not None
    }


def _device(records: Sequence[GemmRecord]) -> Hardware:
    found = {record.hardware.name: record.hardware for record in records if record.hardware}
    if len(found) != 1:
        named = ", ".join(sorted(found)) or "none"
        raise ExportRefusedError(f"an export is of one device, and the records are of {named}")
    return next(iter(found.values()))


def _material(record: GemmRecord) -> Material:
    task, best, evaluation = record.task, record.best, record.evaluation
    baselines, hardware = record.baselines, record.hardware
    if not (task and best and evaluation and baselines and hardware):
        raise ExportRefusedError(f"{record.shape.name} has no kernel to export")
    material = Material(
        task=task,
        candidate=best.candidate,
        evaluation=evaluation,
        baselines=baselines,
        hardware=hardware,
        name=best.words,
    )
    # One that is faster only with calls queued says so itself.
    return material.model_copy(update={"forced": not material.improved})


def _kernel_name(record: GemmRecord) -> str:
    return task_name(record.shape, record.terms.arithmetic)


def _readme(records: Sequence[GemmRecord], ours: int, name: str) -> str:
    terms = records[0].terms
    return _README.format(
        name=name,
        ours=ours,
        shapes=len(records),
        table=TABLE,
        kernels=KERNELS,
        device=terms.device,
        torch=terms.torch,
        dtypes=" and ".join(sorted({record.terms.arithmetic.dtype for record in records})),
        sums=_sums(records),
        version=kernelwright_version(),
    )


def _sums(records: Iterable[GemmRecord]) -> str:
    """What sums are kept in, where a shape says so."""
    if all(record.terms.arithmetic.accumulate == "fp32" for record in records):
        return "sums in float32"
    return "sums in float32, or in fp16 where `accumulate` says so: those run while\n" + (
        "`torch.backends.cuda.matmul.allow_fp16_accumulation` is set, and no others do then"
    )
