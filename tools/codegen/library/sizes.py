"""Writes a task's kernels for all sizes of its dimensions as one candidate.

For a range the kernels are written at a few telling sizes and become one text; single sizes have
texts of their own. Where the text that was searched and measured at the example's sizes is not
one of them, it stays for exactly these.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import combinations as combinations_of

from kernelwright.profiles.load import Hardware
from kernelwright.tools.candidates import ContractError
from kernelwright.tools.candidates.kernel_source import complete_settings
from kernelwright.tools.codegen.library.any_size import Text, any_size, same, settled
from kernelwright.tools.codegen.library.kernel_library import (
    Option,
    PlaybookRepertoire,
    repertoire_for,
)
from kernelwright.tools.codegen.library.variants import Variant, size_name, together
from kernelwright.tools.languages import new_candidate, parse_kernel
from kernelwright.tools.tasks.inputs.shapes import combinations, ranged
from kernelwright.tools.types import Candidate, Setting, Task

Sizes = tuple[int, ...]


def _threes(known: Mapping[int, Text]) -> Iterator[dict[int, Text]]:
    """Three of the texts, those for the largest sizes first.

    An emitter may write otherwise for what is small, and from where on is not known here.
    """
    largest = sorted(known, reverse=True)
    for sizes in sorted(combinations_of(largest, 3), key=sum, reverse=True):
        yield {size: known[size] for size in sorted(sizes)}


class AllSizes:
    """The writer of one task.

    Args:
        tasks: traced, by the sizes of the dimensions; the example's among them.
        telling: the sizes at which kernels are written.
        winner: the candidate whose settings are kept, and whose text stays for the example.
        hardware: the device.
    """

    def __init__(
        self,
        tasks: Mapping[Sizes, Task],
        telling: Sequence[Sizes],
        winner: Candidate,
        hardware: Hardware,
    ) -> None:
        self._tasks, self._telling = tasks, telling
        self._winner, self._hardware = winner, hardware
        self._task = next(task for task in tasks.values() if task.dimensions)
        self._dimensions = self._task.dimensions
        self._example = tuple(item.example for item in self._dimensions)
        self._ranged = ranged(self._dimensions)
        self._known: dict[Sizes, PlaybookRepertoire] = {}
        self._own = settled(Text(kernel=winner.kernel, plan=winner.plan), winner.settings)

    @property
    def options(self) -> tuple[Option, ...]:
        """Every strategy of every loop at the example's sizes."""
        return self._repertoire(self._example).options()

    def written(self, choices: Mapping[str, str], note: str = "") -> tuple[Candidate, int] | None:
        """One candidate with these strategies, and how many sets of kernels are in it.

        Returns:
            None where it cannot be written: a size decides more than numbers in the text.

        Raises:
            ValueError: the strategies do not fit at one of the sizes.
            ContractError: what was written breaks the contract.
        """
        names = self._names(choices)
        variants: list[Variant] = []
        for points in combinations(self._dimensions):
            text, serves_own = self._variant(points, choices, names)
            if text is None:
                return None
            is_own = all(self._example[number] == size for number, size in points.items())
            if is_own and not serves_own:
                sizes = tuple(zip(names, self._example, strict=True))
                variants.insert(0, Variant(sizes=sizes, text=self._own))
            if not (is_own and self._ranged is None and not serves_own):
                told = tuple((names[number], size) for number, size in points.items())
                variants.append(Variant(sizes=told, text=text))
        places = {n: item.places[0] for n, item in zip(names, self._dimensions, strict=True)}
        whole = together(variants, places)
        return None if whole is None else (self._candidate(whole, note), len(variants))

    def _candidate(self, text: Text, note: str) -> Candidate:
        winner = self._winner
        return new_candidate(
            winner.language,
            text.kernel,
            text.plan,
            idea=winner.idea,
            parents=(winner.id,),
            origin=winner.origin,
            strategies=winner.strategies,
            note=note,
        )

    def _variant(
        self, points: Mapping[int, int], choices: Mapping[str, str], names: Sequence[str]
    ) -> tuple[Text | None, bool]:
        """The text at these single sizes, and whether the winner's is one of it."""
        sizes = [points.get(number, size) for number, size in enumerate(self._example)]
        if self._ranged is None:
            text = self._text(tuple(sizes), choices, self._settings(tuple(sizes), choices))
            return text, same(text, self._own)
        like = [s for s in self._telling if all(s[n] == size for n, size in points.items())]
        settings = self._settings(like[-1], choices)
        known = {}
        for telling in like:
            # A strategy may not fit what is small; three sizes are enough.
            with suppress(ValueError):
                known[telling[self._ranged]] = self._text(telling, choices, settings)
        name, place = names[self._ranged], self._dimensions[self._ranged].places[0]
        language = self._winner.language
        for texts in _threes(known):
            if (found := any_size(texts, name, place, language)) is not None:
                # Where the winner's own text lies on the same lines, it is one of these.
                whole = {**texts, self._example[self._ranged]: self._own}
                of_all = any_size(whole, name, place, language)
                return found, of_all is not None and same(of_all, found)
        return None, False

    def _text(self, sizes: Sizes, choices: Mapping[str, str], settings: Sequence[Setting]) -> Text:
        draft = self._repertoire(sizes).draft(choices)
        return settled(Text(kernel=draft.kernel, plan=draft.plan), settings)

    def _settings(self, sizes: Sizes, choices: Mapping[str, str]) -> tuple[Setting, ...]:
        """The winner's settings; at other single sizes than its own as far as they are possible.

        Within a range they are its own: what is declared may depend on the size, and one text for
        all sizes has one value.
        """
        kernel = self._repertoire(sizes).draft(choices).kernel
        source = parse_kernel(kernel, self._winner.language)
        declared = {item.name: item.values for item in source.tunables}
        own = {item.name for item in self._winner.settings}
        fixed = (n for n, item in enumerate(self._dimensions) if item.points)
        if own >= set(declared) and all(sizes[n] == self._example[n] for n in fixed):
            return self._winner.settings
        kept = [s for s in self._winner.settings if s.value in declared.get(s.name, ())]
        try:
            return complete_settings(source, kept)
        except ContractError:
            return complete_settings(source)

    def _repertoire(self, sizes: Sizes) -> PlaybookRepertoire:
        if sizes not in self._known:
            self._known[sizes] = repertoire_for(self._tasks[sizes], self._hardware, prepares=False)
        return self._known[sizes]

    def _names(self, choices: Mapping[str, str]) -> tuple[str, ...]:
        """What the sizes are called in kernels and plan."""
        draft = self._repertoire(self._telling[-1]).draft(choices)
        texts = [self._own, Text(kernel=draft.kernel, plan=draft.plan)]
        names: list[str] = []
        for item in self._dimensions:
            names.append(size_name(item.name, texts, names))
        return tuple(names)
