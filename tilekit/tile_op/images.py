"""Which images an instruction takes: checked when an op is put together with the tiles it is to read."""

from __future__ import annotations

from collections.abc import Iterable

from tilekit.assembly.errors import TraceError
from tilekit.tiles.operand import ATOM_32B, OperandTile


def check_images(op: str, a: OperandTile, b: OperandTile, kinds: Iterable[Iterable[str]]) -> None:
    """Refuse tiles that the descriptors of a matrix instruction cannot describe.

    Parameters
    ----------
    op
        The instruction's name.
    a, b
        The tiles of a stage.
    kinds
        Its element types, those that may meet in one instruction together.

    Raises
    ------
    TraceError
        ``TK-TRACE-017``, naming the op and the tile, or both tiles.
    """
    for tile in (a, b):
        if not tile.swizzle_bytes and tile.major == "k" and tile.slices % 2:
            raise _misfit(
                op,
                tile,
                f"{tile.slices} slices of 16 bytes along K without a swizzle; an instruction reads two of them",
                f"slices={tile.slices + 1}, or swizzle_bytes=32",
            )
        if tile.major == "mn" and tile.bits == 32 and tile.swizzle != ATOM_32B:
            raise _misfit(
                op,
                tile,
                f"elements of 32 bits along M or N with swizzle_bytes={tile.swizzle_bytes}; they are read where 32 "
                "bytes stay together",
                "swizzle_bytes=128",
            )
    if not any({a.dtype.name, b.dtype.name} <= set(kind) for kind in kinds):
        legal = "; ".join(" with ".join(sorted(kind)) for kind in kinds)
        raise TraceError(
            f"{op} multiplies {legal}; tile {a.name!r} is of {a.dtype.name} and tile {b.name!r} of {b.dtype.name}",
            code="TK-TRACE-017",
        )
    if a.k != b.k:
        raise TraceError(
            f"{op} reads one k-block of both tiles, but {a.name!r} holds {a.k} elements of K ({a.slices} slices of "
            f"{a.slice_k}) and {b.name!r} {b.k} ({b.slices} of {b.slice_k}); nearest: "
            f"{_nearest_slices(a, b) or _nearest_slices(b, a) or 'the same swizzle for both'}",
            code="TK-TRACE-017",
        )


def _nearest_slices(tile: OperandTile, other: OperandTile) -> str | None:
    """How many slices give `tile` the other's k-block."""
    return None if other.k % tile.slice_k else f"slices={other.k // tile.slice_k} for {tile.name!r}"


def _misfit(op: str, tile: OperandTile, what: str, nearest: str) -> TraceError:
    return TraceError(f"{op} cannot read tile {tile.name!r}: it has {what}; nearest: {nearest}", code="TK-TRACE-017")
