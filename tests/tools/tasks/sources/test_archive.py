"""Archives: what is unpacked, and what an archive must not do."""

import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelwright.tools.tasks.sources import archive
from kernelwright.tools.tasks.sources.archive import unpacked
from kernelwright.tools.types import Refusal

Pack = Callable[..., Path]


@pytest.fixture
def pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pack:
    """Writes an archive of these files; ours go into a folder of the test."""
    monkeypatch.setenv("KERNELWRIGHT_HOME", str(tmp_path / "home"))

    def write(*members: tuple[str | zipfile.ZipInfo, str]) -> Path:
        path = tmp_path / "p.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
            for name, text in members:
                made.writestr(name, text)
        return path

    return write


def link(name: str) -> zipfile.ZipInfo:
    made = zipfile.ZipInfo(name)
    made.external_attr = (stat.S_IFLNK | 0o777) << 16
    return made


def test_an_archive_is_unpacked_once_and_a_folder_around_all_of_it_is_left_out(pack: Pack):
    path = pack(("top/a.py", "A = 1"), ("top/sub/b.py", ""), ("__MACOSX/a.py", "junk"))
    folder = unpacked(path)
    assert isinstance(folder, Path)
    assert (folder / "a.py").read_text() == "A = 1"
    assert folder.name == "top"
    assert unpacked(path) == folder


def test_a_package_keeps_its_name(pack: Pack):
    folder = unpacked(pack(("pkg/__init__.py", ""), ("pkg/a.py", "")))
    assert isinstance(folder, Path)
    assert (folder / "pkg" / "a.py").is_file()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("../out.py", "leads out of it"),
        ("/etc/out.py", "leads out of it"),
        ("a\\..\\..\\out.py", "leads out of it"),
        ("C:/out.py", "leads out of it"),
        (link("out.py"), "is a link or a device"),
    ],
)
def test_no_member_leaves_the_folder(pack: Pack, tmp_path: Path, name: object, words: str):
    found = unpacked(pack(("a.py", ""), (name, "/etc/passwd")))
    assert isinstance(found, Refusal)
    assert words in found.sentence
    assert not list(tmp_path.rglob("out.py"))
    assert not list((tmp_path / "home" / "unpacked").iterdir())


def test_sizes_are_counted_while_bytes_come_out(pack: Pack, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(archive, "LARGEST_UNPACKED_BYTES", 1000)
    monkeypatch.setattr(archive, "MOST_MEMBERS", 3)
    for members, words in (
        ([("a.py", "0" * 600), ("b.py", "0" * 600)], "holds more than"),
        ([(f"{n}.py", "") for n in range(4)], "holds 4 files"),
    ):
        found = unpacked(pack(*members))
        assert isinstance(found, Refusal)
        assert words in found.sentence


def test_what_is_no_archive_is_a_sentence(tmp_path: Path, pack: Pack):
    whole = pack(("a.py", "A = 1" * 100)).read_bytes()
    for content in (b"", b"PK", whole[: len(whole) // 2], b"x" * 100):
        broken = tmp_path / "broken.zip"
        broken.write_bytes(content)
        found = unpacked(broken)
        assert isinstance(found, Refusal)
        assert "broken.zip is no archive" in found.sentence


def test_a_name_that_stands_twice_is_a_sentence(pack: Pack):
    with pytest.warns(UserWarning, match="Duplicate name"):
        path = pack(("a.py", "1"), ("a.py", "2"))
    assert isinstance(unpacked(path), Refusal)
