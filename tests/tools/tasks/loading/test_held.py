"""What a module keeps in lists is baked in, but for what its constructor draws by chance."""

from collections.abc import Callable

from kernelwright.tools.tasks import Reference, draw
from kernelwright.tools.types import Refusal, Task

FILE = """
class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = {{"steps": [torch.arange(4.0), {made}]}}

    def forward(self, x):
        return x * self.tables["steps"][1] + torch.tensor([1.0, 2.0, 3.0, 4.0])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.part = Part()

    def forward(self, x):
        return self.part(x)


def get_inputs():
    return [torch.randn(8, 4)]
"""


def test_tables_that_a_constructor_draws_are_to_be_registered(
    attempt: Callable[..., object],
) -> None:
    found = attempt(FILE.format(made="torch.randn(4)"))
    assert isinstance(found, Refusal)
    assert "part.tables['steps'][1], which the constructor draws at random" in found.sentence
    task = attempt(FILE.format(made="torch.linspace(0, 1, 4)"))
    assert isinstance(task, Task)
    (x,) = draw(task, "task", 0, "cpu")
    reference = Reference.build(task, "cpu", seed=5)
    assert reference.forward([x])[0].shape == (8, 4)
