"""What a line of a plan does to names is read off it, and what kernels declare off their text."""

from collections.abc import Iterator

import pytest
import torch

from kernelwright.profiles.load import hardware_profile
from kernelwright.tools.candidates.plan import ADMITTED
from kernelwright.tools.codegen.library.kernel_library import repertoire_for
from kernelwright.tools.codegen.library.statements import VIEWS, Launch, declared, statement
from kernelwright.tools.languages import parse_kernel
from kernelwright.tools.tasks import trace
from kernelwright.tools.types import Task, TracePolicy


def returning_their_argument() -> Iterator[str]:
    """Operators that a plan may call and whose schema says that they return what they are given."""
    for name in ADMITTED:
        packet = getattr(torch.ops.aten, name)
        for schema in (getattr(packet, overload)._schema for overload in packet.overloads()):
            given = [one.alias_info for one in schema.returns if one.alias_info is not None]
            if given and not any(one.is_write for one in given):
                yield name


def test_every_operator_that_returns_its_argument_is_known_as_a_view() -> None:
    assert set(returning_their_argument()) <= VIEWS


@pytest.mark.parametrize(
    ("text", "reads", "binds", "shares", "takes"),
    [
        ("a, b = aten.split(x, n)", {"x", "n"}, ("a", "b"), ("x",), ("n",)),
        ("a = aten.mm(x, w.mT)", {"x", "w"}, ("a",), (), ("x", "w")),
        ("a = aten.mm(x, w).permute((1, 0))", {"x", "w"}, ("a",), (), ("x", "w")),
        ("a = aten.full(x.shape, y)", {"x", "y"}, ("a",), (), ("y",)),
        ("a = x.flip((0,))", {"x"}, ("a",), (), ()),
        ("a = x.narrow(0, n, 2)[0].T", {"x", "n"}, ("a",), ("x",), ()),
        ("n = x.shape[0] + x.size(1)", {"x"}, ("n",), (), ()),
        ('a = weights["l.w"].permute((1, 0))', {'weights["l.w"]'}, ("a",), ('weights["l.w"]',), ()),
        ("n += m", {"n", "m"}, ("n",), (), ()),
        ("if n > 1: a = x", {"n", "x"}, ("a",), ("n", "x"), ()),
        ("return (a, b.view((2,)), n)", {"a", "b", "n"}, (), ("a", "b", "n"), ("a", "b", "n")),
    ],
)
def test_a_line_is_read(
    text: str, reads: set[str], binds: tuple[str, ...], shares: tuple[str, ...], takes: set[str]
) -> None:
    found = statement(text)
    assert found.reads == reads
    assert found.binds == binds
    assert sorted(found.shares) == sorted(shares)
    assert sorted(found.takes) == sorted(takes)


def test_launches_updates_and_allocations_are_told() -> None:
    launch = statement('launch("f", grid=n, args=(x, tensor_map(y, box=(2,)), z.view((4,)), 3))')
    assert launch.launches == (Launch("f", (("x",), ("y",), ("z",), ())),)
    assert launch.reads == {"n", "x", "y", "z"}
    assert statement('update("seen", x)').updates == ("seen",)
    assert [statement(f"a = {made}").maker for made in ("empty((2,))", "zeros((2,))", "x")] == [
        "empty", "zeros", "",
    ]  # fmt: skip


FILE = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(256, 128)

    def forward(self, x):
        return torch.softmax(self.layer(x), -1)

def get_inputs():
    return [torch.randn(64, 256)]
"""


@pytest.mark.parametrize("device", ["generic_cpu", "H200"])
def test_kernels_declare_what_parsing_them_says(device: str) -> None:
    task = trace(FILE, "/tmp/declared.py", TracePolicy())
    assert isinstance(task, Task), task
    repertoire = repertoire_for(task, hardware_profile(device))
    for option in repertoire.options():
        kernel = repertoire.draft(option.change).kernel
        parsed, found = parse_kernel(kernel, repertoire.language), declared(kernel)
        assert found.tunables == {one.name for one in parsed.tunables}
        assert {name: tuple(map(bool, may)) for name, may in found.functions.items()} == (
            parsed.written
        )
