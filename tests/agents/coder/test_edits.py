import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.agents.coder.answers import Edit, EditError, apply, has_edits, read_edits

KERNEL = """int a = 1;

void f() {
    for (int i = 0; i < 8; ++i) {
        sum += x[i];
    }
    int b = 2;
}
"""
PLAN = "def forward(x):\n    y = empty_like(x)\n    return y\n"


def section(search: str, replace: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n"


def test_sections_are_read_in_order() -> None:
    text = section("a", "b") + "words between\n" + section("c\nd", "")
    assert read_edits(text) == (Edit(search="a", replace="b"), Edit(search="c\nd", replace=""))
    assert has_edits(text)
    assert not has_edits("if (a << 7) {}")


@pytest.mark.parametrize("text", ["<<<<<<< SEARCH\na\n", "<<<<<<< SEARCH\na\n=======\nb\n"])
def test_a_section_that_breaks_off_is_an_error_that_names_what_is_missing(text: str) -> None:
    with pytest.raises(EditError, match="edit 1 has no line"):
        read_edits(text)


def test_an_edit_changes_the_kernel_or_the_plan() -> None:
    edits = (
        Edit(search="int b = 2;", replace="int b = 3;"),
        Edit(search="    return y", replace="    return y.t()"),
    )
    kernel, plan = apply(edits, KERNEL, PLAN)
    assert kernel == KERNEL.replace("b = 2", "b = 3")
    assert plan == PLAN.replace("return y", "return y.t()")


def test_indentation_that_the_model_got_wrong_is_put_right() -> None:
    edit = Edit(
        search="for (int i = 0; i < 8; ++i) {\n  sum += x[i];\n}",
        replace="for (int i = 0; i < 9; ++i) {\n    sum += x[i];\n}",
    )
    kernel, _ = apply((edit,), KERNEL, PLAN)
    assert "    for (int i = 0; i < 9; ++i) {\n        sum += x[i];\n    }\n    int b" in kernel


def test_empty_lines_between_do_not_matter() -> None:
    kernel, _ = apply((Edit(search="int a = 1;\nvoid f() {", replace="void g() {"),), KERNEL, PLAN)
    assert kernel.startswith("void g() {\n    for")


def test_a_line_that_is_almost_right_is_found() -> None:
    edit = Edit(
        search="    for (int i = 0; i < 8; i++) {\n        sum += x[i];", replace="    while (0) {"
    )
    kernel, _ = apply((edit,), KERNEL, PLAN)
    assert "while (0) {\n    }" in kernel


def test_an_edit_that_takes_lines_away_leaves_the_rest() -> None:
    kernel, _ = apply((Edit(search="    int b = 2;", replace=""),), KERNEL, PLAN)
    assert kernel == KERNEL.replace("    int b = 2;\n", "")


def test_a_text_that_stands_twice_is_refused_rather_than_guessed() -> None:
    with pytest.raises(EditError, match="several places"):
        apply((Edit(search="int", replace="long"),), KERNEL, PLAN)
    twice = "  a;\n  b;\n  a;\n"
    with pytest.raises(EditError, match="several places"):
        apply((Edit(search="a;", replace="c;"),), twice, PLAN)


def test_a_text_that_is_nowhere_is_refused_with_the_nearest_line() -> None:
    with pytest.raises(EditError, match=r"nowhere.*int b = 2;"):
        apply((Edit(search="int bcd = 22;\nnothing like it", replace=""),), KERNEL, PLAN)


def test_an_empty_search_is_refused() -> None:
    with pytest.raises(EditError, match="searches for nothing"):
        apply((Edit(search=" \n", replace="x"),), KERNEL, PLAN)


@given(st.text(alphabet="ab \n{};", max_size=60), st.text(alphabet="ab \n{};", max_size=20))
def test_any_edit_of_any_text_is_applied_or_refused(text: str, search: str) -> None:
    try:
        kernel, plan = apply((Edit(search=search, replace="z"),), text, "q")
    except EditError:
        return
    assert "z" in kernel + plan


def test_several_lines_that_end_within_a_line_are_told_which_line_to_give() -> None:
    source = "a first line;\nfloat total = sum(one) + sum(another) + sum(the_third_of_them);\n"
    edit = Edit(search="a first line;\nfloat total", replace="b;")
    with pytest.raises(EditError, match="ends within a line; give all of the line `float total = "):
        apply((edit,), source, PLAN)
