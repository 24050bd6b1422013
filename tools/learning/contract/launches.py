"""An answer in the short contract as a candidate: launch comments become the plan.

A small model writes device code and nothing else. Above it stand comments, one a launch, in order,
and one for each temporary tensor:

    // temporary: sums float32 64
    // launch: row_sums grid=64 block=256 args=x,sums

A size of the geometry may be a product and a division that rounds up: `grid=1000*384/256` are 1500
blocks. Arguments are the names of the forward's inputs, of weights (dots in their names are
underscores), of temporaries, and of outputs: `out`, or `out0`, `out1`, ... where there are several.
The plan that follows from them allocates, launches and returns; it is validated and judged like any
other.
Not covered: tasks with arguments that are no tensors or are not contiguous, and updates of buffers.
"""

import re
from collections.abc import Mapping
from math import prod

from kernelwright.tools.candidates import ContractError
from kernelwright.tools.candidates.plan import validate_plan
from kernelwright.tools.candidates.plan.vocabulary import RESERVED
from kernelwright.tools.languages import language_named, new_candidate, parse_kernel
from kernelwright.tools.types import Candidate, DType, LanguageName, Task, TensorSpec, Value
from kernelwright.tools.types.graph import REAL

_BLOCK = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"^[ \t]*//[ \t]*(launch|temporary):[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z_]\w*")
_SIZES = re.compile(r"\d{1,10}(?:[x,]\d{1,10}){0,7}")
_EXTENT = re.compile(r"(\d{1,10}(?:\*\d{1,10}){0,5})(?:/([1-9]\d{0,9}))?")
_WHOLE = re.compile(r"-?\d{1,18}")
_GEOMETRY = ("grid", "block", "shared", "cluster")
# A forward needs few; a model that repeats itself writes thousands.
_MOST_LINES = 64


class Named(Value):
    """A tensor of the contract: the name an answer knows it by, and what it is."""

    name: str
    tensor: TensorSpec
    target: str = ""


class Interface(Value):
    """What an answer may name: the inputs, the weights (with state-dict names), the outputs.

    `packed` says how the outputs are returned: as `tensor`, `tuple` or `list`.
    """

    inputs: tuple[Named, ...]
    weights: tuple[Named, ...]
    outputs: tuple[Named, ...]
    packed: str = "tensor"

    @property
    def every(self) -> tuple[Named, ...]:
        """All of them, in that order."""
        return (*self.inputs, *self.weights, *self.outputs)


class Temporary(Value):
    """A tensor that only the kernels of one call see."""

    name: str
    dtype: DType
    shape: tuple[int, ...]


class Launched(Value):
    """One launch comment; without geometry for a language whose kernels have none."""

    kernel: str
    arguments: tuple[str, ...]
    geometry: tuple[tuple[str, str], ...] = ()


def interface(task: Task) -> Interface | None:
    """The names for a task; None for one that the short contract does not cover."""
    plain = all(item.tensor is not None for item in task.inputs) and task.call is None
    if not plain or task.parts or task.returns is not None or task.graph.mutations:
        return None
    tensors = [item.tensor for item in task.inputs if item.tensor is not None]
    weights = [(node.target or "", node.out[0]) for node in task.graph.nodes if node.op == "weight"]
    specs = [*tensors, *task.outputs, *(spec for _, spec in weights)]
    constants = any(node.op == "constant" for node in task.graph.nodes)
    if constants or any(not _is_plain(spec) for spec in specs):
        return None
    inputs = tuple(
        Named(name=item.name, tensor=tensor)
        for item, tensor in zip(task.inputs, tensors, strict=True)
    )
    read = tuple(
        Named(name=re.sub(r"\W", "_", name), tensor=spec, target=name) for name, spec in weights
    )
    single = len(task.outputs) == 1
    outputs = tuple(
        Named(name="out" if single else f"out{number}", tensor=spec)
        for number, spec in enumerate(task.outputs)
    )
    found = Interface(
        inputs=inputs, weights=read, outputs=outputs, packed=task.graph.output_structure
    )
    names = [item.name for item in found.every]
    clash = len(set(names)) < len(names) or bool(set(names) & RESERVED)
    return None if clash else found


def _is_plain(spec: TensorSpec) -> bool:
    return spec.strides is None and spec.dtype in REAL and 0 < spec.numel < 2**31


def code_of(answer: str) -> str:
    """The device code of an answer: its longest fenced block, else the whole text."""
    return max(_BLOCK.findall(answer), key=len, default=answer).strip() + "\n"


def candidate_of(
    answer: str, names: Interface, language: LanguageName, *, most_characters: int = 16_000
) -> Candidate:
    """The candidate that an answer means.

    Args:
        answer: What the model wrote.
        names: What it may name.
        language: What it is written in.
        most_characters: A longer one is refused unread.

    Raises:
        ContractError: The answer breaks the contract; the message says where.
    """
    if len(answer) > most_characters:
        raise ContractError(0, "answer", f"{len(answer)} characters are too many")
    code = code_of(answer)
    temporaries, launches = _declared(code)
    if not launches:
        raise ContractError(0, "launch", "no `// launch:` comment says how a kernel is launched")
    kernel = with_prelude(code, language)
    plan = plan_of(names, temporaries, launches)
    candidate = new_candidate(language, kernel, plan, origin="model")
    validate_plan(plan, parse_kernel(kernel, language))
    return candidate


def with_prelude(code: str, language: LanguageName) -> str:
    """Device code with the language's own header before it, which answers leave out."""
    prelude = language_named(language).spec.prelude
    if prelude is None or f'"{prelude.name}"' in code:
        return code
    return f'#include "{prelude.name}"\n\n{code}'


