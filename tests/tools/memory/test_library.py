"""Kernels are found again by what they compute, by several processes, in bounded space."""

import json
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kernelwright.tools.memory import (
    Kept,
    KernelLibrary,
    Proof,
    file_lines,
    forget,
    is_near,
    key_of,
    library,
    library_path,
    read_lines,
)
from kernelwright.tools.types import (
    Candidate,
    DType,
    Graph,
    InputSpec,
    ListArg,
    Node,
    Ref,
    Scalar,
    Task,
    TensorSpec,
)

PLAN = 'def forward(x):\n    w = weights["norm.weight"]  # scale\n    return x\n'


def task(
    rows: int = 64, columns: int = 512, *, name: str = "x", weight: str = "norm.weight",
    dtype: DType = DType.FLOAT32, dim: int = -1,
) -> Task:  # fmt: skip
    """Sums of rows, scaled by a weight and divided by their length."""
    whole = TensorSpec(shape=(rows, columns), dtype=dtype)
    row = TensorSpec(shape=(rows,), dtype=dtype)
    over, count = ListArg(items=(Scalar(value=dim),)), Scalar(value=columns)
    nodes = (
        Node(name="p", op="weight", out=(whole,), target=weight),
        Node(name=name, op="input", out=(whole,)),
        Node(name="m", op="aten.mul.Tensor", args=(Ref(node=name), Ref(node="p")), out=(whole,)),
        Node(name="s", op="aten.sum.dim_IntList", args=(Ref(node="m"), over), out=(row,)),
        Node(name="d", op="aten.div.Tensor", args=(Ref(node="s"), count), out=(row,)),
    )
    return Task(
        name="mean", path="mean.py", source="secret()", source_sha256="0", entry="Model",
        entry_kind="kernelbench", inputs=(InputSpec(name=name, tensor=whole),), outputs=(row,),
        graph=Graph(nodes=nodes, inputs=(name,), outputs=("d",)), bytes_moved=1, flops=1,
    )  # fmt: skip


def kept(of: Task, kernel: str = "k", ratio: float = 2.0, device: str = "Toy") -> Kept:
    key = key_of(of)
    assert key is not None
    proof = Proof(
        median_ms=1.0, baseline="compile", ratio=ratio, ci95=(ratio - 0.1, ratio + 0.1),
        floor_fraction=0.5, method="", certified=True,
    )  # fmt: skip
    candidate = Candidate(id=f"{kernel}-{ratio}", language="cpp", kernel=kernel, plan=PLAN)
    found = Kept.of(
        candidate, key, inputs=(), device=device, kind="cpu", proof=proof,
        at=datetime.now(UTC), task=of.name, run="mean-1",
    )  # fmt: skip
    assert found is not None
    return found


def test_equal_tasks_have_one_key_whatever_their_names_are():
    one, other = key_of(task()), key_of(task(name="hidden", weight="w0"))
    assert one is not None
    assert other is not None
    assert (one.exact, one.structure) == (other.exact, other.structure)
    assert (one.weights, other.weights) == (("norm.weight",), ("w0",))
    assert one.words == "mul, sum, div"


@pytest.mark.parametrize(
    ("other", "alike"),
    [
        (task(rows=128), True),
        (task(columns=640), True),
        (task(dtype=DType.FLOAT16), False),
        (task(dim=0), False),
    ],
)
def test_other_sizes_share_a_structure_and_other_types_and_dimensions_do_not(
    other: Task, alike: bool
):
    one, two = key_of(task()), key_of(other)
    assert one is not None
    assert two is not None
    assert one.exact != two.exact
    assert (one.structure == two.structure) is alike


def test_a_kernel_is_found_on_another_tasks_weights(tmp_path: Path):
    library, key = KernelLibrary(tmp_path), key_of(task(weight="encoder.0.scale"))
    assert key is not None
    assert library.exactly(key, "cpu", "Toy") == ()
    assert not library_path(tmp_path).exists()
    library.keep([kept(task())])
    (found,) = library.exactly(key, "cpu", "Toy")
    assert found.plan_for(key) == PLAN.replace("norm.weight", "encoder.0.scale")
    assert found.words == "mean of 64 x 512 float32, run mean-1"
    assert library.exactly(key, "cuda", "Toy") == ()


