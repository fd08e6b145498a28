"""Which lane of a warp touched which byte: where lanes of one warp race with each other.

Lanes of a warp are ordered by `bar.warp.sync`, by the barriers of the CTA and the cluster, and by an mbarrier on which
the warp arrives and for which it waits (PTX ISA, `bar.warp.sync`; the CUDA guide says of shuffles, votes and the like
that they order no memory). Running in step does not order them either. That a matrix instruction does, which needs all
lanes' registers, is what CUTLASS and DeepGEMM count on when one lane gives back a stage which all have read.

The shadow's records name what their bytes were touched by, as :data:`Lanes`; only when the same warp touches bytes
again before its lanes have met are the lanes compared.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

__all__ = ["COLLECTIVE", "Lanes", "conflicts", "have_met", "lanes_of", "one_of_equal", "touched", "uniform"]

Lanes = tuple[int, bytes | None, int, bytes | None]
"""An access of a warp: the first address; the lanes' offsets from it as the bytes of an int64 array, empty when all
touch the same bytes, None when each touches the bytes behind those of the lane before; bytes a lane; and the active
lanes as a bool array's bytes, None for all 32, `COLLECTIVE` for rows that the warp reads or writes as one."""

COLLECTIVE = b"warp"
_ANY_LANE_READS, _ANY_LANE_WRITES = 1 << 32, 1 << 33
"""Stand for the lane that a row's byte goes to, or comes from."""


def uniform(address: int, size: int, active: bytes | None) -> Lanes:
    """Every active lane touches the same bytes."""
    return address, b"", size, active


def lanes_of(active: bytes | None) -> int:
    """The active lanes as a bit mask."""
    if active is None or active == COLLECTIVE:
        return 0xFFFFFFFF
    return int.from_bytes(np.packbits(np.frombuffer(active, np.bool_), bitorder="little").tobytes(), "little")


@lru_cache(8192)
def one_of_equal(relative: bytes) -> bytes:
    """Return the same object for equal bytes, which many records hold."""
    return relative


def have_met(met: list[tuple[int, int]], first: int, second: int, epoch: int) -> bool:
    """Whether two lanes (-1 for one that is not known) have met since an access of that epoch.

    ``met`` lists the epochs that meetings began, and the lanes that came.
    """
    if first < 0 or second < 0:
        return False
    return any(then > epoch and lanes >> first & lanes >> second & 1 for then, lanes in met)


def conflicts(earlier: Lanes, later: Lanes, reads: bool, writes: bool) -> tuple[tuple[int, int, int], ...]:
    """Where two accesses of one warp, of which one writes, are by different lanes.

    Parameters
    ----------
    reads
        Whether the earlier access reads.
    writes
        Whether the later access writes.

    Returns
    -------
    tuple of (address, lane, lane)
        Each byte that some lane touched first and another one later, with such a pair of lanes; -1 for a lane that is
        not known.
    """
    if earlier == later:
        return ()
    found = _conflicts(earlier[1:], later[0] - earlier[0], later[1:], reads, writes)
    base = earlier[0]
    return tuple((base + offset, first, second) for offset, first, second in found)


def touched(lanes: Lanes) -> list[tuple[int, int]]:
    """Each byte of an access with the lanes that touched it, as a bit mask."""
    base = lanes[0]
    return [(base + offset, owners) for offset, owners in _owners(*lanes[1:], False).items()]


@lru_cache(4096)
def _conflicts(
    earlier: tuple[bytes | None, int, bytes | None],
    delta: int,
    later: tuple[bytes | None, int, bytes | None],
    reads: bool,
    writes: bool,
) -> tuple[tuple[int, int, int], ...]:
    before, after = _owners(*earlier, reads), _owners(*later, not writes)
    found = []
    for offset, second in after.items():
        byte = offset + delta
        first = before.get(byte)
        # Lanes that all stored the same, one of which reads it again, or all of which store again, do not race.
        if first is None or first == second or (not writes and second & ~first == 0):
            continue
        # One lane of each, and not the same.
        one = first & ~second or first
        other = second & ~one or second & ~(first & -first)
        found.append((byte, _number(one), _number(other or second)))
    return tuple(found)


@lru_cache(4096)
def _owners(relative: bytes | None, width: int, active: bytes | None, reads: bool) -> dict[int, int]:
    """The lanes that touch each byte, by its offset from the first address."""
    if active == COLLECTIVE:
        assert relative is not None
        bits = [_ANY_LANE_READS if reads else _ANY_LANE_WRITES] * (len(relative) // 8)
    else:
        members = lanes_of(active)
        bits = [1 << lane for lane in range(32) if members >> lane & 1]
    if relative is None:
        offsets = [index * width for index in range(len(bits))]
    elif not relative:
        offsets, bits = [0], [sum(bits)]
    else:
        offsets = np.frombuffer(relative, np.int64).tolist()
    owners: dict[int, int] = {}
    for offset, bit in zip(offsets, bits, strict=True):
        for byte in range(offset, offset + width):
            owners[byte] = owners.get(byte, 0) | bit
    return owners


def _number(bits: int) -> int:
    """The lowest lane of a mask; -1 for an unknown one."""
    lane = (bits & -bits).bit_length() - 1
    return lane if lane < 32 else -1
