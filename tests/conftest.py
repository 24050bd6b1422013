"""What holds for the whole suite: the files that take longest come first.

Several processes share the files; one that is long and last would keep everybody waiting. They
also share the processors, which shapes the environment that everything started here inherits.

Property tests (those of Hypothesis) try few inputs, the same ones every time; `make test-all` sets
KERNELWRIGHT_TEST_DEPTH=all and runs them again with many, the same ones as well: what was green
stays green until something is changed. KERNELWRIGHT_TEST_DEPTH=new looks for new ones.

What compilers make is kept in pytest's cache folder under all that decides it, as ccache does, so
that a second run compiles what has changed; `--cache-clear` forgets it.
"""

import contextlib
import fcntl
import gc
import hashlib
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("first", max_examples=15, deadline=None, derandomize=True)
settings.register_profile("all", max_examples=150, deadline=None, derandomize=True)
settings.register_profile("new", max_examples=2000, deadline=None)
settings.load_profile(os.environ.get("KERNELWRIGHT_TEST_DEPTH", "first"))

# Threads that wait for each other sleep, instead of spinning on a processor that the other needs.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
# Inductor compiles something to learn what the compiler can do, in every fresh folder: three
# seconds of g++ for each test whose workers compile. Here it can do all that the processor can.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")

# What is imported for the tests stays until the end: Python's collector need not look at it, not
# while it is imported and not after. It was a third of what collecting the tests took.
gc.disable()

LONGEST = (
    "chat/server/test_browser.py", "sandbox/test_without_bubblewrap.py",
    "export/test_many_weights.py", "learning/test_drafts.py", "evil/test_cpu.py",
    "contractions/test_convolutions.py",
    "evil/test_mutations.py", "verify/test_verdicts.py", "evaluate/foreign/test_guests.py",
    "executors/test_compiled_once.py", "chat/server/test_socket.py", "executors/test_batch.py",
    "recurrences/test_recurrent.py", "search/test_real_search.py", "verify/test_holdout.py",
    "contractions/test_maps.py", "llm/test_endpoint.py", "sandbox/test_workers.py",
    "chat/server/test_doors.py", "verify/test_audit.py", "attention/test_attention.py",
    "ui/cli/test_bench.py", "suite/test_ahead.py", "cuda/test_emulated.py",
    "executors/test_bad_files.py", "ui/cli/test_cli_batch.py", "ui/test_doctor.py",
    "contractions/test_tails.py", "cuda/test_products.py", "ui/cli/test_cli_bad_input.py",
)  # fmt: skip


def pytest_itemcollected(item: pytest.Item) -> None:
    """What Hypothesis draws the inputs of is a property test, and need not say so itself."""
    if getattr(getattr(item, "function", None), "is_hypothesis_test", False):
        item.add_marker("property")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Longest first, else in the order they were found."""

    def rank(item: pytest.Item) -> int:
        path = item.path.as_posix()
        return next((at for at, end in enumerate(LONGEST) if path.endswith(end)), len(LONGEST))

    items.sort(key=rank)


def pytest_collection_finish() -> None:
    """From here on there is garbage of tests, and nothing else is looked through for it.

    References run in the tests' own processes too, where their first calls must be exact.
    """
    from kernelwright.tools.evaluate.process_setup import resolve_vector_math

    resolve_vector_math()
    gc.freeze()
    # A trace makes thousands of objects that live as long as it: looked through every 700, that was
    # a tenth of what tracing takes.
    gc.set_threshold(50_000, 10, 20)
    gc.enable()


KEPT_DAYS = 14
# What decides the object of a candidate besides its cache key: how it is checked and compiled.
_COMPILING = ("tools/languages", "tools/candidates", "tools/types")


def pytest_sessionstart(session: pytest.Session) -> None:
    """What no run has used for two weeks is dropped."""
    cache = session.config.cache
    if "PYTEST_XDIST_WORKER" in os.environ or cache is None:
        return
    for folder in (*cache.mkdir("made").iterdir(), *cache.mkdir("objects").iterdir()):
        if time.time() - folder.stat().st_mtime > KEPT_DAYS * 86_400:
            shutil.rmtree(folder, ignore_errors=True)


def _digest(*texts: str | bytes) -> str:
    made = hashlib.sha256()
    for text in texts:
        data = text.encode() if isinstance(text, str) else text
        made.update(f"{len(data)}:".encode() + data)
    return made.hexdigest()[:32]


@pytest.fixture(scope="session")
def built_once(pytestconfig: pytest.Config) -> Callable[..., Path]:
    """`built_once(make, *decisive)` is a folder as `make(folder)` filled it, now or before.

    `decisive` are the texts that decide what is made. Without `make` nothing is made.
    """
    assert pytestconfig.cache is not None
    root = pytestconfig.cache.mkdir("made")

    def folder(make: Callable[[Path], None] | None, *decisive: str | bytes) -> Path:
        final = root / _digest(*decisive)
        if make is None:
            return final
        if not final.is_dir():
            made = Path(tempfile.mkdtemp(dir=root))
            make(made)
            try:
                made.rename(final)
            except OSError:  # another process was faster
                shutil.rmtree(made)
        os.utime(final)
        return final

    return folder


def _compiled_objects(config: pytest.Config) -> Path:
    """Where candidates' objects are kept for as long as the code that makes them is the same."""
    assert config.cache is not None
    tops = (Path(__file__).parents[1] / name for name in _COMPILING)
    files = sorted(path for top in tops for path in top.rglob("*") if path.is_file())
    code = [path for path in files if path.suffix not in (".pyc", ".md")]
    objects = config.cache.mkdir("objects") / _digest(*(path.read_bytes() for path in code))
    objects.mkdir(exist_ok=True)
    os.utime(objects)
    return objects


