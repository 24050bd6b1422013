"""Which candidate is meant: `best`, `best 2`, `v17` for the seventeenth written, or an id."""

import re

from kernelwright.graphs.run_view.story import Story
from kernelwright.tools.archive import Standing, Written


class Unnamed(ValueError):  # noqa: N818 - a sentence for the person, not a failure of ours
    """Nothing of that name, or several things; the message says which."""


def candidate_of(story: Story, name: str) -> Written:
    """The candidate of that name.

    Raises:
        Unnamed: When there is none, or several begin so.
    """
    wanted = name.strip().lower().lstrip("#")
    if wanted in {"", "best", "the best", "fastest", "leader", "winner"}:
        return _best(story)
    if place := re.fullmatch(r"best (\d{1,4})", wanted):
        return _placed(story, int(place[1]))
    if wanted in {"last", "latest", "newest"} and story.written:
        return story.written[-1]
    if number := re.fullmatch(r"v(?:ersion)?\s*(\d{1,6})", wanted):
        return _numbered(story, int(number[1]))
    found = [item for item in story.written if item.candidate.id.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        raise Unnamed(f"Several candidates begin with that: {_listed(found[:5])}.")
    if wanted.isdigit():
        return _numbered(story, int(wanted))
    raise Unnamed(f"There is no such candidate. {_known(story)}")


def standing_of(story: Story, name: Written) -> Standing | None:
    """What the judge said of a candidate; None while it has said nothing."""
    found = story.view.candidates.get(name.candidate.id)
    return found.standing if found else None


def label(item: Written | Standing) -> str:
    """A candidate's number and id, as it is spoken of."""
    return f"v{item.number} ({item.candidate.id})"


def _best(story: Story) -> Written:
    if story.best is not None:
        for item in story.written:
            if item.candidate.id == story.best.candidate.id:
                return item
    raise Unnamed("No candidate is correct yet, so there is no best one.")


def _placed(story: Story, place: int) -> Written:
    """The candidate in that place of the leaderboard, from 1."""
    leaders = story.leaders
    if 0 < place <= len(leaders):
        return next(w for w in story.written if w.candidate.id == leaders[place - 1].candidate.id)
    if not leaders:
        return _best(story)
    some = "Only one candidate is" if len(leaders) == 1 else f"Only {len(leaders)} candidates are"
    raise Unnamed(f"{some} correct so far, so nobody is in place {place}.")


def _numbered(story: Story, number: int) -> Written:
    for item in story.written:
        if item.number == number:
            return item
    raise Unnamed(f"There is no v{number}. {_known(story)}")


def _known(story: Story) -> str:
    if not story.written:
        return "None was written yet."
    return f"There are v1 to v{story.written[-1].number}."


def _listed(items: list[Written]) -> str:
    return ", ".join(label(item) for item in items)
