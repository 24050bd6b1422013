import pytest

from kernelwright.tools.candidates import ContractError, KernelSource
from kernelwright.tools.candidates.plan import ADMITTED, validate_plan

GOOD = """\"\"\"Softmax over rows.\"\"\"
def prepare(weights):
    scaled = aten.mul.Tensor(weights["a.weight"], weights["scale"])
    return {"w": scaled.contiguous()}

def forward(x, alpha):
    rows, columns = x.shape
    y = empty_like(x)
    half = zeros((rows, 2 * columns), dtype="float16")
    total = full(rows, -inf)
    flat = x.reshape(-1).unsqueeze(0)[:, 1:3]
    if columns % 4 == 0 and x.stride(1) == 1:
        blocks = ceil_div(rows, THREADS)
    elif alpha > 1.0 or not rows:
        blocks = max(rows, 1)
    else:
        blocks = int(rows * 0.5) if rows > 8 else rows ** 2
    for step in range(0, 3):
        blocks += step
        launch("softmax_rows", grid=(blocks, 1), block=THREADS, args=(x, y, columns), shared=1024)
    z, _ = aten.max.dim(prepared["w"], -1, keepdim=True)
    y = aten.convolution(y, weights["conv.weight"], None, [1, 1], [0, 0], [1, 1], False, [0], 1)
    update("running_mean", y.to("float32"))
    return y, (z, half.view(*x.shape))
"""


def test_a_plan_within_the_contract_passes_and_says_what_it_touches(
    cuda_source: KernelSource,
) -> None:
    plan = validate_plan(GOOD, cuda_source)
    assert plan.parameters == ("x", "alpha")
    assert plan.prepared == ("w",)
    assert plan.launches == ("softmax_rows",)
    assert plan.operators == ("mul.Tensor", "max.dim", "convolution")
    assert plan.weights == ("a.weight", "scale", "conv.weight")
    assert plan.updates == ("running_mean",)


def body(line: str) -> str:
    return f"def forward(x):\n    y = empty_like(x)\n    {line}\n    return y\n"


