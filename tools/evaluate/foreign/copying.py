"""Whether a function makes an object only to copy what it holds: its weights, its parts.

A file may construct the reference beside its own module, so that both draw the same weights. That
is honest as long as the object itself, or its forward, goes nowhere: then nothing can call it.
"""

import ast
from collections.abc import Collection

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
