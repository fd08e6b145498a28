"""The scale of a whole tensor, which NVFP4 has beside those of blocks."""

from __future__ import annotations

from tilekit.errors import ArgumentError

LEAST, MOST = 2.0**-126, (2 - 2.0**-23) * 2.0**124
"""The inverse of a smaller one is beyond the largest of f32, and six times a larger one nearly so."""


def require_whole(name: str, scale: float | None, *, code: str, beside: str = "") -> None:
    """Raise `ArgumentError` for a scale of the whole that is none; what else is legal stands `beside`."""
    if scale is None or LEAST <= scale <= MOST:
        return
    legal = f"a number above 0 ({LEAST:.3g} to {MOST:.3g}){beside}"
    nearest = min(max(scale, LEAST), MOST) if scale > 0 else 1.0
    raise ArgumentError.of(name, scale, legal=legal, nearest=nearest, code=code)