LAUNCH = 'launch("softmax_rows", grid=1, block=1, '
FORBIDDEN_LINES = [
    ("import os", "statement"),
    ("from os import path", "statement"),
    ("while True: y = x", "statement"),
    ("with x: y = x", "statement"),
    ("try:\n        y = x\n    except Exception:\n        y = y", "statement"),
    ("raise x", "statement"),
    ("assert x", "statement"),
    ("del y", "statement"),
    ("global z", "statement"),
    ("def g(): return 1", "statement"),
    ("class G: y = 1", "statement"),
    ("match x:\n        case 1: y = x", "statement"),
    ("z: int = 1", "statement"),
    ("x.add_(1)", "statement"),
    ("y", "statement"),
    ("[launch]", "statement"),
    ("z = lambda: 1", "expression"),
    ("z = [i for i in x.shape]", "expression"),
    ("z = {i for i in x.shape}", "expression"),
    ("z = (i for i in x.shape)", "expression"),
    ("z = {'a': 1}", "expression"),
    ("z = {1, 2}", "expression"),
    ("z = (w := 1)", "expression"),
    ("z = f'{x}'", "expression"),
    ("z = 1j", "constant"),
    ("z = b'bytes'", "constant"),
    ("z = ...", "constant"),
    ("z = " + "9" * 400, "constant"),
    ("z = x @ y", "operator"),
    ("z = x is y", "operator"),
    ("z = 1 in x.shape", "operator"),
    ("y @= x", "operator"),
    ("x[0] = 1", "assignment"),
    ("x.shape = 1", "assignment"),
    ("x[0] += 1", "assignment"),
    ("weights['w'] = x", "assignment"),
    ("launch = x", "name"),
    ("aten = x", "name"),
    ("THREADS = 1", "name"),
    ("__z = 1", "name"),
    ("z = __builtins__", "name"),
    ("z = undefined", "name"),
    ("z = z", "name"),
    ("z += 1", "name"),
    ("z = launch", "name"),
    ("z = aten", "name"),
    ("z = torch.empty(1)", "attribute"),
    ("z = open('f')", "call"),
    ("z = eval('1')", "call"),
    ("z = print(x)", "call"),
    ("z = x.shape[0]()", "call"),
    ("z = empty(*x.shape)", "call"),
    ("z = empty((1,), device='cpu')", "call"),
    ("z = min(1)", "call"),
    ("z = range(3)", "range"),
    ("z = x.__class__", "attribute"),
    ("z = x.data", "attribute"),
    ("z = x.grad", "attribute"),
    ("z = x.is_cuda", "attribute"),
    ("z = x.view", "attribute"),
    ("z = x.data_ptr()", "attribute"),
    ("z = x.item()", "attribute"),
    ("z = x.cpu()", "attribute"),
    ("z = x.copy_(y)", "attribute"),
    ("z = x.as_strided((1,), (1,))", "attribute"),
    ("z = x.sum()", "attribute"),
    ("z = x.set_(y)", "attribute"),
    ("z = x.to(device='cpu')", "keyword"),
    ("z = x.to(**y)", "keyword"),
    ("z = aten", "name"),
    ("z = aten.add", "attribute"),
    ("z = aten.add_(x, y)", "operator"),
    ("z = aten.relu_(x)", "operator"),
    ("z = aten.copy_(x, y)", "operator"),
    ("z = aten.rand_like(x)", "operator"),
    ("z = aten.dropout(x, 0.5, True)", "operator"),
    ("z = aten.bernoulli(x)", "operator"),
    ("z = aten.bernoulli(x)", "operator"),
    ("z = aten._foreach_add([x], 1)", "operator"),
    ("z = aten.set_data(x, y)", "operator"),
    ("z = aten.from_file('f')", "operator"),
    ("z = aten.empty([1])", "operator"),
    ("z = aten.add.Tensor.more(x, y)", "operator"),
    ("z = aten.add.__class__(x)", "operator"),
    ("z = aten.add(*x)", "operator"),
    ("z = aten.add(x, y, out=y)", "keyword"),
    ("z = aten.full([1], 0, device='cpu')", "keyword"),
    ("z = aten.scaled_dot_product_attention(x, x, x, None, 0.5)", "operator"),
    ("z = aten.scaled_dot_product_attention(x, x, x, dropout_p=y)", "operator"),
    ("z = weights", "weights"),
    ("z = weights[y]", "weights"),
    ("z = weights.shape", "weights"),
    ("z = prepared['w']", "prepared"),
    ("z = update('b', y)", "update"),
    ("update(y, y)", "update"),
    ("update('b')", "update"),
    ("update('b', *y)", "update"),
    ("z = " + LAUNCH + "args=(x, y, 1))", "launch"),
    ('launch("other", grid=1, block=1, args=(x, y, 1))', "launch"),
    ("launch(y, grid=1, block=1, args=(x, y, 1))", "launch"),
    (LAUNCH + "args=(x, y))", "launch"),
    (LAUNCH + "args=(x, y, 1, 2))", "launch"),
    (LAUNCH + "args=(x, y, 'word'))", "launch"),
    (LAUNCH + "args=(x, 5, 1))", "launch"),
    (LAUNCH + "args=x)", "launch"),
    (LAUNCH + "args=(*x, y))", "launch"),
    (LAUNCH + "stream=1, args=(x, y, 1))", "launch"),
    (LAUNCH + "grid=2, args=(x, y, 1))", "syntax"),
    ('launch("softmax_rows", grid=1, args=(x, y, 1))', "launch"),
    ("for i in x: y = x", "loop"),
    ("for i in (1, 2): y = x", "loop"),
    ("for i in range(*x): y = x", "loop"),
    ("for i, j in range(2): y = x", "loop"),
    ("for i in range(2): break", "statement"),
    ("return", "structure"),
]


@pytest.mark.parametrize(("line", "rule"), FORBIDDEN_LINES)
def test_what_is_not_on_the_list_is_refused_with_its_line(
    cuda_source: KernelSource, line: str, rule: str
) -> None:
    with pytest.raises(ContractError) as caught:
        validate_plan(body(line), cuda_source)
    assert caught.value.rule == rule, caught.value
    assert caught.value.line >= 3
    assert caught.value.words


