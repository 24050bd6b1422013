"""Seeds that follow from what they are for, so that a run can be repeated."""

from hashlib import sha256


def fresh_seed(*parts: object) -> int:
    """A seed that follows from what it is for, and from nothing else."""
    text = "|".join(str(part) for part in parts)
    return int.from_bytes(sha256(text.encode()).digest()[:4], "big") & 0x7FFF_FFFF
