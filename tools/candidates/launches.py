"""Plans for a bare kernel: how it could be launched, by its signature, its source and the task.

What a person says in a comment goes first, as in `// launch: grid=ceil_div(n, 256), block=256,
args=(x, y, n)`; what is left out there is inferred. Read-only pointers take inputs and weights, by
name or else in order; the others take outputs. Sizes are known by the names that people give them.
Where a name may mean two things there is a plan for either, and the judge finds the one that is
right: nothing here is trusted. What cannot be told is asked for, in one sentence.

Not covered: kernels that call each other, several launches, tensor maps and dynamic shared memory,
which a comment or a plan has to say.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from itertools import islice, product

from kernelwright.tools.candidates.kernel_source import KernelFunction, KernelSource, Parameter
from kernelwright.tools.types import Task, TensorSpec, Value

_MOST = 6  # plans of one kernel: each costs a judgement
_SAID = re.compile(r"//\s*launch:\s*(.+)")
_EXPORT = re.compile(r'^(?!.*extern\s+"C")([ \t]*)(__global__\s+void\b)', re.MULTILINE)
_TEMPLATE = re.compile(r"template\s*<[^>]*>\s*__global__")
_BOUNDS = re.compile(r"__launch_bounds__\s*\(\s*(\w+)")
_CONSTANT = (
    r"(?:#define\s+{0}\s+|(?:constexpr|const)\s+(?:static\s+)?(?:int|unsigned)\s+{0}\s*=\s*)(\d+)"
)
_BLOCK_NAMES = ("THREADS", "BLOCK_SIZE", "BLOCK", "BLOCKSIZE", "NUM_THREADS", "TPB", "BLOCK_DIM")
_TILE_NAMES = ("TILE", "TILE_SIZE", "TILE_DIM", "TILE_WIDTH", *_BLOCK_NAMES)
_THREADS, _TILE = "256", "16"

# What people call sizes, in lower case.
_COUNTS = frozenset({
    "n", "size", "numel", "total", "count", "len", "length", "num_elements", "elements", "num",
})  # fmt: skip
_ROWS = frozenset({
    "rows", "num_rows", "nrows", "m", "batch", "batch_size", "b", "outer", "height", "h",
})  # fmt: skip
_COLUMNS = frozenset({
    "cols", "columns", "num_cols", "ncols", "d", "dim", "width", "w", "hidden", "hidden_size",
    "features", "row_size", "inner", "n",
})  # fmt: skip
_INNER = frozenset(["k", "inner"])


class Inferred(Value):
    """Plans, the likeliest first; where there are none, `missing` says what to say, and how."""

    plans: tuple[str, ...] = ()
    missing: str = ""


def exported(kernel: str) -> str:
    """A bare kernel's source with its kernels exported, as far as they are no templates."""
    if 'extern "C"' in kernel or _TEMPLATE.search(kernel):
        return kernel
    return _EXPORT.sub(r'\1extern "C" \2', kernel)


def inferred(source: KernelSource, kernel: str, task: Task) -> Inferred:
    """How a kernel could be launched for a task.

    Args:
        source: What its text declares.
        kernel: The text itself.
        task: What it is to compute.
    """
    if len(source.functions) != 1:
        names = ", ".join(item.name for item in source.functions)
        return Inferred(missing=f"it exports {names}: write a plan.py that says in which order")
    function = source.functions[0]
    said = _said(kernel)
    if isinstance(said, str):
        return Inferred(missing=said)
    try:
        made = list(islice(_plans(source, function, kernel, task, said), _MOST))
    except _UnknownError as unknown:
        example = f"// launch: grid=..., block=..., args=({_listed(function)})"
        return Inferred(missing=f"{unknown}; say it in a line such as `{example}`")
    return Inferred(plans=tuple(dict.fromkeys(made)))


class _UnknownError(Exception):
    """What cannot be told, in words."""


def _listed(function: KernelFunction) -> str:
    return ", ".join(item.name for item in function.parameters)


def _said(kernel: str) -> dict[str, str] | str:
    """What the comment says, by keyword; a sentence where it cannot be read."""
    found = _SAID.search(kernel)
    if found is None:
        return {}
    try:
        call = ast.parse(f"launch({found[1]})", mode="eval").body
    except (SyntaxError, ValueError):
        call = None
    if not isinstance(call, ast.Call) or call.args:
        return f"`{found[0].strip()}` is not of the form `// launch: grid=..., block=..., args=...`"
    return {item.arg: ast.unparse(item.value) for item in call.keywords if item.arg}


