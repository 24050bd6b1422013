"""Sizes and constants are written by what a question names, so that nothing has to be computed."""

import re

import pytest

from kernelwright.tools.learning.contract.launches import interface
from kernelwright.tools.learning.writing.drafts import Drafting, drafted
from kernelwright.tools.learning.writing.families import HELD_OUT, LEARNT, modules
from kernelwright.tools.learning.writing.sizes import Sizes

SIZES = Sizes([(8, 3, 1000), (1, 1000), (5,)])


@pytest.mark.parametrize(
    ("number", "words", "factor"),
    [
        (1000, "1000", "1000"),
        (3000, "3 * 1000", "(3 * 1000)"),
        (24000, "8 * 3 * 1000", "(8 * 3 * 1000)"),
        (24, "8 * 3", "(8 * 3)"),
        (8000, "8000", "8000"),  # no neighbours
        (7, "7", "7"),
    ],
)
def test_numbers_are_products_of_neighbours(number: int, words: str, factor: str) -> None:
    assert (SIZES.text(number), SIZES.factor(number)) == (words, factor)


@pytest.mark.parametrize(
    ("value", "literal", "words"),
    [
        (1 / 3000, "0.0003333333333333333f", "(1.0f / (3 * 1000))"),
        (1 / 1000, "0.001", "(1.0 / 1000)"),
        (24.0, "24.0f", "(8.0f * 3)"),
        (3.0, "3.0f", "3.0f"),
        (0.5, "0.5f", "0.5f"),
        (-1.0, "-1.0f", "(-1.0f)"),
        (24, "24", "24"),
        (1e-6, "1e-06f", "1e-06f"),
        (float("inf"), "kw::kInfinity", "kw::kInfinity"),
    ],
)
def test_constants_that_are_sizes_say_so(value: float, literal: str, words: str) -> None:
    assert SIZES.constant(value, literal) == words


@pytest.mark.parametrize("held_out", [False, True])
def test_answers_hold_no_number_that_a_reader_would_compute(held_out: bool) -> None:
    families = HELD_OUT if held_out else LEARNT
    asked = Drafting(modules=(), language="cuda", count=6, seed=0)
    for module in modules(len(families), 3, held_out=held_out):
        draft = drafted(module, asked)
        assert draft is not None
        names = interface(draft.problem.task)
        assert names is not None
        named = {size for item in names.every for size in item.tensor.shape}
        for one in draft.answers:
            numbers = {int(text) for text in re.findall(r"(?<![\w.])\d{3,}(?![\w.])", one.answer)}
            assert numbers <= named | {128, 256, 1024}, one.answer
            appeared = re.findall(r"\bv(\d+)(?=\b|_)", one.answer)
            first = [*dict.fromkeys(map(int, appeared))]
            assert first == [*range(len(first))], "values are numbered as they appear"
