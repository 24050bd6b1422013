"""The list of runs, and candidates that are called by their numbers."""

import io
import re

import pytest
from rich.console import Console

from kernelwright.graphs.search.summary import material_of
from kernelwright.tools.archive import Archive, RunError, list_runs
from kernelwright.tools.export.evidence import verification
from kernelwright.ui.cli import app as cli
from kernelwright.ui.cli.data.runs import list_of


@pytest.mark.parametrize("width", [20, 40, 80, 100, 120, 200])
def test_a_runs_id_is_whole_at_any_width(recording, home, width):
    name = "a_module_with_a_name_that_is_longer_than_most"
    ids = [recording(name=name).archive(home), recording().archive(home, finished=False)]
    console = Console(file=io.StringIO(), width=width)
    list_of(list_runs(home), console)
    lines = [line.strip() for line in console.file.getvalue().splitlines()]
    begun = {line.split(" ")[0] for line in lines}
    assert set(ids) <= begun
    assert "1.44x" in console.file.getvalue()


def test_a_piped_list_has_whole_ids_too(recording, home, capsys):
    run = recording(name="x" * 90).archive(home)
    assert cli.run(["runs", "--run-dir", str(home)]) == 0
    assert run in capsys.readouterr().out.split()


def test_a_run_whose_process_was_killed_does_not_run(recording, home, capsys):
    run = recording().archive(home, finished=False)
    assert cli.run(["runs", "--run-dir", str(home)]) == 0
    said = capsys.readouterr().out
    assert "broken off; resume it" in said
    assert "running" not in said
    archive = Archive.open(run, home)
    archive.claim()
    assert cli.run(["runs", "--run-dir", str(home)]) == 0
    assert "running" in capsys.readouterr().out
    archive.close()


def test_show_has_numbers_and_ids_on_demand(run, home, capsys):
    assert cli.run(["show", run, "--run-dir", str(home)]) == 0
    assert not re.search(r"\b[0-9a-f]{12}\b", capsys.readouterr().out)
    assert cli.run(["show", run, "--ids", "--run-dir", str(home)]) == 0
    assert re.search(r" v3 +[0-9a-f]{12} ", capsys.readouterr().out)


def test_no_id_of_a_candidate_is_in_a_trace_or_a_report(run, home, capsys):
    assert cli.run(["trace", run, "--run-dir", str(home)]) == 0
    assert not re.search(r"\b[0-9a-f]{12}\b", capsys.readouterr().out)
    assert cli.run(["report", run, "--run-dir", str(home)]) == 0
    page = (home / "runs" / run / "report.html").read_text()
    seen = re.sub(r'title="[0-9a-f]{12}"', "", page)
    assert not re.search(r"\b[0-9a-f]{12}\b", seen)
    assert "best so far" not in seen


def test_an_export_takes_a_candidate_by_its_number(run, home):
    archive = Archive.open(run, home)
    try:
        assert material_of(archive, forced=True).name == "v3"
        material = material_of(archive, "V1", forced=True)
        assert material.name == "v1"
        assert "Candidate v1 for `softmax`" in verification(material)
        with pytest.raises(RunError, match=r"no v9; it has v1 to v3"):
            material_of(archive, "v9", forced=True)
    finally:
        archive.close()
