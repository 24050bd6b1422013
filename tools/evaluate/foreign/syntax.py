"""Walking Python's syntax: what is alive in it, and what its dotted names mean."""

import ast
from collections.abc import Iterator, Sequence


def alive(node: ast.AST) -> Iterator[ast.AST]:
    """The node and all under it, but for branches never taken and what follows a return."""
    yield node
    for _, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            yield from alive(value)
        elif isinstance(value, list):
            for item in _until_left(_taken(node, value)):
                yield from alive(item)


def _taken(node: ast.AST, items: list[object]) -> list[ast.AST]:
    """The items of a field, none where a constant condition rules them out."""
    nodes = [item for item in items if isinstance(item, ast.AST)]
    if isinstance(node, (ast.If, ast.While)) and isinstance(node.test, ast.Constant):
        dead = node.orelse if node.test.value else node.body
        if nodes and dead and nodes[0] is dead[0]:
            return []
    return nodes


def _until_left(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    for node in nodes:
        yield node
        if isinstance(node, (ast.Return, ast.Raise, ast.Continue, ast.Break)):
            return


_IMPORTERS = ("__import__", "importlib.import_module")


class Names:
    """Resolves names by the file's imports and simple aliases.

    Args:
        tree: the file.
    """

    def __init__(self, tree: ast.Module) -> None:
        self._meaning: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for item in node.names:
                    bound = item.asname or item.name.split(".")[0]
                    self._meaning[bound] = item.name if item.asname else bound
            elif isinstance(node, ast.ImportFrom) and node.module:
                for item in node.names:
                    self._meaning[item.asname or item.name] = f"{node.module}.{item.name}"
        self._texts = [
            node.value
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                target, value = node.targets[0], self.dotted(node.value)
                if isinstance(target, ast.Name) and value and self.imported(node.value):
                    self._meaning.setdefault(target.id, value)

    def dotted(self, node: ast.AST) -> str:
        """The full name of a name or an attribute; empty for anything else."""
        if isinstance(node, ast.Name):
            return self._meaning.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            before = self.dotted(node.value)
            return f"{before}.{node.attr}" if before else ""
        if isinstance(node, ast.Call) and self.dotted(node.func) == "getattr":
            return self._fetched(node)
        if isinstance(node, ast.Call) and self.dotted(node.func) in _IMPORTERS:
            return spelled(node.args[0]) if node.args else ""
        return ""

    def imported(self, node: ast.AST) -> bool:
        """Whether a name leads into an imported module."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return isinstance(node, ast.Name) and node.id in self._meaning

    def mentions(self, words: Sequence[str]) -> bool:
        """Whether a string of the file, such as a kernel's source, holds one of the words."""
        return any(word in text for text in self._texts for word in words)

    def _fetched(self, node: ast.Call) -> str:
        """`getattr(torch, "compile")` is `torch.compile`."""
        name = spelled(node.args[1]) if len(node.args) > 1 else ""
        before = self.dotted(node.args[0]) if name else ""
        return f"{before}.{name}" if before else ""


def spelled(node: ast.AST) -> str:
    """The text that an expression of constants spells, however it is put together; or ""."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = spelled(node.left), spelled(node.right)
        return left + right if left and right else ""
    if isinstance(node, ast.JoinedStr):
        parts = [spelled(part) for part in node.values]
        return "".join(parts) if all(parts) else ""
    return ""
