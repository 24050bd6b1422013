"""A notebook's cells as the text of one module: what the entry and its inputs need, and no more.

A statement is kept where it binds a name that is needed, or changes what such a name stands for
(`config.width = 64`, `sys.path.append(...)`, `model.eval()`); the rest is never run, be it a file
that is not there or a training loop. Magics and shell lines are dropped, and cells of another
language. Line numbers of errors are those of the text here, in which every piece names its cell.

Not seen: what a cell changes behind a name's back (a helper that edits its argument), and names
that only `exec` or `globals()` bind.
"""

from __future__ import annotations

import ast
import json
import symtable
from collections.abc import Sequence
from dataclasses import dataclass

from kernelwright.tools.types import Refusal

HELPERS = ("get_inputs", "get_init_inputs")
# Cell magics under which the rest of the cell is Python that would run as it is.
_TRANSPARENT = ("%%time", "%%timeit", "%%capture", "%%prun")
# Methods that make something of the object they are called on; others may well train or print it.
_CHANGES = frozenset(
    (
        *("eval", "train", "to", "half", "float", "double", "bfloat16", "cpu", "cuda", "apply"),
        *("load_state_dict", "requires_grad_", "register_buffer", "register_parameter"),
        *("add_module", "append", "extend", "insert", "update", "add", "setdefault"),
    )
)


@dataclass(frozen=True)
class _Statement:
    """One statement of a cell: what it binds, what it needs, and what it only changes."""

    cell: int
    text: str
    binds: frozenset[str]
    changes: frozenset[str]
    needs_now: frozenset[str]
    needs_later: frozenset[str]
    rebinds: bool


def sliced(content: str, name: str, entry: str | None, *, inputs_named: bool) -> str | Refusal:
    """The module's text.

    Args:
        content: The notebook as it is stored.
        name: What it is called.
        entry: What is to be optimised; `Model` or the only module class by default.
        inputs_named: Whether the person named inputs, so that `get_inputs` is not needed.
    """
    cells = _cells(content)
    if cells is None:
        return Refusal(sentence=f"{name} is no notebook that can be read: it has no list of cells.")
    statements, broken = _statements(cells)
    wanted = _wanted(statements, entry)
    if not wanted:
        also = f"; {broken[0]}" if broken else ""
        asked = entry or "an nn.Module"
        return Refusal(sentence=f"{name} has no cell that defines {asked}{also}.")
    if len(wanted) > 1:
        listed = ", ".join(wanted)
        return Refusal(
            sentence=f"{name} has several modules and none is called Model: {listed}; name one "
            "with --entry.",
            choices=tuple(wanted),
        )
    there = frozenset(bound for item in statements for bound in item.binds)
    goal = {*wanted, *(item for item in HELPERS if item in there)}
    if inputs_named:
        goal -= {"get_inputs"}
    return _joined(name, _slice(statements, frozenset(goal)))


def _cells(content: str) -> list[tuple[int, str]] | None:
    """Number, from 1, and text of every code cell; None where it is no notebook."""
    try:
        book = json.loads(content)
    except (ValueError, RecursionError):
        return None
    if not isinstance(book, dict):
        return None
    sheets = book.get("worksheets")  # before version 4 cells were in worksheets
    sheet = sheets[0] if isinstance(sheets, list) and sheets else book
    listed = sheet.get("cells") if isinstance(sheet, dict) else None
    if not isinstance(listed, list):
        return None
    return [
        (number, _cell_text(cell))
        for number, cell in enumerate(listed, start=1)
        if isinstance(cell, dict) and cell.get("cell_type") == "code"
    ]


def _cell_text(cell: dict[str, object]) -> str:
    given = cell.get("source", cell.get("input", ""))
    return "".join(map(str, given)) if isinstance(given, list) else str(given)


def _statements(cells: Sequence[tuple[int, str]]) -> tuple[list[_Statement], list[str]]:
    """All statements in order, and a sentence for every cell that is no Python."""
    found: list[_Statement] = []
    broken: list[str] = []
    for number, cell in cells:
        text = _without_magics(cell)
        try:
            parsed = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            what = error.msg if isinstance(error, SyntaxError) else type(error).__name__
            broken.append(f"cell {number} cannot be read: {what}")
            continue
        found += [_statement(number, text, node) for node in parsed.body]
    return found, broken


def _without_magics(cell: str) -> str:
    """The cell's Python; a line that is none becomes an empty statement, so that blocks stay."""
    text = cell.lstrip("\n")
    if text.lstrip().startswith("%%"):
        first, _, rest = text.lstrip().partition("\n")
        return _without_magics(rest) if first.startswith(_TRANSPARENT) else ""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return "\n".join(_plain(line) for line in text.splitlines())
    return text


def _plain(line: str) -> str:
    said = line.strip()
    value = said.partition("=")[2].strip()  # files = !ls, or best = %timeit -o f()
    magic = said.startswith(("%", "!", "?")) or value.startswith(("!", "%"))
    if not magic and not said.endswith("?"):
        return line
    indent = line[: len(line) - len(line.lstrip())]
    return f"{indent}pass"


