"""Random ids of 128 bits, without the system call that `secrets` makes for each."""

from __future__ import annotations

# Seeded by the system when it is imported, and again in a forked child. Not for what must not be guessed.
from random import randbytes


def new_id() -> str:
    """32 hexadecimal digits that nobody else will draw."""
    return randbytes(16).hex()
