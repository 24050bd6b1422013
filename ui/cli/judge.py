"""What one command judges and who judges it: a candidate as a person wrote it, and an executor.

A candidate is a kernel and its plan, however they are laid out. Accepted are a folder with one
`.cu` or `.cpp` file and a `plan.py`, such a kernel with its plan beside it (`plan.py` or the
kernel's own name with `.py`), one text file that holds a ```cuda or ```cpp block and a ```python
block, and the folder of an export.
"""

import ast
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.text import Text

from kernelwright.agents.shared.facts import Start
from kernelwright.tools.candidates.plan import validate_plan
from kernelwright.tools.evaluate.executors.base.executor import HEARER, Executor
from kernelwright.tools.export.evidence import EVIDENCE, ExportedEvidence, read_evidence
from kernelwright.tools.languages import languages, new_candidate, parse_kernel
from kernelwright.tools.languages.cuda.inline_source import device_code
from kernelwright.tools.types import Baselines, Candidate, LanguageName, Refusal, Task, TracePolicy
from kernelwright.ui.complaints import Complaint, refused
from kernelwright.ui.terminal.output import remarks

if TYPE_CHECKING:
    from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor


@asynccontextmanager
async def judge(target: str) -> AsyncIterator["LocalExecutor"]:
    """The executor of this machine for a target.

    Raises:
        EnvironmentLacksError: When there is no such device.
    """
    from kernelwright.tools.evaluate.executors.local.executor import LocalExecutor

    with tempfile.TemporaryDirectory(prefix="kernelwright-", ignore_cleanup_errors=True) as scratch:
        executor = LocalExecutor.create(target, Path(scratch))
        try:
            yield executor
        finally:
            await executor.aclose()


async def traced(
    executor: Executor, file: Path, policy: TracePolicy, *, quiet: bool = False
) -> Task:
    """The file as a task; Complaint when it cannot be one. What takes long says so on stderr."""
    if not quiet:
        HEARER.set(lambda words: remarks().print(Text(words, style="dim")))
    task = await executor.trace(file, policy)
    if isinstance(task, Refusal):
        raise refused(task)
    return task


async def baselines_of(executor: Executor, task: Task) -> Baselines:
    """What PyTorch itself does; Complaint when not even eager runs."""
    measured = await executor.baselines(task)
    if isinstance(measured, Refusal):
        raise refused(measured)
    return measured


_SPECS = [language.spec for language in languages()]
# By the ending of a kernel's file, and by the word that opens a block with one.
LANGUAGES = {suffix: spec.name for spec in _SPECS for suffix in spec.suffixes}
WORDS = {word: spec.name for spec in _SPECS for word in (spec.name, spec.title.lower())}
FENCE = re.compile(
    rf"^```({'|'.join(map(re.escape, (*WORDS, 'python')))})[^\n]*\n(.*?)^```",
    re.MULTILINE | re.DOTALL,
)
KERNEL_FILE = " or ".join(spec.suffixes[0] for spec in _SPECS)
KERNEL_BLOCK = " or ".join(f"```{spec.name}" for spec in _SPECS)
FOREIGN = (
    "is a foreign ModelNew file, which can be checked; a search starts from a kernel "
    f"(a {KERNEL_FILE} file, or CUDA that a Python file gives load_inline)"
)


def read_candidate(path: Path) -> Candidate:
    """The candidate at a path, checked against the contract.

    Of an export it is the one that was exported.

    Raises:
        Complaint: When there is no kernel with a plan there, or an export's files were changed.
        ContractError: When kernel or plan break the candidate contract.
    """
    if (found := export_at(path)) is not None:
        validate_plan(
            found.candidate.plan, parse_kernel(found.candidate.kernel, found.candidate.language)
        )
        return found.candidate
    language, kernel, plan = _parts(path)
    candidate = new_candidate(language, kernel, plan, origin="person")
    validate_plan(plan, parse_kernel(kernel, language))
    return candidate


