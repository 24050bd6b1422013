import pytest
import torch

from kernelwright.tools.candidates import LaunchRefused
from kernelwright.tools.candidates.plan import ADMITTED
from kernelwright.tools.candidates.plan.vocabulary import CREATORS, DROPOUT
from kernelwright.tools.candidates.run.guards import resolve
from kernelwright.tools.types.graph import DRAWS

CPU = torch.device("cpu")


def overloads(name: str) -> list[torch._ops.OpOverload]:
    packet = getattr(torch.ops.aten, name)
    return [getattr(packet, overload) for overload in packet.overloads()]


def test_every_admitted_operator_exists_and_has_a_form_that_writes_nowhere() -> None:
    for name in sorted(ADMITTED):
        assert hasattr(torch.ops.aten, name), name
        assert any(not item._schema.is_mutable for item in overloads(name)), name


def test_no_admitted_operator_is_random_but_draws_and_dropout() -> None:
    for name in sorted(ADMITTED - set(DROPOUT) - DRAWS):
        seeded = [torch.Tag.nondeterministic_seeded in item.tags for item in overloads(name)]
        assert not all(seeded), name


def test_dropout_stands_where_the_table_says() -> None:
    for name, (argument, position) in DROPOUT.items():
        for overload in overloads(name):
            names = [item.name for item in overload._schema.arguments]
            if argument in names and overload._overloadname not in ("data", "quantized"):
                assert names.index(argument) == position, (name, overload)


def test_an_operator_that_writes_to_its_arguments_is_not_resolved() -> None:
    with pytest.raises(LaunchRefused, match="writes to its arguments"):
        resolve("add.out", CPU)
    with pytest.raises(LaunchRefused, match=r"no aten\.relu\.nowhere"):
        resolve("relu.nowhere", CPU)
    with pytest.raises(LaunchRefused, match=r"no aten\.nowhere"):
        resolve("nowhere", CPU)


def test_creators_make_their_result_on_the_runners_device() -> None:
    meta = torch.device("meta")
    for name in sorted(CREATORS - DRAWS - {"full", "scalar_tensor", "linspace", "ones", "zeros"}):
        made = resolve(name, meta)(4)
        assert isinstance(made, torch.Tensor)
        assert made.device == meta
    arguments = {"normal": (0.0, 1.0, [4]), "randint": (9, [4]), "randperm": (4,)}
    for name in sorted(DRAWS):
        made = resolve(name, meta)(*arguments.get(name, ([4],)))
        assert isinstance(made, torch.Tensor)
        assert made.device == meta
        assert made.shape == (4,)
    made = resolve("full", meta)([2], 1.0)
    assert isinstance(made, torch.Tensor)
    assert made.device == meta