FORBIDDEN_PLANS = [
    ("", "structure"),
    ("forward = 1", "structure"),
    ("import os\ndef forward(x):\n    return x", "structure"),
    ("CACHE = 1\ndef forward(x):\n    return x", "structure"),
    ("def forward(x):\n    return x\ndef other(x):\n    return x", "structure"),
    ("def forward(x):\n    return x\ndef forward(x):\n    return x", "structure"),
    ("async def forward(x):\n    return x", "structure"),
    ("@y\ndef forward(x):\n    return x", "structure"),
    ("def forward(x=1):\n    return x", "structure"),
    ("def forward(*x):\n    return x", "structure"),
    ("def forward(**x):\n    return x", "structure"),
    ("def forward(*, x):\n    return x", "structure"),
    ("def forward(x, /):\n    return x", "structure"),
    ("def forward(x: int):\n    return x", "structure"),
    ("def forward(x) -> int:\n    return x", "structure"),
    ("def forward(x):\n    y = x", "structure"),
    ("def forward(__x):\n    return __x", "name"),
    ("def forward(min):\n    return min", "name"),
    ("def forward(x):\n    yield x", "statement"),
    ("def forward(x):\n    return (yield x)", "expression"),
    ("def prepare(w):\n    return {}\ndef forward(x):\n    return x", "structure"),
    ("def prepare(weights):\n    return 1\ndef forward(x):\n    return x", "prepare"),
    ("def prepare(weights):\n    return {1: 2}\ndef forward(x):\n    return x", "prepare"),
    ("def prepare(weights):\n    return {**weights}\ndef forward(x):\n    return x", "prepare"),
    (
        "def prepare(weights):\n    return {'a': weights['a']}\n"
        "def forward(x):\n    return prepared['b']",
        "prepared",
    ),
    ("def forward(x):\n    if x:\n        y = x\n    return y", "name"),
    ("def forward(x:\n    return x", "syntax"),
    ("def forward(x):\n    return " + "(" * 500 + "x" + ")" * 500, "syntax"),
    ("def forward(x):\n    return " + "-" * 20_000 + "x", "syntax"),
    ("def forward(x):\n    return " + "+".join(["x"] * 20_000), "syntax"),
    ("\x00", "syntax"),
    ("#" * 2_000_001, "size"),
    ("x\n" * 200_000, "size"),
    (
        "def forward(x):\n    for a in range(2):\n     for b in range(2):\n"
        "      for c in range(2):\n"
        "       for d in range(2):\n        y = x\n    return x",
        "loop",
    ),
]


@pytest.mark.parametrize(("plan", "rule"), FORBIDDEN_PLANS)
def test_a_plan_that_is_more_than_two_plain_functions_is_refused(
    cuda_source: KernelSource, plan: str, rule: str
) -> None:
    with pytest.raises(ContractError) as caught:
        validate_plan(plan, cuda_source)
    assert caught.value.rule == rule, caught.value


def test_a_name_defined_on_every_path_that_goes_on_is_defined(cuda_source: KernelSource) -> None:
    text = (
        "def forward(x):\n    if x.shape[0] == 1:\n        return x\n    else:\n        y = x\n"
        "    return y\n"
    )
    assert validate_plan(text, cuda_source).parameters == ("x",)


def test_a_plan_may_be_as_long_as_the_backward_of_many_layers(cuda_source: KernelSource) -> None:
    grid = "ceil_div(3072, THREADS // 32) * ceil_div(768, THREADS % 1000) * max(12, 1)"
    launch = f"launch('softmax_rows', grid={grid}, block=1, args=(x, y, 7))"
    step = f"    y = empty_like(x)\n    {launch}\n"
    text = "def forward(x):\n" + step * 2_000 + "    return y\n"
    assert len(text) > 250_000
    assert validate_plan(text, cuda_source).launches == ("softmax_rows",)


def test_a_cpp_launch_has_no_geometry(cpp_source: KernelSource) -> None:
    text = 'def forward(x):\n    launch("nothing", grid=1, args=())\n    return x\n'
    with pytest.raises(ContractError, match="launch takes args, not 'grid'"):
        validate_plan(text, cpp_source)


def test_a_policy_can_admit_fewer_operators_but_never_more(cuda_source: KernelSource) -> None:
    text = "def forward(x):\n    return aten.relu(x)\n"
    assert validate_plan(text, cuda_source, ADMITTED).operators == ("relu",)
    with pytest.raises(ContractError, match="not among the library operators admitted"):
        validate_plan(text, cuda_source, frozenset({"convolution"}))
    with pytest.raises(ContractError, match="admitted"):
        validate_plan(text.replace("relu", "relu_"), cuda_source, frozenset({"relu_"}))


def test_an_error_reads_as_a_sentence_with_line_and_rule(cuda_source: KernelSource) -> None:
    with pytest.raises(ContractError) as caught:
        validate_plan(body("z = x.item()"), cuda_source)
    assert str(caught.value) == "line 3: a plan may not call .item() [attribute]"
