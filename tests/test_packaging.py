"""What `pip install` brings: one name with all of its data, from a wheel and from a sdist."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PARTS = ("agents", "graphs", "profiles", "tools", "ui")
SOURCES = ("kernelwright", *PARTS, "pyproject.toml", "README.md", "LICENSE")
BUILD = "import setuptools.build_meta as backend; backend.build_{kind}({folder!r})"
# A person's own package may have the name of one of our folders.
TOY = """import torch
from tools.mine import twice

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(twice(x)) + 1

def get_inputs():
    return [torch.rand(64, 256)]
"""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of what is packed, links as links: building leaves its traces there."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in SOURCES:
        if (ROOT / name).is_dir():
            leave = shutil.ignore_patterns("__pycache__")
            shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=leave)
        else:
            shutil.copy(ROOT / name, folder)
    return folder


def built(kind, source, folder):
    """The wheel or sdist of a source tree, as pip has it made, without its network."""
    command = [sys.executable, "-c", BUILD.format(kind=kind, folder=str(folder))]
    subprocess.run(command, cwd=source, check=True, capture_output=True, timeout=300)
    return next(folder.glob("*.whl" if kind == "wheel" else "*.tar.gz"))


@pytest.fixture(scope="module")
def wheel(checkout, tmp_path_factory):
    return built("wheel", checkout, tmp_path_factory.mktemp("wheel"))


def ours():
    """Every file of ours, by its path in the package."""
    found = {f"kernelwright/{path.name}" for path in (ROOT / "kernelwright").glob("*.py")}
    for part in PARTS:
        for path in (ROOT / part).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                found.add(f"kernelwright/{path.relative_to(ROOT).as_posix()}")
    return found


def test_a_wheel_holds_one_package_with_all_of_its_data(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        points = next(name for name in names if name.endswith("entry_points.txt"))
        assert b"kernelwright = kernelwright.ui.cli.app:main" in archive.read(points)
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"kernelwright"}
    assert {name for name in names if name.startswith("kernelwright/")} == ours()


@pytest.mark.exhaustive
def test_a_source_archive_holds_folders_and_makes_the_same_wheel(checkout, wheel, tmp_path):
    (tmp_path / "made").mkdir()
    with tarfile.open(built("sdist", checkout, tmp_path)) as archive:
        members = archive.getmembers()
        assert [item.name for item in members if item.issym() or item.islnk()] == []
        archive.extractall(tmp_path / "source", filter="data")
    again = built("wheel", next((tmp_path / "source").iterdir()), tmp_path / "made")
    with zipfile.ZipFile(again) as second, zipfile.ZipFile(wheel) as first:
        assert sorted(second.namelist()) == sorted(first.namelist())


def test_links_that_became_text_are_named_in_one_sentence(checkout, tmp_path):
    shutil.copytree(checkout / "kernelwright", tmp_path / "kernelwright", symlinks=True)
    for part in PARTS:
        (tmp_path / "kernelwright" / part).unlink()
        (tmp_path / "kernelwright" / part).write_text(f"../{part}")
    told = subprocess.run(
        [sys.executable, "-m", "kernelwright", "--version"],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert told.returncode != 0
    assert told.stderr.splitlines()[-1].startswith("ImportError: ")
    assert "without symbolic links" in told.stderr


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Runs the command of an installation that has everything else from this environment."""
    folder = tmp_path_factory.mktemp("installed")
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--no-index", str(wheel)], check=True, timeout=300)
    site = next((folder / "venv" / "lib").glob("python*/site-packages"))
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (folder / "place" / "tools").mkdir(parents=True)
    (folder / "place" / "tools" / "__init__.py").touch()
    (folder / "place" / "tools" / "mine.py").write_text("def twice(x):\n    return x * 2\n")
    (folder / "place" / "toy.py").write_text(TOY)
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}

    def run(*arguments):
        return subprocess.run(
            [python, *arguments], cwd=folder / "place", env=environment,
            capture_output=True, text=True, check=False, timeout=1500,
        )  # fmt: skip

    return run


@pytest.mark.exhaustive
def test_an_installation_finds_itself_and_its_metadata(installed):
    told = installed("-c", "import kernelwright.tools; print(kernelwright.__file__)")
    assert "/installed0/venv/" in told.stdout
    told = installed("-m", "kernelwright", "--version")
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.startswith("kernelwright 0.")
    assert "source" not in told.stdout
    assert installed("-c", "import tools.mine, agents").stderr.endswith("'agents'\n")


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_an_installation_can_do_its_work(installed):
    told = installed("-m", "kernelwright", "doctor")
    assert told.returncode == 0, told.stdout + told.stderr
    assert "C++ kernel" in told.stdout


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
def test_an_installation_searches_beside_a_persons_own_tools(installed):
    asked = ("--target", "cpu", "--search", "quick", "--seconds", "6", "--run-dir", "runs")
    told = installed("-m", "kernelwright", "optimize", "toy.py", *asked)
    assert told.returncode == 0, told.stderr
    assert "baselines" in told.stderr
