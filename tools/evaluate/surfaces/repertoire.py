"""A repertoire that writes nothing but what was measured, with today's predictions."""

from collections.abc import Mapping
from functools import cached_property

from kernelwright.tools.codegen.library.kernel_library import (
    FORM,
    LibraryDraft,
    Option,
    Repertoire,
    in_form,
)
from kernelwright.tools.evaluate.surfaces.record import Space
from kernelwright.tools.types import LanguageName


class RecordedRepertoire:
    """The options of a loop that a recording knows.

    Args:
        space: What was recorded.
        today: What the loop's repertoire is now: options and predicted times are its. Drafts are
            the recorded ones, so that a kernel which has changed since is still found.
    """

    def __init__(self, space: Space, today: Repertoire) -> None:
        self._today = today
        self._space = space

    @property
    def language(self) -> LanguageName:
        """The recorded drafts'."""
        return self._space.language

    @property
    def fixed_ms(self) -> float:
        """As it is predicted today."""
        return self._today.fixed_ms

    def options(self) -> tuple[Option, ...]:
        """Today's options that the recording knows too."""
        return self._options

    def draft(self, choices: Mapping[str, str]) -> LibraryDraft:
        """The draft as it was measured; ValueError for choices that were not recorded."""
        # Choices for loops of other forms do not matter, as in a repertoire that writes.
        chosen = in_form(self._options, choices)
        draft = self._drafts.get(frozenset(chosen.items()))
        if draft is None:
            words = ", ".join(f"{loop}={name}" for loop, name in sorted(choices.items()))
            raise ValueError(f"{words} was not recorded")
        return draft

    @cached_property
    def _options(self) -> tuple[Option, ...]:
        known = {way for option in self._space.options for way in option.change.items()}
        found = tuple(one for one in self._today.options() if one.change.items() <= known)
        if any(option.loop == FORM for option in found):
            return found
        # When it was recorded the task had one form, whatever it has today.
        return tuple(one.model_copy(update={"form": "", "unlike_ms": 0.0}) for one in found)

    @cached_property
    def _drafts(self) -> dict[frozenset[tuple[str, str]], LibraryDraft]:
        return {frozenset(way.choices.items()): way.draft for way in self._space.ways}
