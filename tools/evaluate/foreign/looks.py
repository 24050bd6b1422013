"""What the judge takes of an answer while its clock runs: enough to know that it was there.

A small answer is copied whole. Copying a large one costs as much as many a kernel, so of a large
one the judge takes places that it drew by chance for this round and told nobody, and the whole
after the clock. What was seen under the clock must stand in the whole: of an answer whose
hundredth part comes late, 4096 places miss that once in 10^17 rounds. A part so small that it is
missed saves no time.
"""

import os

import torch
from torch import Tensor

from kernelwright.tools.evaluate.verify.bits import same_bits

PLACES = 4096
WHOLE = 16 * PLACES  # elements up to which a copy costs no more than a look


class Look:
    """One output's place, and what was seen there.

    Args:
        output: where a guest puts it; contiguous.
    """

    def __init__(self, output: Tensor) -> None:
        self._flat = output.reshape(-1)
        self._places: Tensor | None = None
        size = output.numel() if output.numel() <= WHOLE else PLACES
        self._seen = torch.empty_like(self._flat[:size])

    def aim(self, places: Tensor | None) -> None:
        """Where to look next, as indices of elements; None for an output that is taken whole."""
        self._places = places

    def take(self) -> None:
        """Look; this is what the clock waits for."""
        if self._places is None:
            self._seen.copy_(self._flat)
        else:
            torch.index_select(self._flat, 0, self._places, out=self._seen)

    def stands_in(self, taken: Tensor) -> bool:
        """Whether the whole, copied later, says what was seen."""
        flat = taken.reshape(-1)
        return same_bits(flat if self._places is None else flat[self._places], self._seen)


class Chance:
    """Draws places that nobody can foresee.

    Args:
        device: where the outputs lie.
    """

    def __init__(self, device: str) -> None:
        seed = int.from_bytes(os.urandom(7), "little")
        self._device, self._generator = device, torch.Generator(device).manual_seed(seed)

    def places(self, elements: int) -> Tensor | None:
        """Indices of elements of an output of that size; None for one that is taken whole."""
        if elements <= WHOLE:
            return None
        return torch.randint(elements, (PLACES,), generator=self._generator, device=self._device)