def _plans(
    source: KernelSource, function: KernelFunction, kernel: str, task: Task, said: dict[str, str]
) -> Iterator[str]:
    if source.has_grid and "extern __shared__" in kernel and "shared" not in said:
        raise _UnknownError("how much dynamic shared memory it takes cannot be told")
    places = _tensors(function, kernel, task)
    geometries = list(_geometries(source, kernel, task, said)) if source.has_grid else [{}]
    for meant, geometry in product(_meanings(function, places, task, said), geometries):
        # Only what the person said has names of the kernel's in it.
        spoken = {name: _put(text, meant) for name, text in said.items()}
        args = spoken.get("args") or _tuple([meant[item.name] for item in function.parameters])
        launch = {name: spoken.get(name, text) for name, text in geometry.items()}
        yield _plan(function, task, launch | {"args": args})


def _put(text: str, meant: dict[str, str]) -> str:
    """An expression over the kernel's parameters in the plan's words."""
    return re.sub(r"\b[A-Za-z_]\w*\b", lambda found: meant.get(found[0], found[0]), text)


def _tuple(words: Sequence[str]) -> str:
    return f"({', '.join(words)}{',' if len(words) == 1 else ''})"


def _plan(function: KernelFunction, task: Task, launch: dict[str, str]) -> str:
    """The text of one plan."""
    given = ", ".join(item.name for item in task.inputs)
    lines = [f"def forward({given}):"]
    outputs = [f"out{number}" for number in range(len(task.outputs))]
    for name, spec in zip(outputs, task.outputs, strict=True):
        lines.append(f'    {name} = empty({spec.shape!r}, dtype="{spec.dtype.value}")')
    order = ("grid", "block", "shared", "cluster", "args")
    told = ", ".join(f"{name}={launch[name]}" for name in order if name in launch)
    lines.append(f'    launch("{function.name}", {told})')
    lines.append(f"    return {', '.join(outputs)}")
    return "\n".join(lines) + "\n"


def _tensors(function: KernelFunction, kernel: str, task: Task) -> dict[str, str]:
    """For every pointer what the plan passes: outputs are called `out0`, `out1`, ..."""
    pointers = [item for item in function.parameters if item.pointer]
    written = [item for item in pointers if not _is_const(item, kernel)]
    if len(written) != len(task.outputs):
        raise _UnknownError(
            f"{function.name} writes {len(written)} tensors and the task has {len(task.outputs)} "
            "outputs, so that it cannot be told what is what"
        )
    found: dict[str, str] = {}
    for number, (item, spec) in enumerate(zip(written, task.outputs, strict=True)):
        _check(item, spec)
        found[item.name] = f"out{number}"
    left = dict(_readable(task))
    for item in (one for one in pointers if one not in written):
        name = _match(item, left)
        found[item.name] = name
        left.pop(name)
    return found


def _readable(task: Task) -> Iterator[tuple[str, TensorSpec]]:
    """What a plan may read, by the words for it: inputs first, then weights."""
    for given in task.inputs:
        if given.tensor is not None:
            yield given.name, given.tensor
    for weight in task.weights:
        yield f'weights["{weight.name}"]', weight.tensor


def _match(item: Parameter, left: dict[str, TensorSpec]) -> str:
    """The tensor of that name, or else the first that fits."""
    fitting = [name for name, spec in left.items() if spec.dtype in item.accepts]
    named = (name for name in fitting if re.findall(r"\w+", name)[-1] == item.name)
    found = next(named, next(iter(fitting), None))
    if found is None:
        raise _UnknownError(f"no input or weight of the task fits {item.spelling} {item.name}")
    return found


def _check(item: Parameter, spec: TensorSpec) -> None:
    if spec.dtype not in item.accepts:
        raise _UnknownError(
            f"{item.name} is {item.spelling}, but the task gives {spec.dtype.value}"
        )


def _is_const(item: Parameter, kernel: str) -> bool:
    declared = rf"\bconst\s+[\w:]+\s*\*\s*(?:__restrict__\s*)?{item.name}\b"
    return re.search(declared, kernel) is not None


def _meanings(
    function: KernelFunction, places: dict[str, str], task: Task, said: dict[str, str]
) -> Iterator[dict[str, str]]:
    """What every parameter is, for every meaning that sizes may have, the likeliest first."""
    spoken = set(re.findall(r"\w+", " ".join(said.values())))
    wanted = [
        item
        for item in function.parameters
        if not item.pointer and ("args" not in said or item.name in spoken)
    ]
    sizes = [_sizes(item, function, task) for item in wanted]
    for chosen in product(*sizes):
        yield places | {item.name: word for item, word in zip(wanted, chosen, strict=True)}


