"""Whatever text a model writes, the validator answers; what it lets through cannot reach out."""

import ast

from hypothesis import given
from hypothesis import strategies as st

from kernelwright.tools.candidates import ContractError, KernelSource
from kernelwright.tools.candidates.plan import Plan, validate_plan
from kernelwright.tools.candidates.plan.vocabulary import METHODS, PROPERTIES, RESERVED

_WORDS = (
    "x y z rows THREADS weights prepared aten launch update empty empty_like zeros full ceil_div "
    "min max int len range __class__ __import__ __builtins__ open eval exec getattr globals torch "
    "shape dtype T data grad item view reshape to copy_ numel add relu relu_ max dim out self"
)
WORDS = _WORDS.split()
CONSTANTS = ("0", "1", "-1", "2.5", "1e400", "True", "None", "'float32'", "'w'", "b''", "...", "1j")

names = st.sampled_from(WORDS)


def _compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def shaped(shape: str, count: int) -> st.SearchStrategy[str]:
        return st.tuples(*[inner] * count).map(lambda parts: shape.format(*parts))

    return st.one_of(
        shaped("({} + {})", 2),
        shaped("({} ** {})", 2),
        shaped("({} if {} else {})", 3),
        shaped("({} < {})", 2),
        shaped("({}, {})", 2),
        shaped("[{}]", 1),
        shaped("{}[{}]", 2),
        shaped("{}[{}:{}]", 3),
        shaped("{}({})", 2),
        shaped("{}({}, *{})", 3),
        shaped("{}({}, **{})", 3),
        shaped("launch('softmax_rows', grid={}, block={}, args=(x, y, {}))", 3),
        shaped("[{} for x in {}]", 2),
        shaped("(lambda: {})", 1),
        shaped("(z := {})", 1),
        shaped("{{'w': {}}}", 1),
        st.tuples(inner, names).map(lambda parts: ".".join(parts)),
        st.tuples(inner, names, inner).map(lambda p: f"{p[0]}.{p[1]}({p[2]})"),
        st.tuples(names, inner).map(lambda p: f"empty(1, {p[0]}={p[1]})"),
    )


expressions = st.recursive(st.one_of(names, st.sampled_from(CONSTANTS)), _compound, max_leaves=8)
lines = st.one_of(
    expressions,
    st.tuples(expressions, expressions).map(" = ".join),
    st.tuples(names, expressions).map(" += ".join),
    st.tuples(names, expressions).map(lambda p: f"for {p[0]} in {p[1]}: pass"),
    st.tuples(names, expressions).map(lambda p: f"for {p[0]} in range({p[1]}): z = {p[0]}"),
    st.tuples(expressions, expressions).map(lambda p: f"if {p[0]}: y = {p[1]}"),
    expressions.map(lambda text: f"while {text}: pass"),
    names.map(lambda name: f"import {name}"),
    names.map(lambda name: f"global {name}"),
    st.just("try: pass\n    except: pass"),
)


def judged(text: str, source: KernelSource) -> Plan | None:
    try:
        return validate_plan(text, source)
    except ContractError:
        return None


@given(st.lists(lines, max_size=4), expressions)
def test_what_passes_reads_no_attribute_and_calls_no_name_outside_of_the_lists(
    cuda_source: KernelSource, body: list[str], result: str
) -> None:
    block = "".join(f"    {line}\n" for line in ["y = empty_like(x)", *body])
    text = "def prepare(weights):\n    return {'w': weights['w']}\n"
    plan = judged(f"{text}def forward(x):\n{block}    return {result}\n", cuda_source)
    if plan is None:
        return
    nodes = list(ast.walk(ast.parse(plan.text)))
    own = {node.id for node in nodes if isinstance(node, ast.Name) and is_stored(node)}
    for node in nodes:
        assert not isinstance(node, ast.While | ast.Lambda | ast.ListComp | ast.Import | ast.Try)
        if isinstance(node, ast.Attribute) and not ast.unparse(node).startswith("aten."):
            assert node.attr in METHODS | PROPERTIES
        if isinstance(node, ast.Name):
            assert node.id in own | RESERVED | {"x", "THREADS"}
            assert not node.id.startswith("__")


def is_stored(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


@given(st.text(max_size=200))
def test_any_text_gets_an_answer(cuda_source: KernelSource, text: str) -> None:
    judged(text, cuda_source)
    judged(f"def forward(x):\n    y = {text}\n    return y\n", cuda_source)
