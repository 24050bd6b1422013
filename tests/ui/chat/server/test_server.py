import socket
import subprocess
import sys

import pytest

from kernelwright.ui.chat.server.application import open_store
from kernelwright.ui.chat.server.people import People
from kernelwright.ui.chat.server.serve import _check_people, _listening, _only_one, address
from kernelwright.ui.chat.settings import ChatSettings
from kernelwright.ui.complaints import LACKING, UNUSABLE, Complaint


def test_nobody_is_let_in_from_elsewhere_without_a_password(tmp_path):
    settings = ChatSettings(home=tmp_path, host="0.0.0.0")
    with pytest.raises(Complaint, match="kernelwright user add") as complaint:
        _check_people(settings)
    assert complaint.value.status == UNUSABLE
    People(settings.folder).add("anna", "correct horse", 1.0)
    _check_people(settings)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_this_machine_alone_needs_none(tmp_path, host):
    _check_people(ChatSettings(home=tmp_path, host=host))


def test_a_home_has_one_server(tmp_path):
    with (
        _only_one(tmp_path / "chat"),
        pytest.raises(Complaint, match="another chat") as complaint,
        _only_one(tmp_path / "chat"),
    ):
        pass
    assert complaint.value.status == LACKING
    with _only_one(tmp_path / "chat"):
        pass


def test_what_belongs_to_people_is_closed_to_other_accounts(tmp_path):
    with _only_one(tmp_path / "chat"):
        assert (tmp_path / "chat").stat().st_mode & 0o077 == 0


def test_a_port_that_is_taken_is_said_in_a_sentence(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = ChatSettings(home=tmp_path, port=taken.getsockname()[1])
        with pytest.raises(Complaint, match="--port"), _listening(settings):
            pass


def test_an_address_is_what_a_browser_wants():
    assert address(ChatSettings(port=80)) == "http://127.0.0.1:80"
    assert address(ChatSettings(host="::1", port=80)) == "http://[::1]:80"


def test_a_database_that_cannot_be_opened_keeps_its_password_to_itself(tmp_path):
    url = "postgresql://anna:geheim@127.0.0.1:1/none"
    with pytest.raises(Complaint) as complaint:
        open_store(ChatSettings(home=tmp_path, database=url))
    assert "geheim" not in str(complaint.value)
    assert complaint.value.status == LACKING


def test_chainlit_is_imported_only_after_its_folder_is_in_place():
    code = (
        "import sys, kernelwright.ui.chat.server.serve, kernelwright.ui.cli.chat\n"
        "assert 'chainlit' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