def _sizes(item: Parameter, function: KernelFunction, task: Task) -> list[str]:
    """What a number may be."""
    given = {one.name: one.scalar for one in task.inputs if one.tensor is None}
    if item.name in given:
        return [item.name]
    scalar = item.scalar
    if scalar is None or not scalar.is_integer:
        raise _UnknownError(f"what {item.spelling} {item.name} is cannot be told")
    found = list(dict.fromkeys(map(str, _meant(item.name.lower(), function, task))))
    if not found:
        raise _UnknownError(f"which size {item.name} is cannot be told")
    return found


def _meant(name: str, function: KernelFunction, task: Task) -> Iterator[int]:
    shapes = [one.tensor.shape for one in task.inputs if one.tensor is not None]
    out = task.outputs[0]
    names = {one.name.lower() for one in function.parameters if not one.pointer}
    product_of_two = {"m", "n", "k"} <= names and len(shapes) + len(task.weights) > 1
    if product_of_two and name in ("m", "n", "k"):
        yield {"m": out.numel // out.shape[-1], "n": out.shape[-1], "k": shapes[0][-1]}[name]
        return
    several = bool(names & (_ROWS | _COLUMNS) - {"n"})
    if name in _COUNTS and not (name == "n" and several):
        yield out.numel
        yield from (_numel(shape) for shape in shapes[:1])
    if name in _ROWS:
        yield from (_numel(shape) // shape[-1] for shape in shapes[:1] if shape)
        yield from (shape[0] for shape in shapes[:1] if shape)
    if name in _COLUMNS:
        yield from (shape[-1] for shape in shapes[:1] if shape)
    if name in _INNER:
        yield from (shape[-1] for shape in shapes[:1] if shape)


def _numel(shape: Sequence[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def _geometries(
    source: KernelSource, kernel: str, task: Task, said: dict[str, str]
) -> Iterator[dict[str, str]]:
    """Grid and block, the likeliest first."""
    kept = {name: text for name, text in said.items() if name in ("shared", "cluster")}
    for grid, block in _shapes(source, kernel, task, said.get("block", "")):
        yield {"grid": said.get("grid", grid), "block": said.get("block", block), **kept}


def _shapes(source: KernelSource, kernel: str, task: Task, said: str) -> Iterator[tuple[str, str]]:
    """Grids and blocks; grids cover what they have to in blocks of the size that was said."""
    sizes = re.findall(r"[A-Z0-9_]+", said) if re.fullmatch(r"[(), A-Z0-9_]+", said) else []
    out = task.outputs[0]
    first = next((one.tensor for one in task.inputs if one.tensor is not None), out)
    if "threadIdx.y" in kernel:
        tile, columns = _named(_TILE_NAMES, source, kernel) or _TILE, out.shape[-1]
        x, y = sizes[:2] if len(sizes) > 1 else (tile, tile)
        grid = f"(ceil_div({columns}, {x}), ceil_div({out.numel // columns}, {y}))"
        yield grid, f"({x}, {y})"
        return
    bounds = _BOUNDS.search(kernel)
    block = bounds[1] if bounds else _named(_BLOCK_NAMES, source, kernel) or _THREADS
    block = sizes[0] if sizes else block
    columns = first.shape[-1] if first.shape else 1
    a_row_a_block = (str(max(1, first.numel // columns)), block)
    linear = re.search(r"blockIdx\.x\s*\*[^;]*threadIdx\.x|threadIdx\.x\s*\+\s*blockIdx\.x", kernel)
    counts = dict.fromkeys((out.numel, first.numel))
    a_thread = [
        (f"ceil_div({count}, {each})", block) for count in counts for each in _each(block, kernel)
    ]
    if "blockIdx" not in kernel:
        yield "1", block
    elif linear:
        yield from (*a_thread, a_row_a_block)
    else:
        yield from (a_row_a_block, *a_thread)


def _each(block: str, kernel: str) -> list[str]:
    """Elements of a block: one a thread, or four where vectors of four are in the text."""
    return [f"4 * {block}", block] if "float4" in kernel else [block]


def _named(names: Sequence[str], source: KernelSource, kernel: str) -> str | None:
    """A tunable of one of these names, or the value of such a constant."""
    for name in names:
        if source.tunable(name) is not None:
            return name
        if found := re.search(_CONSTANT.format(name), kernel):
            return found[1]
    return None
