"""Files are there whole or not at all: a full disk and a kill leave what was there before."""

import os
from pathlib import Path

import pytest

from kernelwright.tools.whole_files import UNFINISHED, fill_folder, write_whole

FILES = {"module.py": "new", "part/kernel.cu": "new", "evidence.json": b"new"}


@pytest.fixture
def full_after(monkeypatch):
    """Makes the disk full in the middle of a file, once so many were written."""

    def fill(count):
        written, write = [], Path.write_bytes

        def limited(path, data):
            written.append(path)
            if len(written) > count:
                write(path, data[:1])
                raise OSError(28, "No space left on device")
            return write(path, data)

        monkeypatch.setattr(Path, "write_bytes", limited)

    return fill


def held(folder):
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in files}


def test_a_file_is_replaced_whole_or_stays_as_it_was(tmp_path, full_after):
    write_whole(tmp_path / "deeper" / "a.html", "old")
    full_after(0)
    with pytest.raises(OSError, match="No space"):
        write_whole(tmp_path / "deeper" / "a.html", "new")
    with pytest.raises(OSError, match="No space"):
        write_whole(tmp_path / "deeper" / "b.html", "new")
    assert held(tmp_path) == {"deeper/a.html": "old"}


def test_a_link_stays_one_and_a_pipe_is_written_into(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_whole(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    reading, writing = os.pipe()
    write_whole(Path(f"/dev/fd/{writing}"), "said")
    assert os.read(reading, 9) == b"said"
    os.close(reading)
    os.close(writing)


@pytest.mark.parametrize("room_for", [0, 1, 2])
def test_a_folder_is_filled_or_is_as_before(tmp_path, full_after, room_for):
    old = {"module.py": "old", "evidence.json": "old", "mine.txt": "mine"}
    fill_folder(tmp_path / "old", old)
    full_after(room_for)
    for name in ("old", "fresh"):
        with pytest.raises(OSError, match="No space"):
            fill_folder(tmp_path / name, FILES)
    assert held(tmp_path / "old") == old
    assert not (tmp_path / "fresh").exists()


def test_what_a_killed_program_left_is_written_over(tmp_path):
    (tmp_path / UNFINISHED).mkdir()
    (tmp_path / UNFINISHED / "stale").write_text("stale")
    (tmp_path / "mine.txt").write_text("mine")
    fill_folder(tmp_path, FILES)
    new = dict.fromkeys(FILES, "new")
    assert held(tmp_path) == {**new, "mine.txt": "mine"}
    assert not (tmp_path / UNFINISHED).exists()
