"""Kernels for several choices of sizes as one candidate, whose plan chooses between them.

Each variant has kernels of its own, renamed so that they can stand in one file; that is compiled
once. The plan is an ordinary one, with a branch for each variant, so that all that holds for a
candidate holds for it: it is validated, judged, exported and called as one operator.
"""

import ast
import keyword
import re
from collections.abc import Mapping, Sequence

from kernelwright.tools.candidates.plan.vocabulary import RESERVED
from kernelwright.tools.codegen.library.any_size import Text
from kernelwright.tools.types import Value

_INCLUDE = re.compile(r"^#include .*\n", re.MULTILINE)
_WORD = re.compile(r"\b[A-Za-z_]\w*\b")
_DECLARED = re.compile(r"^\s*// tune: (\w+)", re.MULTILINE)
_EXPORTED = re.compile(r"\blaunch\(\s*['\"](\w+)['\"]")


class Variant(Value):
    """A text, and the sizes that it is for: pairs of a size's name and its value; () for any."""

    sizes: tuple[tuple[str, int], ...]
    text: Text


def size_name(wanted: str, texts: Sequence[Text], others: Sequence[str] = ()) -> str:
    """A name for a size that none of the texts uses for something else."""
    used = {word for text in texts for word in _WORD.findall(text.kernel + text.plan)}
    name = re.sub(r"\W+", "_", wanted).strip("_")
    while name in used or name in RESERVED or name in others or keyword.iskeyword(name):
        name += "_size"
    return name


def together(variants: Sequence[Variant], places: Mapping[str, tuple[int, int]]) -> Text | None:
    """The variants in one text; None where they cannot stand together.

    Args:
        variants: those for certain sizes first; the last one takes what the others do not.
        places: where the plan reads each size: the input's number and its dimension.
    """
    if len(variants) == 1:
        return variants[0].text
    texts = [_renamed(one.text, f"s{number}") for number, one in enumerate(variants)]
    trees = [ast.parse(text.plan) for text in texts]
    functions = [[n for n in tree.body if isinstance(n, ast.FunctionDef)] for tree in trees]
    if any([f.name for f in found] != ["forward"] for found in functions):
        return None  # what `prepare` makes belongs to one plan
    forwards = [found[0] for found in functions]
    parameters = [argument.arg for argument in forwards[0].args.args]
    if any([a.arg for a in one.args.args] != parameters for one in forwards):
        return None
    body = [
        ast.parse(f"{name} = {parameters[number]}.shape[{at}]").body[0]
        for name, (number, at) in places.items()
    ]
    for one, forward in zip(variants[:-1], forwards, strict=False):
        condition = " and ".join(f"{name} == {size}" for name, size in one.sizes)
        body.append(ast.If(ast.parse(condition, mode="eval").body, forward.body, []))
    forward = forwards[-1]
    forward.body = [*body, *forward.body]
    plan = ast.unparse(ast.fix_missing_locations(ast.Module([forward], [])))
    return Text(kernel=_in_one_file([text.kernel for text in texts]), plan=f"{plan}\n")


def _in_one_file(kernels: Sequence[str]) -> str:
    """The kernels, every include at the top: tunables become macros behind the last one."""
    includes = dict.fromkeys(line for text in kernels for line in _INCLUDE.findall(text))
    bodies = (_INCLUDE.sub("", text).strip() for text in kernels)
    return "\n\n".join(["".join(includes).rstrip(), *bodies]) + "\n"


def _renamed(text: Text, suffix: str) -> Text:
    """The text with another beginning for the names of each of its loops, as in `L0s1_rows`."""
    names = {*_EXPORTED.findall(text.plan), *_DECLARED.findall(text.kernel)}
    starts = "|".join(sorted({re.escape(name.partition("_")[0]) for name in names}))
    if not starts:
        return text
    begins = re.compile(rf"\b({starts})(?=_|\b)")
    return Text(
        kernel=begins.sub(rf"\g<1>{suffix}", text.kernel),
        plan=begins.sub(rf"\g<1>{suffix}", text.plan),
    )
