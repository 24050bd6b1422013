import json
from pathlib import Path

import pytest

from kernelwright.profiles.load import all_models, model_profile
from kernelwright.ui.cli.app import run
from kernelwright.ui.complaints import Complaint
from kernelwright.ui.model_choice import Choice, chosen_models, other_models


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MODEL", "BASE_URL", "API_KEY"):
        monkeypatch.delenv(f"KERNELWRIGHT_{name}", raising=False)


def test_without_a_model_the_playbook_thinks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://somewhere/v1")
    assert chosen_models(Choice()) is None


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (Choice("some-model"), "where is the model 'some-model'"),
        (Choice(base_url="http://here/v1"), "but not which model"),
        (Choice("m", "ftp://here"), "is no address"),
        (Choice("m", "http://me:secret@here/v1"), "put the key into KERNELWRIGHT_API_KEY"),
        (Choice("vllm"), "which model of vllm"),
        (Choice("m", "http://here/v1", ("poet=x",)), "--model-for wants ROLE=NAME"),
        (Choice("m", "http://here/v1", ("coder",)), "--model-for wants ROLE=NAME"),
        (Choice(None, "http://here/v1", ("coder=x",)), "no model for planner, profiler"),
        (Choice("m", "http://here/v1", usd=1.0), "--max-usd needs the prices of m"),
        (Choice("nowhere.toml"), "nowhere.toml: No such file"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(
    choice: Choice, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://somewhere/v1")
    with pytest.raises(Complaint, match=words) as raised:
        chosen_models(choice)
    assert raised.value.status == 2
    assert "\n" not in str(raised.value)


def test_a_profile_whose_key_is_not_set_lacks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(Complaint, match="export OPENAI_API_KEY") as raised:
        chosen_models(Choice("openai:some-model"))
    assert raised.value.status == 3


def test_flags_go_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELWRIGHT_MODEL", "from-there")
    monkeypatch.setenv("KERNELWRIGHT_BASE_URL", "http://there/v1")
    models = chosen_models(Choice())
    assert models is not None
    assert models.critic.model == "from-there"
    assert models.critic.base_url == "http://there/v1"
    models = chosen_models(Choice("from-here", "http://here/v1"))
    assert models is not None
    assert models.critic.model == "from-here"
    assert models.critic.base_url == "http://here/v1"


def test_a_role_may_have_a_model_of_its_own() -> None:
    models = chosen_models(Choice("m", "http://here/v1", ("coder=big", "critic=manual")))
    assert models is not None
    assert [models.planner.model, models.coder.model] == ["m", "big"]
    assert models.critic.kind == "manual"
    assert "sk" not in models.model_dump_json()


def test_a_profile_may_be_named_with_its_model() -> None:
    models = chosen_models(Choice("ollama:qwen3:8b"))
    assert models is not None
    assert models.planner.model == "qwen3:8b"
    assert models.planner.base_url == model_profile("ollama").base_url


def test_a_key_stays_with_the_address_it_was_given_for() -> None:
    models = chosen_models(Choice("openai:m", "http://elsewhere/v1"))
    assert models is not None
    assert models.planner.api_key_env == "KERNELWRIGHT_API_KEY"


def test_a_profile_of_ones_own_is_a_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        'name = "mine"\nmodel = "m"\nbase_url = "http://here/v1"\n'
        "usd_per_million_input = 1\nusd_per_million_output = 2\npriced_on = 2026-11-01\n"
    )
    models = chosen_models(Choice(str(path), usd=5.0))
    assert models is not None
    assert models.planner.usd_per_million_output == 2
    path.write_text('name = "mine"\ntimeout_s = -1\n')
    with pytest.raises(Complaint, match=r"mine\.toml: timeout_s: .*but it was -1"):
        chosen_models(Choice(str(path)))


def test_a_resume_keeps_its_models_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("KERNELWRIGHT_MODEL", "from-there")
    monkeypatch.setenv("KERNELWRIGHT_BASE_URL", "http://there/v1")
    assert other_models(Choice(tokens=5)) is None
    assert other_models(Choice("from-here")) is not None


def test_every_profile_says_its_source_and_no_price_without_a_date() -> None:
    for name in all_models():
        profile = model_profile(name)
        assert profile.name == name
        assert profile.source
        assert profile.base_url.startswith("http")
        priced = profile.usd_per_million_input is not None
        assert priced == (profile.priced_on is not None)
        assert "key" not in json.dumps(profile.extra_body)


def test_a_model_without_an_address_is_status_2_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://somewhere/v1")
    file = tmp_path / "module.py"
    file.write_text("raise SystemExit('nobody runs this')")
    home = tmp_path / "home"
    assert run(["optimize", str(file), "--model", "x", "--run-dir", str(home)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("kernelwright: where is the model 'x'?")
    assert said.count("\n") == 1
    assert not list((home / "runs").iterdir())
