import pytest
from chainlit.auth import create_jwt
from chainlit.config import config
from chainlit.user import User

from kernelwright.ui.chat.server.application import LOCAL, SINCE, Login
from kernelwright.ui.chat.server.people import People, PersonError, secret


@pytest.fixture
def people(tmp_path) -> People:
    return People(tmp_path)


@pytest.fixture(autouse=True)
def nobody_attends(monkeypatch):
    monkeypatch.setattr(config.code, "password_auth_callback", None)
    monkeypatch.setattr(config.code, "header_auth_callback", None)
    monkeypatch.setattr("kernelwright.ui.chat.server.application.AFTER_A_WRONG_ONE_S", 0.0)


def cookie(name: str, since: float = 1.0) -> dict[str, str]:
    metadata = {} if name == LOCAL else {SINCE: since}
    return {"access_token": create_jwt(User(identifier=name, metadata=metadata))}


def test_nothing_of_a_password_is_in_the_file(people):
    people.add("anna", "correct horse", 1.0)
    people.add("bert", "correct horse", 1.0)
    anna, bert = people.all().values()
    assert "horse" not in people.path.read_text()
    assert anna.hashed != bert.hashed


def test_only_its_owner_reads_the_file(people):
    people.add("anna", "correct horse", 1.0)
    assert people.path.stat().st_mode & 0o077 == 0


def test_a_person_is_known_by_the_right_password_alone(people):
    people.add("anna", "correct horse", 1.0)
    assert people.knows("anna", "correct horse")
    assert not people.knows("anna", "correct horse ")
    assert not people.knows("anna", "")
    assert not people.knows("bert", "correct horse")


@pytest.mark.parametrize("name", ["", "Anna", "a/b", "../x", "a b", "é", "-a", "a" * 33, "a\n"])
def test_a_name_is_one_that_may_be_a_folder(people, name):
    with pytest.raises(PersonError, match="cannot be a name"):
        people.add(name, "correct horse", 1.0)


def test_a_short_password_is_refused(people):
    with pytest.raises(PersonError, match="at least 8"):
        people.add("anna", "1234567", 1.0)


def test_somebody_who_is_not_there_cannot_be_removed(people):
    with pytest.raises(PersonError, match="nobody called 'anna'"):
        people.remove("anna")


def test_the_secret_stays_from_start_to_start(tmp_path):
    assert secret(tmp_path) == secret(tmp_path)
    assert (tmp_path / "secret").stat().st_mode & 0o077 == 0


async def test_where_nobody_was_added_whoever_is_here_comes_in(tmp_path):
    Login(tmp_path).attend()
    assert config.code.password_auth_callback is None
    assert (await config.code.header_auth_callback({})).identifier == LOCAL


async def test_where_people_were_added_they_log_in(tmp_path, people):
    people.add("anna", "correct horse", 1.0)
    Login(tmp_path).attend()
    assert config.code.header_auth_callback is None
    assert (await config.code.password_auth_callback("anna", "correct horse")).identifier == "anna"
    assert await config.code.password_auth_callback("anna", "wrong horse") is None


def test_a_cookie_of_somebody_who_was_removed_opens_nothing(tmp_path, people):
    people.add("anna", "correct horse", 1.0)
    people.add("bert", "correct horse", 1.0)
    login = Login(tmp_path)
    assert login.admits(cookie("anna"))
    people.remove("anna")
    assert not login.admits(cookie("anna"))
    assert login.admits(cookie("bert"))


def test_a_new_password_ends_the_old_ones_cookies(tmp_path, people):
    people.add("anna", "correct horse", 1.0)
    login, before = Login(tmp_path), cookie("anna")
    assert login.admits(before)
    people.add("anna", "another horse", 1.01)  # a cookie's own time has whole seconds
    assert not login.admits(before)
    assert login.admits(cookie("anna", 1.01))


async def test_who_came_in_without_a_password_is_out_when_people_log_in(tmp_path, people):
    before, login = cookie(LOCAL), Login(tmp_path)
    assert login.admits(before)
    whoever = config.code.header_auth_callback
    people.add("anna", "correct horse", 1.0)
    assert not login.admits(before)
    assert config.code.header_auth_callback is None
    assert await whoever({}) is None  # a request that was under way
    user = await config.code.password_auth_callback("anna", "correct horse")
    assert login.admits({"access_token": create_jwt(user)})


def test_somebody_called_as_whoever_is_here_gets_no_cookie_of_theirs(tmp_path, people):
    login, before = Login(tmp_path), cookie(LOCAL)
    people.add(LOCAL, "correct horse", 1.0)
    assert not login.admits(before)


def test_where_nobody_is_left_only_this_machines_own_server_is_open(tmp_path, people):
    people.add("anna", "correct horse", 1.0)
    here, elsewhere = Login(tmp_path), Login(tmp_path, loopback=False)
    people.remove("anna")
    assert here.admits(cookie(LOCAL))
    assert not elsewhere.admits(cookie(LOCAL))
    assert config.code.header_auth_callback is None


@pytest.mark.parametrize("cookies", [{}, {"access_token": "x"}, {"access_token": "a.b.c"}])
def test_a_cookie_that_is_none_opens_nothing(tmp_path, cookies):
    assert not Login(tmp_path).admits(cookies)
