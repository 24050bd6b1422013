"""A suite over several GPUs: processes that have a share each, and what becomes of lost ones.

The processes are real and judge on the CPU; which GPU they would see stands in their environment.
"""

import asyncio
import os
import signal
from contextlib import aclosing
from pathlib import Path

import pytest

from kernelwright.graphs.suite import Outcome, Terms
from kernelwright.ui import suite as gpus
from kernelwright.ui.cli.app import run
from kernelwright.ui.complaints import Complaint
from kernelwright.ui.suite import Gpu, Share, chosen_gpus, spread

# Says which GPU its worker sees, and is no task.
TELLING = 'import os\nraise ValueError("sees " + os.environ["CUDA_VISIBLE_DEVICES"])\n'
ENDLESS = "while True:\n    pass\n"
GPUS = (Gpu(name="GPU 5", visible="5"), Gpu(name="GPU 7", visible="7"))


def share_of(folder: Path, files: tuple[tuple[str, str], ...]) -> Share:
    """Baselines of these files on the CPU."""
    for name, text in files:
        (folder / name).write_text(text)
    terms = Terms(search="", seconds=None, seed=0, target="cpu", kernelwright="", torch="")
    return Share(
        files=tuple(str(folder / name) for name, _ in files),
        profile=None, terms=terms, target="cpu", home=str(folder / "home"), models=None,
        evidence="timing",
    )  # fmt: skip


@pytest.mark.exhaustive
async def test_each_process_sees_its_gpu_and_a_slow_file_costs_alone_when_its_own_is_killed(
    tmp_path: Path,
) -> None:
    share = share_of(tmp_path, (("0.py", ENDLESS), *((f"{n}.py", TELLING) for n in range(1, 3))))
    found, begun = list[Outcome](), list[str]()
    async with aclosing(spread(share, GPUS, lambda path: begun.append(path.name))) as outcomes:
        async for item in outcomes:
            found.append(item)
            if len(found) == 2:  # all that can end while the first file does not
                seen = {words for words in ("5", "7") for o in found if f"sees {words}" in o.words}
                (slow,) = {"5", "7"} - seen
                os.kill(children()[slow], signal.SIGKILL)
    assert sorted(begun) == ["0.py", "1.py", "2.py"]
    assert sorted(item.file for item in found[:2]) == ["1.py", "2.py"]
    assert all(item.ended == "refused" and item.terms == share.terms for item in found[:2])
    (lost,) = found[2:]
    assert (lost.file, lost.ended) == ("0.py", "failed")
    assert lost.words == f"the process of GPU {slow} ended with status -9"


@pytest.mark.exhaustive
async def test_another_process_takes_the_place_of_one_that_was_lost(tmp_path: Path) -> None:
    share = share_of(tmp_path, (("0.py", ENDLESS), ("1.py", TELLING), ("2.py", TELLING)))
    found: list[Outcome] = []
    begun: asyncio.Queue[Path] = asyncio.Queue()

    async def go() -> None:
        found.extend([item async for item in spread(share, GPUS[:1], begun.put_nowait)])

    working = asyncio.create_task(go())
    await begun.get()
    os.kill(children()["5"], signal.SIGKILL)
    await working
    lost, *others = found
    words = "the process of GPU 5 ended with status -9"
    assert (lost.file, lost.ended, lost.words) == ("0.py", "failed", words)
    assert [item.file for item in others] == ["1.py", "2.py"]
    assert all(item.ended == "refused" and "sees 5" in item.words for item in others)


def test_a_process_of_a_gpu_searches_by_regions_as_the_suite_does(tmp_path: Path) -> None:
    share = share_of(tmp_path, ()).model_copy(update={"regions": "on"})
    told = Share.model_validate_json(share.model_dump_json())
    assert told.ground.regions == "on"