def _declared(code: str) -> tuple[tuple[Temporary, ...], tuple[Launched, ...]]:
    temporaries: list[Temporary] = []
    launches: list[Launched] = []
    for kind, text in _LINE.findall(code):
        if len(temporaries) + len(launches) >= _MOST_LINES:
            raise ContractError(0, "launch", f"more than {_MOST_LINES} launches and temporaries")
        if kind == "temporary":
            temporaries.append(_temporary(text))
        else:
            launches.append(_launch(text))
    return tuple(temporaries), tuple(launches)


def _temporary(text: str) -> Temporary:
    parts = text.split()
    known = {dtype.value: dtype for dtype in REAL}
    if len(parts) != 3 or not _NAME.fullmatch(parts[0]) or not _SIZES.fullmatch(parts[2]):
        words = f"{text!r} is not `NAME TYPE SIZE`, such as `t float32 64`"
        raise ContractError(0, "temporary", words)
    if parts[1] not in known:
        raise ContractError(0, "temporary", f"{parts[1]!r} is no element type")
    shape = tuple(map(int, re.split("[x,]", parts[2])))
    if not 0 < prod(shape) < 2**31:
        raise ContractError(0, "temporary", f"{text!r} has no elements, or too many")
    return Temporary(name=parts[0], dtype=known[parts[1]], shape=shape)


def _launch(text: str) -> Launched:
    name, *words = text.split()[:8] or [""]
    pairs = dict(word.split("=", 1) for word in words if "=" in word)
    unknown = set(pairs) - {*_GEOMETRY, "args"}
    if not _NAME.fullmatch(name) or len(pairs) < len(words) or unknown or "args" not in pairs:
        raise ContractError(
            0, "launch", f"{text!r} is not `NAME grid=SIZE block=SIZE args=NAME,NAME,...`"
        )
    arguments = tuple(pairs["args"].split(","))
    if any(not (_NAME.fullmatch(item) or _WHOLE.fullmatch(item)) for item in arguments):
        raise ContractError(0, "launch", f"args={pairs['args']} are not names or whole numbers")
    geometry = tuple((word, pairs[word]) for word in _GEOMETRY if word in pairs)
    for word, sizes in geometry:
        if not all(_EXTENT.fullmatch(part) for part in _parts(sizes)):
            raise ContractError(0, "launch", f"{word}={sizes} is no size")
    return Launched(kernel=name, arguments=arguments, geometry=geometry)


def plan_of(
    names: Interface, temporaries: tuple[Temporary, ...], launches: tuple[Launched, ...]
) -> str:
    """The plan that launch comments mean.

    Raises:
        ContractError: A comment names what is not there, or names something anew.
    """
    known = {item.name for item in names.every}
    for item in temporaries:
        if item.name in known or item.name in RESERVED:
            raise ContractError(0, "temporary", f"the name {item.name} is taken")
        known.add(item.name)
    used = {name for one in launches for name in one.arguments}
    lines = [f"def forward({', '.join(item.name for item in names.inputs)}):"]
    lines += [
        f'    {item.name} = weights["{item.target}"]' for item in names.weights if item.name in used
    ]
    made = [(item.name, item.tensor.shape, item.tensor.dtype) for item in names.outputs]
    made += [(item.name, item.shape, item.dtype) for item in temporaries]
    lines += [f"    {name} = empty({_tuple(shape)}, {_type(dtype)})" for name, shape, dtype in made]
    lines += [f"    {_call(one, known)}" for one in launches]
    returned = _tuple([item.name for item in names.outputs])
    lines.append(f"    return {names.outputs[0].name if names.packed == 'tensor' else returned}")
    return "\n".join(lines) + "\n"


def _type(dtype: DType) -> str:
    return f'dtype="{dtype.value}"'


def _tuple(items: tuple[int, ...] | list[str]) -> str:
    text = ", ".join(map(str, items))
    return f"({text},)" if len(items) == 1 else f"({text})"


def _call(one: Launched, known: set[str]) -> str:
    for name in one.arguments:
        if not _WHOLE.fullmatch(name) and name not in known:
            raise ContractError(0, "launch", f"{one.kernel} is given {name}, which is nothing here")
    geometry = [f"{word}={_extent(sizes)}" for word, sizes in one.geometry]
    return f'launch("{one.kernel}", {", ".join([*geometry, f"args={_tuple([*one.arguments])}"])})'


def _parts(sizes: str) -> list[str]:
    return re.split("[x,]", sizes)


def _extent(sizes: str) -> str:
    found = [str(_size(part)) for part in _parts(sizes)]
    return found[0] if len(found) == 1 else _tuple(found)


def _size(text: str) -> int:
    """The number that a product is, and the division behind it, which rounds up."""
    match = _EXTENT.fullmatch(text)
    assert match is not None, "it was read before"
    return -(-prod(map(int, match[1].split("*"))) // int(match[2] or 1))


def launch_comment(one: Launched) -> str:
    """A launch as its comment."""
    geometry = "".join(f" {word}={size}" for word, size in one.geometry)
    return f"// launch: {one.kernel}{geometry} args={','.join(one.arguments)}"


def temporary_comment(item: Temporary) -> str:
    """A temporary as its comment."""
    return f"// temporary: {item.name} {item.dtype.value} {'x'.join(map(str, item.shape))}"


def answer_text(code: str, language: LanguageName) -> str:
    """Device code as a model is to answer it."""
    return f"```{language}\n{code.strip()}\n```"


def shown(names: Interface) -> Mapping[str, str]:
    """What a prompt says of every name: its shape and type."""
    return {item.name: f"{_shape(item.tensor)} {item.tensor.dtype.value}" for item in names.every}


def _shape(spec: TensorSpec) -> str:
    return f"({', '.join(map(str, spec.shape))})"
