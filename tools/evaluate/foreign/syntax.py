"""Walking the syntax of a foreign Python file: what is alive, what names mean, what is reached.

`alive` leaves out dead branches, `Names` resolves dotted names, and `Reach` finds what a module's
forward can reach within its file: functions, classes, globals, by name.

`only_copies` tells whether a function makes an object only to copy what it holds: its weights, its
parts. A file may construct the reference beside its own module, so that both draw the same weights.
That is honest as long as the object itself, or its forward, goes nowhere: then nothing can call it.
"""

import ast
from collections.abc import Collection, Iterator, Sequence


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


# Attributes of a module through which one gets hold of the module itself, or of its forward.
_ITSELF = {
    "apply", "bfloat16", "compile", "cpu", "cuda", "double", "eval", "float", "forward",
    "get_submodule", "half", "modules", "named_modules", "requires_grad_", "share_memory", "to",
    "to_empty", "train", "type",
}  # fmt: skip


def only_copies(function: ast.AST, made_by: str, methods: Collection[str]) -> bool:
    """Whether objects of a class go nowhere in a function, but for what they hold.

    Args:
        function: what is read, its whole tree.
        made_by: the class's name.
        methods: the class's own methods, any of which may lead to the forward.
    """
    above = {
        child: parent for parent in ast.walk(function) for child in ast.iter_child_nodes(parent)
    }
    objects: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and node.id == made_by:
            call = above.get(node)
            made = above.get(call) if isinstance(call, ast.Call) and call.func is node else None
            if not isinstance(made, ast.Assign) or made.value is not call:
                return False
            names = [target.id for target in made.targets if isinstance(target, ast.Name)]
            if len(names) != len(made.targets):
                return False
            objects.update(names)
    uses = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and node.id in objects and isinstance(node.ctx, ast.Load)
    ]
    return all(_of_a_part(node, above, methods) for node in uses)


def _of_a_part(node: ast.Name, above: dict[ast.AST, ast.AST], methods: Collection[str]) -> bool:
    """Whether a name is used for an attribute only, and one that does not lead back to it."""
    attribute = above[node]
    if not isinstance(attribute, ast.Attribute):
        return False
    call = above[attribute]
    alone = isinstance(call, ast.Call) and isinstance(above[call], ast.Expr)
    name = attribute.attr
    leads_back = name in _ITSELF or name in methods or name.startswith("_")
    return not leads_back or (alone and name in _ITSELF and name not in ("apply", "forward"))


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
