"""What a foreign file is taken to do, from its syntax alone."""

import pytest

from kernelwright.tools.evaluate.foreign.declarations import read

HEAD = "import torch, time, gc, sys\nfrom torch import nn\n"
INLINE = "from torch.utils.cpp_extension import load_inline as build\n"


def module(body, before=""):
    return (
        f"{HEAD}{before}\nclass ModelNew(nn.Module):\n    def forward(self, x):\n        {body}\n"
    )


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (module("return x", "torch.cuda.synchronize = lambda: None"), "replaces torch.cuda"),
        (module("return x", "setattr(torch, 'allclose', lambda *a: True)"), "a part of torch"),
        (module("time.perf_counter = lambda: 0.0\n        return x"), "replaces time.perf_counter"),
        (module("return gc.get_objects()[0]"), "gc.get_objects"),
        (module("return getattr(gc, 'get_objects')()"), "gc.get_objects"),
        (module("return sys._getframe(1).f_locals['truth']"), "sys._getframe"),
        (module("return open('/proc/self/mem')"), "/proc/self/mem"),
        (module("exec('import gc')"), "uses exec"),
        (module("return getattr(__import__('gc'), 'get_' + 'objects')()"), "gc.get_objects"),
        (module("import importlib\n        importlib.import_module('gc').get_objects()"), "gc.get"),
        (module("return builtins.exec('x')", "import builtins"), "uses builtins.exec"),
        (module("return (lambda: (yield))().gi_frame.f_back"), "gi_frame"),
        (module("return x", "L2 = 'cudaLimitPersistingL2CacheSize'"), "keeps its data in the L2"),
        (module("return Model()(x)", "class Model(nn.Module):\n    pass"), "is the reference"),
    ],
)
def test_what_no_implementation_needs_is_refused(source, words):
    assert any(words in sentence for sentence in read(source, "ModelNew").forbidden)


def test_inheriting_the_references_forward_is_handing_over():
    theirs = "class Model(nn.Module):\n    def forward(self, x):\n        return x + 1\n"
    ours = f"{HEAD}{theirs}class ModelNew(Model):\n    pass\n"
    assert read(ours, "ModelNew", HEAD + theirs).forbidden
    other = f"{HEAD}{theirs}class ModelNew(Model):\n    def forward(self, x):\n        return x\n"
    assert not read(other, "ModelNew", HEAD + theirs).forbidden


def test_the_reference_under_another_name_is_still_the_reference():
    theirs = "class Model(nn.Module):\n    def forward(self, x):\n        return x + 1\n"
    hidden = theirs.replace("Model", "Helper", 1)
    source = module("return self.h(x)", hidden).replace(
        "    def forward(self, x):\n        return self.h",
        "    def __init__(self):\n        self.h = Helper()\n"
        "    def forward(self, x):\n        return self.h",
    )
    assert read(source, "ModelNew", HEAD + theirs).forbidden


def test_words_about_the_l2_in_a_kernels_comments_are_not_refused():
    source = 'SOURCE = "// no accessPolicyWindow\\nvoid f() {} /* cudaLimitPersistingL2 */"\n'
    assert read(module("return x", source), "ModelNew").forbidden == ()


COPIED = """
class Model(nn.Module):
    def __init__(self):
        super(Model, self).__init__()
        self.part = nn.Linear(4, 4)
    def forward(self, x):
        return self.run(x)
    def run(self, x):
        return self.part(x) + 1
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        first = Model()
        first.eval()
        %s
    def forward(self, x):
        return torch.relu(x)
"""


@pytest.mark.parametrize(
    "kept",
    [
        "self.weight = first.part.weight",
        "self.load_state_dict(first.state_dict(), strict=False)",
        "self.part = first.part",
    ],
)
def test_the_reference_may_be_made_for_its_weights(kept):
    assert read(HEAD + COPIED % kept, "ModelNew").forbidden == ()


@pytest.mark.parametrize(
    "kept",
    [
        "self.f = first",
        "self.f = first.forward",
        "self.f = first.run",
        "self.f = first.eval()",
        "self.f = [*first.modules()][0]",
        "self.f = lambda x: first(x)",
        "again = first; self.f = again",
        "self.f = Model()",
        "self.fs = nn.ModuleList([Model()])",
    ],
)
def test_a_reference_that_could_be_called_is_handing_over(kept):
    assert "is the reference" in " ".join(read(HEAD + COPIED % kept, "ModelNew").forbidden)


def test_an_entry_in_a_branch_or_under_another_name_is_read_like_any_other():
    theirs = "class Model(nn.Module):\n    def forward(self, x):\n        return x + 1\n"
    inherits = "class {}(Model):\n    pass\n"
    branch = "if torch.__version__:\n    class ModelNew(Model):\n        pass\n"
    alias = inherits.format("Quick") + "ModelNew = Quick\n"
    for entry in (branch, alias):
        assert read(HEAD + theirs + entry, "ModelNew", HEAD + theirs).forbidden


def test_settings_and_honest_code_are_not_refused():
    source = module("return self.f(x)", "torch.backends.cudnn.benchmark = True")
    assert read(source, "ModelNew").forbidden == ()


def test_only_what_the_forward_reaches_counts_as_a_kernel():
    source = 'SOURCE = "void f(float* y) { for (int i = 0; i < 9; i++) y[i] = 1.0f; }"\n'
    built = f"{INLINE}{source}ext = build('e', SOURCE)"
    assert read(module("return ext.f(x)", built), "ModelNew").own
    assert not read(module("return x  # ext.f(x)", built), "ModelNew").own
    assert not read(
        module("if False:\n            ext.f(x)\n        return x", built), "ModelNew"
    ).own
    assert not read(module("return x\n        ext.f(x)", built), "ModelNew").own


def test_native_code_that_only_calls_the_library_is_no_kernel():
    source = (
        'SOURCE = "torch::Tensor f(torch::Tensor x) { /* for (;;) <<<1, 1>>> */ '
        'return torch::softmax(x, 1); }"\n'
    )
    built = f"{INLINE}{source}ext = build('e', SOURCE)"
    assert not read(module("return ext.f(x)", built), "ModelNew").own


def test_compilers_and_graphs_are_recognised():
    assert read(module("return f(x)", "f = torch.compile(torch.relu)"), "ModelNew").compiles
    assert read(module("g = torch.cuda.CUDAGraph()\n        return x"), "ModelNew").graphs
