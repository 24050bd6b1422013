"""What has no backward that could be a task of its own is refused in one sentence."""

import re

import pytest

from kernelwright.tools.tasks.gradients.backward import backward_of
from kernelwright.tools.types import RefusedError

BEGIN = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n\n\n"
POSITIONS = """def positions(x):
    return x.argmax(-1)


def get_inputs():
    return [torch.randn(6, 10)]
"""
SUM = """def added(x, y):
    return x + y


def get_inputs():
    return [torch.randn(6, 10), torch.randn(6, 10)]
"""
RECURRENT = """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(10, 4)

    def forward(self, x):
        return self.lstm(x)[0]


def get_inputs():
    return [torch.randn(6, 2, 10)]
"""
PRODUCTS = """def products(x):
    return x.scatter_reduce(1, x.argsort(1), x, "prod")


def get_inputs():
    return [torch.randn(6, 10)]
"""
# Nobody has a gradient here, which autograd says when it is asked.
WEIGHTED = """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(10) + 0.1)

    def forward(self, x):
        return F.binary_cross_entropy_with_logits(x, x.sigmoid(), pos_weight=self.weight)


def get_inputs():
    return [torch.randn(6, 10)]
"""
HELD = """TABLE = torch.arange(5000.0)


def held(x):
    return TABLE.tanh() * x


def get_inputs():
    return [torch.randn(6, 1)]
"""


COMPLEX = """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tone = nn.Parameter(torch.randn(10, dtype=torch.complex64))

    def forward(self, x):
        return torch.tanh(x) + self.tone.real


def get_inputs():
    return [torch.randn(6, 10)]
"""
BAGS = """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.EmbeddingBag(50, 8)

    def forward(self, x, lengths):
        return torch.tanh(self.table(x, lengths.cumsum(0) - lengths))


def get_inputs():
    return [torch.randint(0, 50, (20,)), torch.tensor([4, 6, 10])]
"""
FORCES = """class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(10, 10)

    def forward(self, x):
        return torch.func.grad(lambda at: torch.tanh(self.layer(at)).sum())(x)


def get_inputs():
    return [torch.randn(6, 10)]
"""


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (COMPLEX, r"complex numbers, 'tone'; keep real ones and call torch.view_as_complex"),
        (BAGS, "offsets of an EmbeddingBag depend on the input 'lengths'.* as rows of a matrix"),
        (FORCES, r"takes gradients itself by torch.func at \w+.py:\d+; gradients of those are"),
        (POSITIONS, "No result is a floating"),
        (SUM, "need no computing"),
        (RECURRENT, r"gradients of the recurrent layer \(lstm\) are left to PyTorch"),
        (PRODUCTS, "backward branches or takes shapes from the values of tensors"),
        (WEIGHTED, "not differentiable with respect to argument 'pos_weight'"),
        (HELD, "holds a tensor of 5000 elements outside its parameters"),
    ],
)
def test_what_has_no_backward_of_its_own_is_refused_in_a_sentence(built, source, words):
    read = built(BEGIN + source, entry=re.search(r"(?:class|def) (\w+)", source)[1])
    with pytest.raises(RefusedError, match=words):
        backward_of(read.reference, read.task, read.arguments)
