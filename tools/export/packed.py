"""How an export takes arguments apart and puts results together, as Python.

Classes that containers are of are imported; those of the user's own file are the reference's.
"""

from collections.abc import Callable

from kernelwright.tools.types import Task


def values(task: Task, names: list[str]) -> dict[str, object]:
    """How arguments are taken apart and results put together, as Python."""
    call, returns = task.call, task.returns
    known = dict.fromkeys((*(call.classes if call else ()), *(returns.classes if returns else ())))
    by_name = {name: f"_CLASS_{number}" for number, name in enumerate(known)}
    classes = [(variable, *name.split(":", 1)) for name, variable in by_name.items()]
    result = "list(result)" if task.graph.output_structure == "list" else "result"
    result_leaves: list[str] = []
    if returns is not None:
        _, result_leaves = returns.taken_apart("result", by_name.__getitem__)
        one = "(result if isinstance(result, torch.Tensor) else result[0])"
        several = [f"result[{number}]" for number in range(len(task.outputs))]
        leaves = iter(several if len(several) > 1 else [one])
        result = returns.printed(leaves, by_name.__getitem__)
    conditions: list[str] = []
    flat: list[str] = []
    if call is not None:
        for number, item in enumerate((*call.positional, *call.named)):
            needed, leaves_there = item.taken_apart(f"given[{number}]", by_name.__getitem__)
            conditions, flat = [*conditions, *needed], [*flat, *leaves_there]
    return {
        "classes": classes,
        "returned": result,
        "result_leaves": result_leaves,
        "call": call,
        "call_conditions": conditions,
        "call_leaves": flat,
        "as_called": called(task, names, by_name.__getitem__),
    }


def called(task: Task, names: list[str], class_name: Callable[[str], str]) -> str:
    """The arguments of a call with inputs of these names, as they stand in its parentheses."""
    if task.call is None:
        return ", ".join(names)
    return task.call.printed(iter(names), class_name)


def class_imports(task: Task, home: str) -> list[str]:
    """Imports of the classes that arguments are of; those of the user's file come with it."""
    classes = task.call.classes if task.call else ()
    named = [name.split(":", 1) for name in classes]
    found = [
        f"from {module} import {path.split('.')[0]}"
        if module
        else f"from {home}.module import reference"
        for module, path in named
        if module != "builtins"
    ]
    return sorted({*found})


def class_shown(name: str) -> str:
    """How a class, named as in a packing, is written after `class_imports`."""
    module, _, path = name.partition(":")
    return path if module else f"reference.{path}"