def test_of_other_shapes_the_nearest_comes_first(tmp_path: Path):
    library, key = KernelLibrary(tmp_path), key_of(task())
    assert key is not None
    library.keep([kept(task(rows=4096)), kept(task(rows=128)), kept(task(rows=8192))])
    rows = [item.key.shape[0] for item in library.like(key, "cpu", "Toy")]
    assert rows == [128, 4096, 8192]


@pytest.mark.parametrize(
    ("rows", "columns", "near"),
    [(128, 512, True), (32, 1024, True), (65, 511, True), (129, 512, False), (64, 255, False)],
)
def test_near_is_a_factor_of_two_on_every_side(rows: int, columns: int, near: bool):
    one, other = key_of(task()), key_of(task(rows=rows, columns=columns))
    assert one is not None
    assert other is not None
    assert is_near(one, other) is is_near(other, one) is near


def test_the_library_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(library, "_KERNELS", 4)
    store, key = KernelLibrary(tmp_path), key_of(task())
    assert key is not None
    store.keep(kept(task(), f"k{number}", 1.0 + number) for number in range(6))
    assert [i.proof.ratio for i in store.exactly(key, "cpu", "Toy")] == [6.0, 5.0, 4.0]
    store.keep(kept(task(rows=number)) for number in range(2, 12))
    assert store.counts().kernels == 4


def test_a_file_to_give_away_names_nobody_and_proves_nothing(tmp_path: Path):
    (line,) = file_lines([kept(task())])
    assert not {"mean-1", "norm.weight", "secret"} & set(json.dumps(json.loads(line)).split('"'))
    (merged,) = read_lines([line, "\n"])
    assert merged.merged
    assert not merged.proof.certified
    store = KernelLibrary(tmp_path)
    store.keep([kept(task())])
    store.keep([merged])
    assert [item.run for item in store.every()] == ["mean-1"]
    with pytest.raises(ValueError, match="line 1 is no kernel"):
        list(read_lines(['{"key": 1}']))


def test_a_part_of_a_certified_model_is_certified(tmp_path: Path):
    store, part = KernelLibrary(tmp_path), kept(task())
    proof = part.proof.model_copy(update={"certified": False})
    store.keep([part.model_copy(update={"proof": proof})])
    store.certify([part.candidate, "unknown"], "Toy")
    assert [item.proof.certified for item in store.every()] == [True]


def test_what_settles_nothing_leaves_standing_what_was_settled(tmp_path: Path):
    store, first = KernelLibrary(tmp_path), kept(task())
    store.keep([first])
    for interval, stays in (((0.8, 1.4), True), ((0.7, 0.9), False)):
        proof = first.proof.model_copy(update={"ci95": interval, "certified": False})
        store.keep([first.model_copy(update={"proof": proof})])
        (found,) = store.every()
        assert found.faster is stays
        assert found.proof.certified


def test_several_processes_write_at_once(tmp_path: Path):
    (line,) = file_lines([kept(task())])
    script = (
        "import sys\nfrom pathlib import Path\n"
        "from kernelwright.tools.memory import KernelLibrary, read_lines\n"
        "(one,) = read_lines([sys.argv[2]])\nlibrary = KernelLibrary(Path(sys.argv[1]))\n"
        "for n in range(20):\n"
        "    library.keep([one.model_copy(update={'device': f'{sys.argv[3]}{n}'})])\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path), line]
    writers = [subprocess.Popen([*command, name]) for name in "ab"]
    assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
    assert KernelLibrary(tmp_path).counts().kernels == 40


def test_what_cannot_be_read_is_deleted_when_asked(tmp_path: Path):
    assert not forget(tmp_path)
    library_path(tmp_path).write_text("no database at all, but long enough to be looked at" * 20)
    with pytest.raises(sqlite3.DatabaseError):
        KernelLibrary(tmp_path).every()
    assert forget(tmp_path)
    KernelLibrary(tmp_path).keep([kept(task())])
    assert forget(tmp_path)
    assert KernelLibrary(tmp_path).every() == ()