@pytest.fixture(autouse=True, scope="session")
def home_of_tests(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """What is compiled and measured stays out of the user's folders; all processes share it."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "home-of-tests"
    (shared / "cache").mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        (shared / "cache" / "objects").symlink_to(_compiled_objects(pytestconfig))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERNELWRIGHT_HOME", str(shared))
        yield shared


@pytest.fixture(autouse=True, scope="session")
def listings_kept(built_once: Callable[..., Path]) -> Iterator[None]:
    """What the wheel's nvdisasm prints of an object is read once: half a second each."""
    from kernelwright.tools.languages.cuda import inspection

    asked, real = inspection._disassembled, inspection.find_nvdisasm()

    async def listed(program: Path, cubin: Path, limit_s: float, options: Sequence[str]) -> str:
        if program != real or limit_s < inspection.TIMEOUT_S:
            return await asked(program, cubin, limit_s, options)
        known = look(program, cubin, options)
        text = known or await asked(program, cubin, limit_s, options)
        return known or look(program, cubin, options, text)

    def look(program: Path, cubin: Path, options: Sequence[str], text: str = "") -> str:
        def write(folder: Path) -> None:
            (folder / "listing.txt").write_text(text, encoding="utf-8")

        facts = (str(program), str(program.stat().st_mtime_ns), *options)
        folder = built_once(write if text else None, cubin.read_bytes(), *facts)
        listing = folder / "listing.txt"
        return listing.read_text(encoding="utf-8") if listing.is_file() else ""

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inspection, "_disassembled", listed)
        yield


@pytest.fixture(scope="session")
def made_once(home_of_tests: Path) -> Callable[[str, Callable[[Path], str]], str]:
    """`made_once(name, make)` is the text of `make(folder)`, called by one process for all.

    What takes a worker or two to make is made in the first process that wants it; others wait.
    """

    def text(name: str, make: Callable[[Path], str]) -> str:
        folder = home_of_tests / "made-once" / name
        folder.mkdir(parents=True, exist_ok=True)
        kept = folder / "kept.txt"
        with (folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not kept.exists():
                kept.write_text(make(folder), encoding="utf-8")
        return kept.read_text(encoding="utf-8")

    return text


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """The messages of warnings and worse, as they come: all that is needed of pytest's plugin."""
    messages: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    yield messages
    logging.getLogger().removeHandler(handler)


@pytest.fixture
def nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile hands modules back as they are: a search is a minute shorter without it."""
    monkeypatch.setenv("TORCH_COMPILE_DISABLE", "1")


@pytest.fixture(autouse=True, scope="session")
def commits_that_nobody_waits_for() -> Iterator[None]:
    """No test cuts the power, and a search commits hundreds of times: five milliseconds each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kernelwright.tools.archive.schema._COMMITS", "synchronous=OFF")
        yield


@pytest.fixture(autouse=True, scope="module")
def path_as_it_was() -> Iterator[None]:
    """A file that a test loads leaves its folder on the path, where walls would let it in."""
    before = list(sys.path)
    yield
    sys.path[:] = before


@pytest.fixture(scope="module")
def spinning_threads() -> Iterator[None]:
    """For those who judge what threads do: they wait as a user's do, on their processors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OMP_WAIT_POLICY", raising=False)
        yield
