"""Audits every file of some folders and writes one line of JSON for each: its badges and notes.

    python benchmarks/suites/audit_suite.py --target cuda --out FILE [--slow-down N] [--seconds S]
        [--beyond-memory] FOLDER_OR_FILE...

All in this process, so use it on files that are trusted, such as a benchmark's. `--slow-down`
takes the device for so many times slower than it is, so that the experiments use smaller versions
of large tasks and several of these processes fit on one device. `--beyond-memory` also audits
tasks that the device has no room for: of those, too, the experiments use smaller versions, but
weights are never smaller, and what is freed may stay with the process: watch its memory.
"""

import argparse
import json
import time
from pathlib import Path

from kernelwright.profiles.load import Hardware
from kernelwright.tools.evaluate.messages import Audited, AuditRequest
from kernelwright.tools.evaluate.rules import Rules
from kernelwright.tools.evaluate.worker.request_handler import RequestHandler
from kernelwright.tools.hardware import cached_ceilings, detect
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Refusal, TracePolicy

_BEYOND = 1e3  # of the machine's memory


def main() -> None:
    """Audit everything named, in order; a file that fails costs its line only."""
    words = argparse.ArgumentParser(description="The audit of many files.")
    words.add_argument("paths", nargs="+", type=Path)
    words.add_argument("--target", default="cpu")
    words.add_argument("--out", required=True, type=Path)
    words.add_argument("--slow-down", type=float, default=1.0)
    words.add_argument("--seconds", type=float, default=Rules().audit_s, help="for one task")
    words.add_argument("--beyond-memory", action="store_true")
    words.add_argument("--share", default="0/1", help="which of how many equal shares of the files")
    asked = words.parse_args()
    hardware = detect(asked.target)
    hardware = _slower(cached_ceilings(hardware) or hardware, asked.slow_down)
    rules = Rules(audit_s=asked.seconds)
    if asked.beyond_memory:
        rules = rules.model_copy(update={"memory_fraction": _BEYOND})
    index, count = map(int, asked.share.split("/"))
    with asked.out.open("a", encoding="utf-8") as out:
        for path in _files(asked.paths)[index::count]:
            out.write(json.dumps(audited(path, hardware, rules)) + "\n")
            out.flush()


def audited(path: Path, hardware: Hardware, rules: Rules) -> dict[str, object]:
    """One file's line."""
    start = time.perf_counter()
    line: dict[str, object] = {"file": f"{path.parent.name}/{path.stem}"}
    task = trace(path.read_text(encoding="utf-8"), str(path), TracePolicy())
    line["trace_s"] = round(time.perf_counter() - start, 2)
    if isinstance(task, Refusal):
        return {**line, "refused": task.sentence}
    badges = list(task.badges)
    if not task.draws_random:
        request = AuditRequest(task=task, hardware=hardware, rules=rules, seed=1)
        try:
            answer = RequestHandler(lambda stage: None).answer(request)
        except Exception as error:
            line["error"] = f"{type(error).__name__}: {error}"[:300]
        else:
            assert isinstance(answer, Audited)
            badges += answer.badges
            line["notes"] = answer.notes
            if answer.refusal is not None:
                line["refused"] = answer.refusal.sentence
    line["badges"] = [[badge.name, badge.reason] for badge in badges]
    line["audit_s"] = round(time.perf_counter() - start, 2)
    return line


def _files(paths: list[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        found += sorted(path.glob("*.py")) if path.is_dir() else [path]
    return found


def _slower(hardware: Hardware, factor: float) -> Hardware:
    update = {
        "bandwidth_gb_s": hardware.bandwidth_gb_s / factor,
        "fp32_tflops": hardware.fp32_tflops / factor,
    }
    return hardware.model_copy(update=update)


if __name__ == "__main__":
    main()
