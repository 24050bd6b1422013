"""Settings of a kernel's tunables: completing them, checking them, listing those that are valid."""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod

from kernelwright.tools.candidates.arithmetic import ContractError, Expression
from kernelwright.tools.candidates.kernel_source import KernelSource
from kernelwright.tools.types import Setting

# Backtracking ends here, so that contradictory requirements over many tunables are an error
# and not a hang.
_MAX_STEPS = 30_000


def complete_settings(source: KernelSource, given: Iterable[Setting] = ()) -> tuple[Setting, ...]:
    """A value for every tunable, in the order of their declaration.

    What is not given takes the first declared values, in order, that satisfy the requirements.

    Raises:
        ContractError: When a given name or value is not declared, or no completion is valid.
    """
    fixed: dict[str, int] = {}
    for setting in given:
        tunable = source.tunable(setting.name)
        if tunable is None:
            raise ContractError(0, "settings", f"{setting.name} is not a declared tunable")
        if setting.value not in tunable.values:
            words = f"{setting.name} = {setting.value} is not among {tunable.values}"
            raise ContractError(tunable.line, "settings", words)
        fixed[setting.name] = setting.value
    found = next(_assignments(source, fixed), None)
    if found is None:
        shown = ", ".join(f"{name} = {value}" for name, value in fixed.items()) or "any values"
        words = f"no values of the tunables satisfy every requirement with {shown}"
        raise ContractError(source.requires[0].line if source.requires else 0, "require", words)
    return found


def valid_settings(source: KernelSource, limit: int = 4096) -> list[tuple[Setting, ...]]:
    """Complete settings that satisfy every requirement, the default first.

    All of them in the order of declaration when the tunables have at most `limit` combinations.
    Otherwise the default, then what differs from it in one tunable, then a fixed random
    sample, `limit` in total at most.
    """
    if prod(len(tunable.values) for tunable in source.tunables) <= limit:
        return list(_assignments(source, {}))
    default = next(_assignments(source, {}), None)
    if default is None:
        return []
    found = dict.fromkeys((default, *_neighbours(source, default)))
    # Seeded, so that a resumed search sees the same list.
    draw = random.Random(0)
    rules = _rules(source)
    for _ in range(4 * limit):
        if len(found) >= limit:
            break
        values = {item.name: draw.choice(item.values) for item in source.tunables}
        if all(rule.holds(values) for rule in rules):
            found[_settings(source, values)] = None
    return list(found)[:limit]


def _neighbours(source: KernelSource, default: Sequence[Setting]) -> Iterator[tuple[Setting, ...]]:
    rules = _rules(source)
    start = {setting.name: setting.value for setting in default}
    for tunable in source.tunables:
        for value in tunable.values:
            values = start | {tunable.name: value}
            if value != start[tunable.name] and all(rule.holds(values) for rule in rules):
                yield _settings(source, values)


def _assignments(source: KernelSource, fixed: Mapping[str, int]) -> Iterator[tuple[Setting, ...]]:
    """Valid assignments in the order of declaration; a rule prunes once its names are bound."""
    choices = [
        (item.name, (fixed[item.name],) if item.name in fixed else item.values)
        for item in source.tunables
    ]
    order = {name: depth for depth, (name, _) in enumerate(choices, start=1)}
    due: dict[int, list[Expression]] = {}
    for rule in _rules(source):
        due.setdefault(max((order[name] for name in rule.names), default=0), []).append(rule)
    if not all(rule.holds({}) for rule in due.get(0, [])):
        return
    steps = 0
    waiting: list[tuple[tuple[str, int], ...]] = [()]
    while waiting and steps < _MAX_STEPS:
        steps += 1
        bound = waiting.pop()
        values = dict(bound)
        if not all(rule.holds(values) for rule in due.get(len(bound), []) if bound):
            continue
        if len(bound) == len(choices):
            yield _settings(source, values)
            continue
        name, options = choices[len(bound)]
        waiting.extend((*bound, (name, option)) for option in reversed(options))


def _rules(source: KernelSource) -> list[Expression]:
    names = frozenset(tunable.name for tunable in source.tunables)
    return [Expression(item.text, names, item.line) for item in source.requires]


def _settings(source: KernelSource, values: Mapping[str, int]) -> tuple[Setting, ...]:
    return tuple(Setting(name=item.name, value=values[item.name]) for item in source.tunables)
