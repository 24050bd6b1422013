"""What a module's forward can reach within its file: functions, classes, globals, by name."""

import ast
from collections.abc import Iterator

from tools.evaluate.foreign.syntax import alive


class Reach:
    """The parts of a file that a call of the entry can lead to.

    Args:
        tree: the file.
        entry: the class whose instances are called.

    Attributes:
        parts: Everything reached, the constructor's doings included.
        called: What runs when it is called: its forward and functions reached from there.
    """

    def __init__(self, tree: ast.Module, entry: str) -> None:
        self._definitions: dict[str, list[ast.AST]] = {}
        self._entry = entry
        for node in tree.body:
            for name in _bound(node):
                self._definitions.setdefault(name, []).append(node)
        self.entry_class = next(
            (n for n in self._definitions.get(entry, []) if isinstance(n, ast.ClassDef)), None
        )
        self.names: list[str] = []
        self.parts: list[ast.AST] = []
        start = self._definitions.get(entry, [])
        self._spread(list(start), self.parts, self.names)
        self.called: list[ast.AST] = []
        forwards = [m for c in start if isinstance(c, ast.ClassDef) for m in _methods(c)]
        self._spread([m for m in forwards if m.name != "__init__"], self.called, [])

    def _spread(self, todo: list[ast.AST], parts: list[ast.AST], names: list[str]) -> None:
        while todo:
            part = todo.pop()
            if part in parts:
                continue
            parts.append(part)
            for node in alive(part):
                if isinstance(node, ast.Name) and node.id not in names:
                    names.append(node.id)
                    todo += self._definitions.get(node.id, [])

    def handing_over(self, reference: str, reference_entry: str) -> Iterator[str]:
        """Ways in which the entry lets the reference do its work; a sentence each."""
        if self.entry_class is None:
            return
        bases = {base.id for base in self.entry_class.bases if isinstance(base, ast.Name)}
        theirs = _forward_of(reference, reference_entry)
        for name in self.names:
            for node in self._definitions.get(name, []):
                if not isinstance(node, ast.ClassDef) or node is self.entry_class:
                    continue
                same = theirs != "" and theirs in map(_shape, _methods(node))
                if name != reference_entry and not same:
                    continue
                if name in bases and not self._uses_super_forward():
                    continue
                yield f"it hands its inputs to {name}, which is the reference"

    def _uses_super_forward(self) -> bool:
        """Whether an inherited forward runs: not overridden, or called through super()."""
        assert self.entry_class is not None
        forward = next((m for m in _methods(self.entry_class) if m.name == "forward"), None)
        if forward is None:
            return True
        return any(
            isinstance(node, ast.Attribute)
            and node.attr in ("forward", "__call__")
            and isinstance(node.value, (ast.Call, ast.Name))
            and _is_parent(node.value)
            for node in alive(forward)
        )


def _is_parent(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "super"
    return isinstance(node, ast.Name) and node.id == "Model"


def _bound(node: ast.stmt) -> Iterator[str]:
    """The module-level names that a statement binds."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
        yield node.name
    elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            for part in ast.walk(target):
                if isinstance(part, ast.Name):
                    yield part.id
    elif isinstance(node, (ast.If, ast.Try, ast.With, ast.For, ast.While)):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.stmt):
                yield from _bound(child)
            elif isinstance(child, ast.ExceptHandler):
                for inner in child.body:
                    yield from _bound(inner)


def _methods(node: ast.ClassDef) -> list[ast.FunctionDef]:
    return [item for item in node.body if isinstance(item, ast.FunctionDef)]


def _forward_of(source: str, entry: str) -> str:
    """The shape of the reference's forward; empty where there is none."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == entry:
            return next((_shape(m) for m in _methods(node) if m.name == "forward"), "")
    return ""


def _shape(method: ast.FunctionDef) -> str:
    """What a method says, without its documentation and annotations."""
    body = method.body
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]
    return "\n".join(ast.dump(statement) for statement in body)
