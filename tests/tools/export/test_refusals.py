"""What is not exported, and where nothing is written."""

import json
import os
from pathlib import Path

import pytest

from kernelwright.tools.export import (
    ExportRefusedError,
    check_place,
    export_folder,
    export_kernelbench,
    kernelbench,
)
from kernelwright.tools.types import Verdict


def test_what_is_not_faster_is_not_exported_unless_forced(material, tmp_path):
    with pytest.raises(ExportRefusedError, match="how fast it is beside PyTorch is not settled"):
        export_folder(material(low=0.98), tmp_path / "slow")
    assert not (tmp_path / "slow").exists()
    folder = export_folder(material(low=0.98, forced=True), tmp_path / "slow")
    words = (folder / "VERIFICATION.md").read_text()
    assert "(`--force`): it was verified, but how fast it is beside PyTorch is not settled" in words
    assert "| faster |" not in words
    assert json.loads((folder / "evidence.json").read_text())["forced"] is True


def lower(made):
    """The same, computed in TF32 without leave."""
    found = made.evaluation.verification.model_copy(
        update={"precision": "tf32", "apart": "computes in tf32, the task in fp32"}
    )
    evaluation = made.evaluation.model_copy(update={"verification": found})
    return made.model_copy(update={"evaluation": evaluation})


def test_a_precision_that_nobody_allowed_is_exported_by_force_only_and_says_so(material, tmp_path):
    with pytest.raises(ExportRefusedError, match=r"computes in tf32.*not allowed.*--allow"):
        export_folder(lower(material()), tmp_path / "low")
    assert not (tmp_path / "low").exists()
    folder = export_folder(lower(material(forced=True)), tmp_path / "low")
    words = (folder / "VERIFICATION.md").read_text()
    assert "by force (`--force`): it computes in tf32, the task in fp32" in words
    assert "faster than every PyTorch baseline" not in words
    assert "WARNING: it computes in tf32" in (folder / "module.py").read_text()
    assert json.loads((folder / "evidence.json").read_text())["apart"]
    assert "# WARNING: it computes in tf32" in kernelbench(lower(material(forced=True)))


def test_faster_by_less_than_the_noise_of_the_session_is_not_faster(material, tmp_path):
    made = material(low=1.01)
    noisy = tuple(item.model_copy(update={"noise": 0.02}) for item in made.evaluation.comparisons)
    evaluation = made.evaluation.model_copy(update={"comparisons": noisy})
    with pytest.raises(ExportRefusedError, match="not shown to be faster"):
        export_folder(made.model_copy(update={"evaluation": evaluation}), tmp_path / "noisy")


def test_what_is_not_correct_is_never_exported(material, tmp_path):
    made = material(forced=True)
    wrong = made.evaluation.verification.model_copy(update={"verdict": Verdict.WRONG_RESULT})
    made = made.model_copy(
        update={"evaluation": made.evaluation.model_copy(update={"verification": wrong})}
    )
    with pytest.raises(ExportRefusedError, match="wrong_result"):
        export_folder(made, tmp_path / "wrong")


def test_a_folder_of_something_else_is_left_alone(material, tmp_path):
    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(ExportRefusedError, match="not empty"):
        export_folder(material(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]


def test_an_earlier_export_is_replaced(material, tmp_path):
    first = export_folder(material(), tmp_path / "out")
    (first / "module.py").write_text("old")
    again = export_folder(material(), tmp_path / "out")
    assert (again / "module.py").read_text() != "old"


def test_a_full_disk_leaves_no_half_export_and_no_folder_in_the_way(
    material, tmp_path, monkeypatch
):
    write = Path.write_bytes

    def full(path, data):
        if path.name in ("evidence.json", "one.py", ".one.py.unfinished"):
            raise OSError(28, "No space left on device")
        return write(path, data)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_bytes", full)
        with pytest.raises(ExportRefusedError, match="No space left"):
            export_folder(material(), tmp_path / "out")
        with pytest.raises(ExportRefusedError, match="No space left"):
            export_kernelbench(material(), tmp_path / "one.py")
    assert not list(tmp_path.iterdir())
    assert (export_folder(material(), tmp_path / "out") / "evidence.json").exists()


def test_a_file_in_the_way_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ExportRefusedError, match="it is a file"):
        check_place(tmp_path / "file")
    with pytest.raises(ExportRefusedError, match="not writable"):
        check_place(tmp_path / "file" / "below")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_named(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(ExportRefusedError, match="not writable"):
        check_place(tmp_path / "new")


def test_the_evidence_holds_samples_hashes_and_versions(material, tmp_path):
    folder = export_folder(material(), tmp_path / "out")
    evidence = json.loads((folder / "evidence.json").read_text())
    assert evidence["evaluation"]["comparisons"][0]["candidate_samples_ms"] == [0.5, 0.51]
    assert set(evidence["files_sha256"]) == {p.name for p in folder.iterdir()} - {"evidence.json"}
    assert evidence["versions"]["torch"]
    assert evidence["task"]["source_sha256"]


def test_the_verification_says_what_was_not_verified(material, tmp_path):
    words = (export_folder(material(), tmp_path / "out") / "VERIFICATION.md").read_text()
    assert "(48, 96), float32" in words
    assert "denormal inputs" in words
    assert "Gradients" in words
    assert "1.750 to 1.850" in words
    assert "shapes: this shape only" in words


def test_kernelbench_wants_a_model(material, softmax):
    source = softmax[0].replace("class Model(", "class Softmax(")
    with pytest.raises(ExportRefusedError, match="class Model"):
        kernelbench(material(source, *softmax[1:], entry="Softmax"))


def test_a_reference_that_uses_our_names_is_refused(material, softmax):
    with pytest.raises(ExportRefusedError, match="'KERNEL'"):
        kernelbench(material(softmax[0] + "\nKERNEL = 3\n", *softmax[1:]))
