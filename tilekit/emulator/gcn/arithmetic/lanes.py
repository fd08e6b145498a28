"""Values that move between lanes; a register is [waves, 64]."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tilekit.emulator.gcn.arithmetic.bits import i8, u4
from tilekit.emulator.gcn.execution.scalars import settle_number

Array = npt.NDArray[Any]


def first_lane(register: Array, active: Array | None) -> Any:
    """The first active lane's value, lane 0's where none is active."""
    if active is None:
        return settle_number(register[:, :1].astype(i8))
    lane = active.argmax(axis=1)
    return settle_number(register[np.arange(len(register)), lane][:, None].astype(i8))


def lane_of(register: Array, lane: Any) -> Any:
    """One lane's value."""
    if type(lane) is int:
        lane &= 63
        return settle_number(register[:, lane : lane + 1].astype(i8))
    return settle_number(np.take_along_axis(register, lane & 63, 1).astype(i8))


def set_lane(register: Array, lane: Any, value: Any) -> None:
    """Set one lane."""
    value = np.asarray(value).astype(u4)
    if type(lane) is int:
        register[:, lane & 63 : (lane & 63) + 1] = value
    else:
        np.put_along_axis(register, lane & 63, np.broadcast_to(value, lane.shape), 1)


def swapped(a: Array, b: Array, rows: int) -> tuple[Array, Array]:
    """Exchange the odd rows of the first with the even rows of the second."""
    x, y = a.reshape(len(a), -1, 2, rows).copy(), b.reshape(len(b), -1, 2, rows).copy()
    kept = x[:, :, 1].copy()
    x[:, :, 1] = y[:, :, 0]
    y[:, :, 0] = kept
    return x.reshape(a.shape), y.reshape(b.shape)


def pull(address: Array, data: Array, active: Array | None) -> Array:
    """Each lane reads the lane that its address names, times four; 0 from a lane that is not active."""
    lane = ((address >> u4(2)) & u4(63)).astype(i8)
    if active is not None:
        data = np.where(active, data, u4(0))
    return np.take_along_axis(data, lane, 1)


def push(address: Array, data: Array, active: Array | None) -> Array:
    """Each active lane gives its value to the lane that its address names; the highest lane wins, 0 where none does."""
    result = np.zeros_like(data)
    lane = ((address >> u4(2)) & u4(63)).astype(i8)
    waves = np.broadcast_to(np.arange(len(data))[:, None], data.shape)
    if active is None:
        result[waves, lane] = data
    else:
        result[waves[active], lane[active]] = data[active]
    return result


def swizzled(data: Array, pattern: int, active: Array | None) -> Array:
    """``ds_swizzle``: groups of 32 lanes, or quads."""
    lane = np.arange(64)
    if pattern & 0x8000:
        source = (lane & ~3) + np.array([pattern >> (2 * (n & 3)) & 3 for n in lane])
    else:
        source = (lane & 32) | (((lane & 31) & (pattern & 31)) | (pattern >> 5 & 31)) ^ (pattern >> 10 & 31)
    if active is not None:
        data = np.where(active, data, u4(0))
    return data[:, source]