def _statement(cell: int, text: str, node: ast.stmt) -> _Statement:
    first = min([node.lineno, *(item.lineno for item in getattr(node, "decorator_list", ()))])
    lines = text.splitlines()[first - 1 : node.end_lineno]
    own = "\n".join(lines) if node.col_offset == 0 and ";" not in lines[-1] else ast.unparse(node)
    now, later = _needs(ast.unparse(node))
    binds, changes = _binds(node), _changes(node)
    pure = isinstance(
        node, (ast.Import, ast.ImportFrom, ast.ClassDef, ast.FunctionDef, ast.Assign, ast.AnnAssign)
    )
    return _Statement(cell, own, binds, changes, now - binds if not pure else now, later, pure)


def _needs(text: str) -> tuple[frozenset[str], frozenset[str]]:
    """Global names that running a statement reads, and those that its functions read later."""
    top = symtable.symtable(text, "cell", "exec")
    now = {item.get_name() for item in top.get_symbols() if item.is_referenced()}
    later: set[str] = set()
    waiting = [(child, False) for child in top.get_children()]
    while waiting:
        table, inside = waiting.pop()
        inside = inside or table.get_type() == "function"
        names = {item.get_name() for item in table.get_symbols() if item.is_global()}
        if inside:
            later |= names
        else:
            now |= names
        waiting += [(child, inside) for child in table.get_children()]
    return frozenset(now), frozenset(later)


def _binds(node: ast.stmt) -> frozenset[str]:
    """Names that the statement binds in the module, whatever it is nested in."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return frozenset({node.name})
    table = symtable.symtable(ast.unparse(node), "cell", "exec")
    return frozenset(
        item.get_name() for item in table.get_symbols() if item.is_assigned() or item.is_imported()
    )


def _changes(node: ast.stmt) -> frozenset[str]:
    """Names whose objects it changes: an attribute or item is set, or a method that does that."""
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        targets = [node.target]
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return _called_on(node.value.func)
    else:
        return frozenset()
    places = [item for item in targets if isinstance(item, (ast.Attribute, ast.Subscript))]
    return frozenset(root for item in places if (root := _root(item)))


def _called_on(function: ast.expr) -> frozenset[str]:
    if not isinstance(function, ast.Attribute):
        return frozenset()
    root = _root(function)
    sets = root == "torch" and function.attr.startswith(("set_", "manual_seed"))
    return frozenset({root}) if root and (sets or function.attr in _CHANGES) else frozenset()


def _root(node: ast.expr) -> str:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _wanted(statements: Sequence[_Statement], entry: str | None) -> list[str]:
    """The entry; without one `Model`, else the module classes by what their bases are called."""
    bound = {name for item in statements for name in item.binds}
    if entry is not None:
        return [entry] if entry in bound else []
    if "Model" in bound:
        return ["Model"]
    nodes = [node for item in statements for node in ast.parse(item.text).body]
    return module_classes(nodes)


def module_classes(nodes: Sequence[ast.stmt]) -> list[str]:
    """Classes that are modules by their bases, or by bases that are such classes; in order."""
    found: list[str] = []
    for node in nodes:
        if not isinstance(node, ast.ClassDef):
            continue
        bases = [ast.unparse(base).rpartition(".")[2] for base in node.bases]
        if any(base in ("Module", "Sequential") or base in found for base in bases):
            found.append(node.name)
    return list(dict.fromkeys(found))


def _slice(statements: Sequence[_Statement], goal: frozenset[str]) -> list[_Statement]:
    """The statements that the names need, in their order.

    What a function reads is read when it is called, so it counts as needed at the end too; the
    search goes on until that adds nothing.
    """
    while True:
        kept, late = _backwards(statements, goal)
        if late <= goal:
            return kept
        goal |= late


def _backwards(
    statements: Sequence[_Statement], goal: frozenset[str]
) -> tuple[list[_Statement], frozenset[str]]:
    bound = {name for item in statements for name in item.binds}
    # Where imports are looked up is nobody's name, and decides what all of them find.
    wanted, kept, late = set(goal), list[_Statement](), set[str]()
    for item in reversed(statements):
        path = "sys" in item.changes and "path" in item.text
        if not (path or item.binds & wanted or item.changes & wanted):
            continue
        kept.append(item)
        late |= item.needs_later & bound
        if item.rebinds and item.binds <= wanted | item.binds and not item.changes:
            wanted -= item.binds
        wanted |= item.needs_now | item.needs_later
    return kept[::-1], frozenset(late)


def _joined(name: str, statements: Sequence[_Statement]) -> str:
    parts, cell = [f'"""Cells of {name}."""'.replace("\\", "/")], 0
    for item in statements:
        if item.cell != cell:
            cell = item.cell
            parts.append(f"\n# cell {cell}")
        parts.append(item.text)
    return "\n".join(parts) + "\n"
