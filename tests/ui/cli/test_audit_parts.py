"""What an audit says of a model that cannot be traced as a whole."""

from kernelwright.tools.types.task import Part, Untraced
from kernelwright.ui.cli.audit import part_words, untraced_words


def test_parts_are_listed_by_their_class():
    parts = tuple(
        Part(path=path, kind=kind, inputs=(), calls=1)
        for path, kind in (("blocks.0", "Block"), ("head", "Linear"), ("blocks.2", "Block"))
    )
    assert part_words(parts) == ["Block: blocks.0, blocks.2", "Linear: head"]


def test_what_stays_pytorchs_is_said_once_for_each_reason():
    why = "its calls differ in shape, type or layout"
    untraced = (
        Untraced(path="experts.0", kind="Expert", why=why),
        Untraced(path="experts.1", kind="Expert", why=why),
        Untraced(path="", kind="Model", why="it branches (line 3 of model.py)"),
    )
    assert untraced_words(untraced) == [
        f"Expert (experts.0, experts.1): {why}",
        "Model (itself): it branches (line 3 of model.py)",
    ]
