"""Complex weights and values inside a forward: in the task, in float64, and between regions."""

import torch

from kernelwright.tools.evaluate.verify.reference_runtime import redraw
from kernelwright.tools.tasks import Reference, draw
from kernelwright.tools.tasks.outline import outline_of
from kernelwright.tools.tasks.regions import model_regions
from kernelwright.tools.types.graph import DType, Ref

FOURIER = """
    def forward(self, x):
        mixed = torch.fft.irfft(torch.fft.rfft(self.norm(x)) * self.factors, n=32)
        return torch.sigmoid(x + mixed) * mixed
"""
INIT = """
    super().__init__()
    self.norm = nn.LayerNorm(32)
    self.factors = nn.Parameter(torch.randn(17, dtype=torch.cfloat))
"""


def test_a_graph_with_complex_values_says_what_the_module_does(model, run_graph):
    task = model(FOURIER, init=INIT)
    reference = Reference.build(task, "cpu")
    arguments = list(draw(task, "task", 1, "cpu"))
    (got,), _ = run_graph(task.graph, arguments, reference.weights())
    torch.testing.assert_close(got, reference.forward(arguments)[0])
    (factors,) = (item for item in task.weights if item.name == "factors")
    assert factors.tensor.dtype is DType.COMPLEX64
    assert not any(spec.dtype.is_complex for spec in task.outputs)


def test_complex_numbers_and_conjugates_are_spelt_in_real_ones(model, run_graph):
    task = model("""
    def forward(self, x):
        turned = torch.complex(x, x * 2).conj() * torch.full((32,), 1 + 2j)
        return turned.imag + turned.conj().imag * x
    """)
    assert not any("neg_view" in node.op for node in task.graph.nodes)
    assert not any(
        isinstance(arg, Ref) for n in task.graph.nodes if "full" in n.op for arg in n.args
    )
    x = torch.randn(8, 32)
    constants = Reference.build(task, "cpu").weights()
    (got,), _ = run_graph(task.graph, [x], constants)
    turned = torch.complex(x, x * 2).conj() * (1 + 2j)
    torch.testing.assert_close(got, turned.imag + turned.conj().imag * x)


def test_the_truth_has_complex_weights_of_twice_the_width(model):
    reference = Reference.build(model(FOURIER, init=INIT), "cpu")
    double = reference.double()
    assert double.weights()["factors"].dtype is torch.complex128
    assert reference.weights()["factors"].dtype is torch.complex64
    arguments = [torch.randn(8, 32, dtype=torch.float64)]
    assert double.forward(arguments)[0].dtype is torch.float64


def test_other_weights_are_drawn_for_complex_ones_too(model):
    reference = Reference.build(model(FOURIER, init=INIT), "cpu")
    before = reference.weights()["factors"].clone()
    redraw(reference.module, torch.Generator().manual_seed(1))
    after = reference.weights()["factors"]
    assert not torch.equal(before.real, after.real)
    assert not torch.equal(before.imag, after.imag)


def test_transforms_are_boundaries_of_regions(model):
    task = model(FOURIER, init=INIT)
    reference = Reference.build(task, "cpu")
    arguments = list(draw(task, "task", 0, "cpu"))
    outline = outline_of(reference, task, arguments, frozenset({"layer_norm"}))
    found = model_regions(outline, lambda moved, operations: 0.0)
    assert {item.words for item in found.classes} == {"layer_norm", "add, sigmoid, mul"}
    left = {kind.words: kind.why for kind in found.left}
    assert set(left) == {"fft_r2c", "fft_c2r", "mul"}
    assert all("no complex values" in why for why in left.values())


def test_complex_inputs_and_results_are_still_refused(sentence):
    text = "class Model(nn.Module):\n    def forward(self, x):\n        return {}\n"
    text += "def get_inputs(): return [{}]\n"
    words = sentence(text.format("torch.fft.fft(x)", "torch.randn(4, 8)"))
    assert words == "Output 1 has the type complex64, which is not supported."
    words = sentence(text.format("x.abs()", "torch.randn(4, dtype=torch.cfloat)"))
    assert words == "Input 1 has the type complex64, which is not supported."
