"""What a module's forward can reach within its file: functions, classes, globals, by name."""

import ast
from collections.abc import Iterator

from kernelwright.tools.evaluate.foreign.copying import only_copies
from kernelwright.tools.evaluate.foreign.syntax import alive


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
        for statement in tree.body:
            for name, node in bound(statement):
                self._definitions.setdefault(name, []).append(node)
        self._entries = self._classes(entry)
        self.names: list[str] = []
        self.parts: list[ast.AST] = []
        self._spread(list(self._definitions.get(entry, [])), self.parts, self.names)
        self.called: list[ast.AST] = []
        forwards = [m for c in self._entries for m in _methods(c)]
        self._spread([m for m in forwards if m.name != "__init__"], self.called, [])

    def _classes(self, entry: str) -> list[ast.ClassDef]:
        """What the entry may stand for: a class is defined in a branch, or under another name."""
        found: list[ast.ClassDef] = []
        todo, seen = [entry], set[str]()
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            for node in self._definitions.get(name, []):
                if isinstance(node, ast.ClassDef):
                    found.append(node)
                elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name):
                    todo.append(node.value.id)
        return found

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
        bases = {base.id for c in self._entries for base in c.bases if isinstance(base, ast.Name)}
        theirs = _forward_of(reference, reference_entry)
        for name in self.names:
            for node in self._definitions.get(name, []):
                if not isinstance(node, ast.ClassDef) or node in self._entries:
                    continue
                same = theirs != "" and theirs in map(_shape, _methods(node))
                if name != reference_entry and not same:
                    continue
                if name in bases and not any(map(_uses_super_forward, self._entries)):
                    continue
                if name not in bases and self._only_copied(node):
                    continue
                yield f"it hands its inputs to {name}, which is the reference"

    def _only_copied(self, model: ast.ClassDef) -> bool:
        """Whether the constructor makes one for its weights, and nothing can call it."""
        methods = {method.name for method in _methods(model)}
        called = [part for part in self.called if part is not model]
        if any(_mentions(part, model.name) for part in called):
            return False
        made = [m for c in self._entries for m in _methods(c) if m.name == "__init__"]
        other = [p for p in self.parts if p is not model and p not in self._entries]
        return all(only_copies(part, model.name, methods) for part in [*made, *other])


def _uses_super_forward(entry: ast.ClassDef) -> bool:
    """Whether an inherited forward runs: not overridden, or called through super()."""
    forward = next((m for m in _methods(entry) if m.name == "forward"), None)
    if forward is None:
        return True
    return any(
        isinstance(node, ast.Attribute)
        and node.attr in ("forward", "__call__")
        and isinstance(node.value, (ast.Call, ast.Name))
        and _is_parent(node.value)
        for node in alive(forward)
    )


def _mentions(part: ast.AST, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(part))


def _is_parent(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "super"
    return isinstance(node, ast.Name) and node.id == "Model"


def bound(node: ast.stmt) -> Iterator[tuple[str, ast.stmt]]:
    """The module-level names that a statement binds, each with the statement that does."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
        yield node.name, node
    elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            for part in ast.walk(target):
                if isinstance(part, ast.Name):
                    yield part.id, node
    elif isinstance(node, (ast.If, ast.Try, ast.With, ast.For, ast.While)):
        for child in ast.iter_child_nodes(node):
            inner = child.body if isinstance(child, ast.ExceptHandler) else [child]
            for statement in inner:
                if isinstance(statement, ast.stmt):
                    yield from bound(statement)


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
