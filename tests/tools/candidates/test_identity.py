import pytest

from kernelwright.tools.candidates import ContractError, implementation_key
from kernelwright.tools.languages import new_candidate, with_settings
from kernelwright.tools.types import Candidate, Setting

KERNEL = '// tune: A in 1, 2\n// tune: B in 1, 2\nextern "C" void f(int n) {}\n'
PLAN = "def forward(x):\n    return x\n"


def make(**changes: object) -> Candidate:
    given: dict[str, object] = {"kernel": KERNEL, "plan": PLAN} | changes
    return new_candidate("cpp", **given)  # type: ignore[arg-type]


def test_an_id_is_twelve_digits_of_the_content() -> None:
    assert len(make().id) == 12
    assert make().id == make(idea="another", note="words", parents=("p",)).id
    assert make().id != make(plan=PLAN + "\n").id
    assert make().id != make(kernel=KERNEL + "\n").id


def test_settings_are_completed_and_part_of_the_id() -> None:
    assert make().settings == (Setting(name="A", value=1), Setting(name="B", value=1))
    chosen = make(settings=[Setting(name="B", value=2)])
    assert chosen.settings == (Setting(name="A", value=1), Setting(name="B", value=2))
    assert chosen.id != make().id
    assert make(settings=[Setting(name="A", value=1)]).id == make().id


def test_with_settings_changes_only_what_is_named() -> None:
    first = with_settings(make(idea="i"), [Setting(name="A", value=2)])
    second = with_settings(first, [Setting(name="B", value=2)])
    assert {item.name: item.value for item in second.settings} == {"A": 2, "B": 2}
    assert second.idea == "i"
    assert implementation_key(second) == implementation_key(make())
    assert second.id == make(settings=second.settings).id


def test_a_kernel_outside_of_the_contract_is_no_candidate() -> None:
    with pytest.raises(ContractError, match="exported"):
        make(kernel="void f() {}")
