import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.tools.candidates import (
    ContractError,
    KernelSource,
    complete_settings,
    valid_settings,
)
from kernelwright.tools.candidates.arithmetic import Expression
from kernelwright.tools.languages import parse_kernel
from kernelwright.tools.types import Setting

BODY = 'extern "C" void f(int n) {}\n'


def source(*lines: str) -> KernelSource:
    return parse_kernel("\n".join(f"// {line}" for line in lines) + "\n" + BODY, "cpp")


def values(settings: tuple[Setting, ...]) -> dict[str, int]:
    return {item.name: item.value for item in settings}


def test_defaults_are_the_first_values_that_satisfy_the_requirements() -> None:
    kernel = source("tune: A in 4, 8", "tune: B in 16, 2", "require: A * B <= 16")
    assert values(complete_settings(kernel)) == {"A": 4, "B": 2}


def test_a_given_value_pulls_the_others_along() -> None:
    kernel = source("tune: A in 1, 2", "tune: B in 1, 2", "require: A == B")
    assert values(complete_settings(kernel, [Setting(name="B", value=2)])) == {"A": 2, "B": 2}


def test_only_settings_that_satisfy_every_requirement_are_valid() -> None:
    kernel = source("tune: A in 1, 2, 4", "tune: B in 1, 2, 4", "require: A * B <= 4", "require: B")
    found = [values(item) for item in valid_settings(kernel)]
    assert found == [{"A": a, "B": b} for a in (1, 2, 4) for b in (1, 2, 4) if a * b <= 4]


def test_a_kernel_without_tunables_has_one_setting() -> None:
    assert valid_settings(source()) == [()]


def test_huge_spaces_are_sampled_the_same_way_every_time() -> None:
    lines = [f"tune: T{index} in 1, 2, 4, 8" for index in range(20)]
    kernel = source(*lines, "require: T0 * T1 <= 8")
    found = valid_settings(kernel, limit=200)
    assert len(set(found)) == len(found) == 200
    assert found == valid_settings(kernel, limit=200)
    assert found[0] == complete_settings(kernel)
    assert all(values(item)["T0"] * values(item)["T1"] <= 8 for item in found)


def test_a_sample_is_the_one_that_runs_from_before_were_given() -> None:
    lines = [f"tune: T{at} in {', '.join(map(str, range(1, 2 + at % 5)))}" for at in range(14)]
    kernel = source(*lines, "require: T1 <= T13", "require: T3 * T4 % 3 != 1", "require: T0 == 1")
    found = [values(item) for item in valid_settings(kernel, limit=300)]
    draw = random.Random(0)
    by_chance = ({t.name: draw.choice(t.values) for t in kernel.tunables} for _ in range(1200))
    allowed = [v for v in by_chance if v["T1"] <= v["T13"] and v["T3"] * v["T4"] % 3 != 1]
    default = values(complete_settings(kernel))
    beside = [v for v in found if sum(v[name] != default[name] for name in default) < 2]
    wanted = list({tuple(v.values()): v for v in (*beside, *allowed)}.values())
    assert found[: len(beside)] == beside
    assert found == wanted[:300]


def test_contradictions_are_named_and_do_not_hang() -> None:
    lines = [f"tune: T{index} in 1, 2, 4, 8" for index in range(30)]
    kernel = source(*lines, "require: T29 > 8")
    assert valid_settings(kernel) == []
    with pytest.raises(ContractError, match="no values of the tunables"):
        complete_settings(kernel)


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (Setting(name="C", value=1), "not a declared tunable"),
        (Setting(name="A", value=3), "not among"),
        (Setting(name="A", value=2), "no values"),
    ],
)
def test_a_wrong_setting_is_refused(setting: Setting, words: str) -> None:
    kernel = source("tune: A in 1, 2", "require: A < 2")
    with pytest.raises(ContractError, match=words):
        complete_settings(kernel, [setting])


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("tune: A", "tune"),
        ("tune: A in", "tune"),
        ("tune: A in x", "tune"),
        ("tune: A in 1.5", "tune"),
        ("tune: A in 99999999999999", "tune"),
        ("tune: __A in 1", "tune"),
        ("require: B > 1", "require"),
        ("require: A >", "require"),
        ("require: open('x')", "require"),
        ("require: A.real > 0", "require"),
        ("require: [A][0] > 0", "require"),
        ("require: (lambda: 1)()", "require"),
        ("require: A / 2 > 0", "require"),
        ("require: A ** 9 > 0", "require"),
        ("require: A > 0.5", "require"),
    ],
)
def test_a_malformed_declaration_is_named_with_its_line(line: str, rule: str) -> None:
    with pytest.raises(ContractError) as caught:
        source("tune: A in 1, 2" if "A in" not in line else "nothing", line)
    assert caught.value.rule == rule
    assert caught.value.line == 2


def test_a_declaration_twice_is_refused() -> None:
    with pytest.raises(ContractError, match="twice"):
        source("tune: A in 1", "tune: A in 2")


def test_only_line_comments_declare() -> None:
    text = f'/* tune: A in 1, 2 */\nconst char* s = "// tune: B in 1";\n{BODY}'
    assert parse_kernel(text, "cpp").tunables == ()


def test_what_cannot_be_evaluated_does_not_hold() -> None:
    names = frozenset({"A"})
    assert not Expression("A % (A - 1) == 0", names, 1).holds({"A": 1})
    assert not Expression("1 << (A << 30) > 0", names, 1).holds({"A": 1})
    assert not Expression("A * A * A > 0", names, 1).holds({"A": 1 << 40})


numbers = st.integers(min_value=1, max_value=64)
operators = st.sampled_from(["+", "-", "*", "//", "%", "<", "<=", "==", "!=", "and", "or", "&"])


@st.composite
def expressions(draw: st.DrawFn, depth: int = 3) -> str:
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from(["A", "B", str(draw(numbers))]))
    left, right = draw(expressions(depth - 1)), draw(expressions(depth - 1))
    shape = draw(st.sampled_from(["({} {} {})", "min({0}, {2})", "max({0}, {2})", "(not {0})"]))
    return shape.format(left, draw(operators), right)


@given(expressions(), numbers, numbers)
def test_requirements_mean_what_python_means(text: str, a: int, b: int) -> None:
    expression = Expression(text, frozenset({"A", "B"}), 1)
    try:
        expected = bool(eval(text, {"A": a, "B": b, "min": min, "max": max, "__builtins__": {}}))
    except ZeroDivisionError:
        expected = False
    assert expression.holds({"A": a, "B": b}) == expected
