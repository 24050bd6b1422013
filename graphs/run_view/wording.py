"""Numbers, names and verdicts in words: one way of saying each, everywhere.

Texts of users, models and compilers may hold control characters; `plain` makes them harmless
for a terminal.
"""

import re

from kernelwright.tools.types import Verdict
from kernelwright.tools.types.run import Status, TokenCounts

STATUS: dict[Status, str] = {
    "improved": "faster than every baseline",
    "faster_than_eager": "faster than eager PyTorch, but not than its best baseline",
    "no_improvement": "nothing was faster than PyTorch",
    "nothing_correct": "no candidate was correct",
    "stopped": "stopped before a verdict",
    "waiting": "waiting for somebody outside",
    "failed": "the search failed",
}

VERDICT: dict[Verdict, str] = {verdict: verdict.value.replace("_", " ") for verdict in Verdict}

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def plain(text: str, limit: int = 0) -> str:
    """Text without control characters and overrides of direction; cut at `limit` if given."""
    clean = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))
    return clean if not limit or len(clean) <= limit else clean[: limit - 1].rstrip() + "…"


def one_line(text: str, limit: int = 100) -> str:
    """Text on one line, cut at `limit`."""
    return plain(" ".join(text.split()), limit)


def quiet(text: str, limit: int = 100) -> str:
    """Somebody's text on one line, with nothing in it that Markdown would act upon."""
    line = re.sub(r"[*`\[\]<>#|\\$~]", "", one_line(plain(text), limit))
    # Within a name an underscore is one; at its edge it would begin an emphasis.
    return re.sub(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])", r"\\_", line)


def milliseconds(value: float | None) -> str:
    """A time with three or four significant digits, in the unit a person would choose."""
    if value is None:
        return "-"
    if value >= 1000:
        return f"{value / 1000:.3g} s"
    if value >= 1:
        return f"{value:.3f} ms" if value < 10 else f"{value:.4g} ms"
    return f"{value * 1000:.3g} µs"


def ratio(value: float | None) -> str:
    """A speed-up."""
    return "-" if value is None else f"{value:.2f}x"


def percent(value: float | None) -> str:
    """A share."""
    return "-" if value is None else f"{value:.0%}"


def seconds(value: float) -> str:
    """A duration as a person says it."""
    if value < 60:
        return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"
    if value < 3600:
        return f"{int(value // 60)} min {int(value % 60)} s"
    return f"{int(value // 3600)} h {int(value % 3600 // 60)} min"


def amount(value: float, unit: str) -> str:
    """A large count with a decimal prefix: `33.6 MB`, `1.2 GFLOP`."""
    for limit, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= limit:
            return f"{value / limit:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def count(number: int, noun: str) -> str:
    """A number of things: `1 round`, `2 rounds`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def waiting_words(ahead: int) -> str:
    """Why a search stands still: others' work comes first."""
    others = "another person's work is" if ahead == 1 else f"the work of {ahead} others is"
    return f"It waits for the device: {others} before it."


def shape(sizes: tuple[int, ...]) -> str:
    """A tensor's shape: `4096 x 1024`; `scalar` for none."""
    return " x ".join(str(size) for size in sizes) or "scalar"


def tokens(counts: TokenCounts) -> str:
    """Tokens of a model, in and out."""
    return f"{amount(counts.input, '').strip()} tokens in, {amount(counts.output, '').strip()} out"


def dollars(usd: float | None) -> str:
    """Money; empty where no price is known, so that nothing is claimed to be free."""
    if usd is None:
        return ""
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.4f}"