def export_at(path: Path) -> ExportedEvidence | None:
    """What an export says of itself; None where a path is no folder of one.

    Raises:
        Complaint: When its evidence cannot be read, or files are not those that were exported.
    """
    try:
        found = read_evidence(path)
    except (OSError, ValueError):
        raise Complaint(f"{path / EVIDENCE} cannot be read; export the run again") from None
    if found is not None and (changed := found.changed(path)):
        raise Complaint(
            f"{path} was changed since it was exported ({', '.join(changed[:3])}), and its "
            "evidence is of what it was; export the run again, or give a kernel and a plan"
        )
    return found


def read_start(path: Path) -> Start:
    """A kernel to begin a search with: a candidate, or a kernel that has no plan yet.

    Of a Python file that compiles CUDA of its own, the device's code is taken.

    Raises:
        Complaint: When there is no kernel there.
        ContractError: When kernel and plan are there but break the candidate contract.
    """
    bare = path.is_file() and path.suffix in LANGUAGES and not any(map(Path.is_file, _plans(path)))
    if bare:
        return Start(language=LANGUAGES[path.suffix], kernel=_text(path), name=path.name)
    if path.is_file() and path.suffix == ".py" and _defines_model(_text(path)):
        inline = device_code(_text(path))
        if not inline:
            raise Complaint(f"{path} {FOREIGN}")
        return Start(language="cuda", kernel=inline, name=path.name)
    found = read_candidate(path)
    return Start(language=found.language, kernel=found.kernel, plan=found.plan, name=path.name)


def _plans(kernel: Path) -> list[Path]:
    return [kernel.with_suffix(".py"), kernel.with_name("plan.py")]


def _parts(path: Path) -> tuple[LanguageName, str, str]:
    if not path.exists():
        raise Complaint(f"there is no candidate at {path}")
    if path.is_dir():
        return _with_plan(_only_kernel(path), [path / "plan.py"])
    if path.suffix in LANGUAGES:
        return _with_plan(path, _plans(path))
    text = _text(path)
    if path.suffix == ".py" and _defines_model(text):
        raise Complaint(f"{path} {FOREIGN}")
    return _fenced(text, path)


def _only_kernel(folder: Path) -> Path:
    kernels = sorted(item for item in folder.iterdir() if item.suffix in LANGUAGES)
    if len(kernels) == 1:
        return kernels[0]
    if (folder / "module.py").exists() and not (folder / "plan.py").exists():
        raise Complaint(f"{folder} looks like an export without its {EVIDENCE}; export it again")
    count = "no" if not kernels else str(len(kernels))
    raise Complaint(f"{folder} must hold one {KERNEL_FILE} file, but it holds {count}")


def _with_plan(kernel: Path, plans: list[Path]) -> tuple[LanguageName, str, str]:
    plan = next((item for item in plans if item.is_file()), None)
    if plan is None:
        raise Complaint(f"{kernel} has no plan: {plans[-1]} does not exist")
    return LANGUAGES[kernel.suffix], _text(kernel), _text(plan)


def _fenced(text: str, path: Path) -> tuple[LanguageName, str, str]:
    blocks = FENCE.findall(text)
    kernels = [(WORDS[word], block) for word, block in blocks if word in WORDS]
    plans = [block for word, block in blocks if word == "python"]
    if len(kernels) != 1 or len(plans) != 1:
        raise Complaint(
            f"{path} must hold one {KERNEL_BLOCK} block and one ```python block, but it holds "
            f"{len(kernels)} and {len(plans)}"
        )
    return kernels[0][0], kernels[0][1], plans[0]


def _defines_model(text: str) -> bool:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return any(isinstance(node, ast.ClassDef) for node in tree.body)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise Complaint(f"{path} is not text") from None
    except OSError as error:
        raise Complaint(f"cannot read {path}: {error.strerror}") from None
