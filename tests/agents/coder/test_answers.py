import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelwright.agents.coder.answers import Source, read_answer, read_labels

KERNEL = '// memory=on chip\nextern "C" void f(const float* x) {}\n'
PLAN = "def forward(x):\n    return x\n"
BASE = Source(kernel=KERNEL, plan=PLAN, labels=("memory=on chip",))


def find(name: str) -> Source | None:
    return BASE if name == "abc" else None


def whole(kernel: str = KERNEL, plan: str = PLAN, word: str = "cpp") -> str:
    return f"```{word}\n{kernel}```\nand\n```python\n{plan}```\n"


def test_a_kernel_and_its_plan_are_one_draft() -> None:
    reading = read_answer(f"# Title\n\nI do this.\n\n{whole()}", "", find)
    (draft,) = reading.drafts
    assert (draft.kernel, draft.plan, draft.language) == (KERNEL, PLAN, "cpp")
    assert draft.labels == ("memory=on chip",)
    assert reading.said == "I do this."


@pytest.mark.parametrize("word", ["cuda", "CUDA", "cu", "cuh"])
def test_the_fence_tells_the_language(word: str) -> None:
    assert read_answer(whole(word=word), "", find).drafts[0].language == "cuda"


def test_several_candidates_stand_in_one_answer_each_with_its_plan() -> None:
    other = KERNEL.replace("on chip", "streamed")
    text = whole() + whole(other, PLAN.replace("x", "z"))
    first, second = read_answer(text, "", find).drafts
    assert first.labels == ("memory=on chip",)
    assert second.labels == ("memory=streamed",)
    assert "z" in second.plan
    assert "z" not in first.plan


def test_one_plan_serves_several_kernels() -> None:
    other = KERNEL.replace("on chip", "streamed")
    text = f"```cpp\n{KERNEL}```\n```cpp\n{other}```\n```python\n{PLAN}```"
    assert [draft.plan for draft in read_answer(text, "", find).drafts] == [PLAN, PLAN]


def test_a_plan_before_its_kernel_is_found_too() -> None:
    text = f"```python\n{PLAN}```\n```cpp\n{KERNEL}```"
    (draft,) = read_answer(text, "", find).drafts
    assert (draft.kernel, draft.plan) == (KERNEL, PLAN)


def test_blocks_without_a_language_are_told_by_what_is_in_them() -> None:
    (draft,) = read_answer(f"```\n{KERNEL}```\n```\n{PLAN}```", "", find).drafts
    assert (draft.kernel, draft.plan) == (KERNEL, PLAN)


def test_what_a_kernel_is_counts_for_more_than_its_fence() -> None:
    kernel = KERNEL.replace("void", "__global__ void")
    assert read_answer(whole(kernel), "", find).drafts[0].language == "cuda"
    assert read_answer(whole(word="kernel"), "", find).drafts[0].language is None


def test_a_prepare_in_a_block_of_its_own_belongs_to_the_plan() -> None:
    prepare = "def prepare(weights):\n    return {}\n"
    text = f"```cpp\n{KERNEL}```\n```python\n{prepare}```\n```python\n{PLAN}```"
    (draft,) = read_answer(text, "", find).drafts
    assert draft.plan == f"{prepare}\n\n{PLAN}"


def test_snippets_and_thinking_are_no_candidates() -> None:
    text = f"<think>{whole()}</think>\n```cpp\nint i;\n```\n```python\nprint()\n```\n{whole()}"
    assert len(read_answer(text, "", find).drafts) == 1


def test_an_edit_is_made_to_the_candidate_that_it_names() -> None:
    text = (
        "```edit\nbase: abc\n<<<<<<< SEARCH\n"
        'extern "C" void f(const float* x) {}\n=======\n'
        'extern "C" void f(const float* x) { /* new */ }\n>>>>>>> REPLACE\n```'
    )
    (draft,) = read_answer(text, "", find).drafts
    assert draft.base == "abc"
    assert "/* new */" in draft.kernel
    assert (draft.plan, draft.labels) == (PLAN, ("memory=on chip",))


def test_an_edit_may_bring_other_labels_and_a_whole_plan() -> None:
    text = (
        "```diff\nbase: `abc`\n// memory=registers\n<<<<<<< SEARCH\nvoid f\n=======\nvoid g\n"
        f">>>>>>> REPLACE\n```\n```python\n{PLAN.replace('x', 'q')}```"
    )
    (draft,) = read_answer(text, "", find).drafts
    assert draft.labels == ("memory=registers",)
    assert "void g" in draft.kernel
    assert "q" in draft.plan


def test_edits_without_a_name_belong_to_the_candidate_in_question_and_to_one_another() -> None:
    one = "```edit\n<<<<<<< SEARCH\nvoid f\n=======\nvoid g\n>>>>>>> REPLACE\n```\n"
    other = "```edit\n<<<<<<< SEARCH\n    return x\n=======\n    return x.t()\n>>>>>>> REPLACE\n```"
    (draft,) = read_answer(one + other, "abc", find).drafts
    assert "void g" in draft.kernel
    assert "x.t()" in draft.plan


def test_edits_of_two_bases_are_two_drafts() -> None:
    one = "```edit\nbase: abc\n<<<<<<< SEARCH\nvoid f\n=======\nvoid g\n>>>>>>> REPLACE\n```\n"
    first, second = read_answer(one + one.replace("abc", "unknown"), "", find).drafts
    assert not first.problem
    assert "no candidate 'unknown'" in second.problem


def test_an_edit_that_fails_is_a_draft_with_a_problem() -> None:
    text = "```edit\n<<<<<<< SEARCH\nnowhere at all\n=======\n\n>>>>>>> REPLACE\n```"
    assert "nowhere" in read_answer(text, "abc", find).drafts[0].problem
    assert "nothing to edit" in read_answer(text, "", find).drafts[0].problem


@pytest.mark.parametrize(
    ("header", "labels"),
    [
        ("// memory=A b, compute = C; parallel: d.", ("memory=a b", "compute=c", "parallel=d")),
        ("// memory: tiles, async\n// parallel=rows", ("memory=tiles, async", "parallel=rows")),
        ("// about memory\nint memory = 3;", ()),
        ("\n" * 40 + "// memory=late", ()),
        ("// memory=" + "x" * 99, ("memory=" + "x" * 48,)),
    ],
)  # fmt: skip
def test_labels_are_read_from_the_header(header: str, labels: tuple[str, ...]) -> None:
    assert read_labels(header) == labels


PIECES = [
    "```", "````", "cpp\n", "python\n", "edit\n", "base: abc\n", KERNEL, PLAN, "\n", "void f\n",
    "<<<<<<< SEARCH\n", "=======\n", ">>>>>>> REPLACE\n", "<think>", "</think>",
]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), max_size=14).map("".join))
def test_no_answer_is_a_crash(text: str) -> None:
    for draft in read_answer(text, "abc", find).drafts:
        assert draft.kernel or draft.problem or draft.plan