async def test_what_no_process_is_left_for_is_an_outcome_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    share = share_of(tmp_path, (("0.py", TELLING), ("1.py", TELLING)))
    monkeypatch.setattr("kernelwright.ui.suite.sys.executable", "/bin/false")
    found = [item async for item in spread(share, GPUS[:1], lambda path: None)]
    words = "no process was left for it: the process of GPU 5 ended with status 1"
    assert [(item.file, item.ended, item.words) for item in found] == [
        ("0.py", "failed", words),
        ("1.py", "failed", words),
    ]


def children() -> dict[str, int]:
    """The processes of this one that have a share, by the GPU that each of them sees."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_text()
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            environment = (entry / "environ").read_text()
        except OSError:
            continue
        if parent == os.getpid() and "kernelwright.ui.suite" in words:
            settings = dict(item.partition("=")[::2] for item in environment.split("\0"))
            found[settings["CUDA_VISIBLE_DEVICES"]] = int(entry.name)
    return found


async def until_begun(share: Share, found: list[Outcome]) -> "asyncio.Task[None]":
    """A suite under way, of which every file has begun."""
    begun: asyncio.Queue[Path] = asyncio.Queue()

    async def go() -> None:
        async with aclosing(spread(share, GPUS, begun.put_nowait)) as outcomes:
            async for item in outcomes:
                found.append(item)

    working = asyncio.create_task(go())
    for _ in share.files:
        await begun.get()
    return working


@pytest.mark.exhaustive
async def test_a_file_that_a_lost_process_had_begun_is_an_outcome(tmp_path: Path) -> None:
    share = share_of(tmp_path, (("0.py", ENDLESS), ("1.py", ENDLESS)))
    found: list[Outcome] = []
    working = await until_begun(share, found)
    for process in children().values():
        os.kill(process, signal.SIGKILL)
    await working
    assert sorted(item.file for item in found) == ["0.py", "1.py"]
    assert {item.ended for item in found} == {"failed"}
    assert sorted(item.words for item in found) == [
        "the process of GPU 5 ended with status -9",
        "the process of GPU 7 ended with status -9",
    ]


@pytest.mark.exhaustive
async def test_a_gpu_without_files_gets_no_process(tmp_path: Path) -> None:
    share, found = share_of(tmp_path, (("0.py", ENDLESS),)), list[Outcome]()
    working = await until_begun(share, found)
    assert len(children()) == 1
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working


@pytest.mark.exhaustive
async def test_whoever_leaves_early_leaves_no_process(tmp_path: Path) -> None:
    share = share_of(tmp_path, (("0.py", ENDLESS), ("1.py", ENDLESS)))
    found: list[Outcome] = []
    working = await until_begun(share, found)
    assert len(children()) == 2
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert children() == {}
    assert found == []


@pytest.mark.parametrize(
    ("words", "given", "visible"),
    [
        ("", "", []),
        ("all", "", ["0", "1", "2"]),
        ("2,0,2", "", ["2", "0"]),
        ("1", "GPU-a, GPU-b, GPU-c", ["GPU-b"]),
        ("all", "7,3,5", ["7", "3", "5"]),
    ],
)
def test_gpus_are_numbered_as_cuda_numbers_the_visible(
    words: str, given: str, visible: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "visible_gpus", lambda: 3)
    found = chosen_gpus(words, {"CUDA_VISIBLE_DEVICES": given})
    assert [place.visible for place in found] == visible


@pytest.mark.parametrize(
    ("words", "count", "sentence"),
    [
        ("0,3", 3, "there is no GPU 3: 3 can be used here"),
        ("both", 3, "not 'both'"),
        ("-1", 3, "not '-1'"),
        ("all", 0, "none can be used here"),
    ],
)
def test_gpus_that_are_not_there_are_one_sentence(
    words: str, count: int, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus, "visible_gpus", lambda: count)
    with pytest.raises(Complaint, match=sentence):
        chosen_gpus(words, {})


def test_a_suite_on_a_cpu_is_not_spread_over_gpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", str(tmp_path), "--target", "cpu", "--gpus", "all"]) == 2
    assert "--target is cpu" in capsys.readouterr().err
