from collections.abc import Callable
from pathlib import Path

import pytest

from kernelwright.graphs.suite import Outcome, append, contrast, figures, read, task_files
from kernelwright.graphs.suite.figures import sound
from kernelwright.graphs.suite.outcome import ResultsError, begin
from kernelwright.tools.types import Badge, Doubt

Make = Callable[..., Outcome]


def test_files_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for name in ("10_b.py", "9_a.py", "100_c.py", "x.py", "_hidden.py", "notes.txt"):
        (tmp_path / name).write_text("")
    assert [path.name for path in task_files(tmp_path)] == ["9_a.py", "10_b.py", "100_c.py", "x.py"]


@pytest.mark.parametrize(
    ("match", "names"),
    [
        (("10",), ["10_SumNorm"]),
        (("9-10",), ["9_Softmax", "10_SumNorm"]),
        (("*norm",), ["10_SumNorm"]),
        (("soft", "101"), ["9_Softmax", "101_Relu"]),
        (("absent",), []),
    ],
)
def test_a_match_is_a_number_a_range_a_pattern_or_a_part(
    tmp_path: Path, match: tuple[str, ...], names: list[str]
) -> None:
    for name in ("9_Softmax", "10_SumNorm", "101_Relu"):
        (tmp_path / f"{name}.py").write_text("")
    assert [path.stem for path in task_files(tmp_path, match)] == names


def test_fast_p_counts_all_tasks_and_means_those_with_a_candidate(outcome: Make) -> None:
    found = figures([outcome("a", (4.0, 2.0)), outcome("b", (1.0, 0.5)), outcome("c")])
    assert (found.tasks, found.searched, found.correct, found.improved) == (3, 2, 2, 1)
    eager, compiled, better, _ = found.columns
    assert eager.geometric_mean == pytest.approx(2.0)
    assert compiled.geometric_mean == better.geometric_mean == pytest.approx(1.0)
    assert dict(eager.fast_p)[1.0] == pytest.approx(1 / 3)
    assert dict(eager.fast_p)[0.8] == pytest.approx(2 / 3)
    assert better.lowest == 0.5
    assert found.ends == (("refused", 1),)
    assert found.methods == (("own kernels with library operators", 2),)


def test_an_interval_that_holds_1_is_no_improvement(outcome: Make) -> None:
    assert figures([outcome("a", (1.02, 1.02), half_width=0.05)]).improved == 0


def test_badged_tasks_are_summed_up_apart(outcome: Make) -> None:
    harmless = Badge(name=Doubt.UPDATES_BUFFERS, reason="running_mean is updated")
    constant = Badge(name=Doubt.CONSTANT, reason="every element is 0")
    honest, badged = sound(
        [
            outcome("a", (2.0,), warnings=(harmless.words,), badges=(harmless,)),
            outcome("b", (9.0,), warnings=(constant.words,), badges=(harmless, constant)),
        ]
    )
    assert [item.file for item in honest] == ["a"]
    assert [item.file for item in badged] == ["b"]


def test_nothing_at_all_has_sums_too() -> None:
    found = figures([])
    assert (found.tasks, found.columns[0].geometric_mean) == (0, None)


def test_a_line_cut_off_by_a_kill_is_left_out_and_the_last_of_a_file_counts(
    outcome: Make, tmp_path: Path
) -> None:
    path = tmp_path / "deep" / "r.jsonl"
    append(path, outcome("a", (2.0,)))
    append(path, outcome("b", (2.0,)))
    append(path, outcome("a", (3.0,)))
    whole = path.read_text()
    path.write_text(whole + '{"file": "c')
    assert [(item.file, item.over_best) for item in read(path)] == [("b", 2.0), ("a", 3.0)]
    begin(path, read(path))
    append(path, outcome("c"))
    assert [item.file for item in read(path)] == ["b", "a", "c"]


def test_a_file_of_something_else_is_named_with_its_line(outcome: Make, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    append(path, outcome("a"))
    path.write_text(path.read_text() + "hello\n")
    with pytest.raises(ResultsError, match="line 2"):
        read(path)
    with pytest.raises(ResultsError, match="cannot read"):
        read(tmp_path / "absent.jsonl")


def test_a_change_within_both_intervals_is_noise(outcome: Make) -> None:
    first = [outcome("a", (2.0,)), outcome("b", (1.0,)), outcome("gone", (1.0,))]
    second = [outcome("a", (3.0,)), outcome("b", (1.005,)), outcome("new")]
    found = contrast(first, second)
    assert [(line.file, line.apart) for line in found.lines] == [("a", True), ("b", False)]
    assert found.change == pytest.approx((1.5 * 1.005) ** 0.5)
    assert (found.only_first, found.only_second) == (("gone",), ("new",))
    assert found.caveats == ()


def test_what_differs_besides_the_kernels_is_said(outcome: Make) -> None:
    one = outcome("a", (2.0,))
    other = {"search": "deep", "evidence": "timing", "figures": "0123"}
    deeper = one.terms.model_copy(update=other)
    found = contrast([one], [outcome("a", (2.0,), terms=deeper, sha256="1")])
    assert any("search differs: quick and deep" in words for words in found.caveats)
    assert any("evidence differs: full and timing" in words for words in found.caveats)
    assert any("figures differs: not kept and 0123" in words for words in found.caveats)
    assert any("not the same in both" in words for words in found.caveats)
