"""Which bytes a store changes, asked only where two stores may race."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["StoreChanges"]

Array = npt.NDArray[Any]


class StoreChanges:
    """A store of several waves at once, which counts as one wave after the other.

    Parameters
    ----------
    data
        Memory, before the store.
    places
        Where each lane stores, int64[waves, 64].
    values, size
        uint32[registers, waves, 64], and bytes a lane.
    lanes
        The lanes that store; None for all.
    base
        What to add to a place to have its address; or one number a wave.
    """

    def __init__(self, data: Array, places: Array, values: Array, size: int, lanes: Array | None, base: Any) -> None:
        self.data = data
        self.places = np.broadcast_to(places, values.shape[1:])
        self.values = values
        self.size = size
        self.lanes = lanes
        self.base = np.broadcast_to(base, (values.shape[1], 1))

    def of(self, wave: int) -> Callable[[], Array]:
        """Return what finds the addresses of the bytes that one wave changes."""
        return lambda: self._changed(wave)

    def _bytes(self, wave: int) -> tuple[Array, Array]:
        """The places of all bytes that a wave writes, and the bytes."""
        chosen = slice(None) if self.lanes is None else self.lanes[wave]
        words = np.ascontiguousarray(self.values[:, wave, chosen].T).view(np.uint8)
        places = self.places[wave][chosen][:, None] + np.arange(self.size)
        return places.ravel(), words[:, : self.size].ravel()

    def _changed(self, wave: int) -> Any:
        places, new = self._bytes(wave)
        if not places.size:
            return places
        low, high = int(places.min()), int(places.max()) + 1
        before = self.data[low:high].copy()
        for other in range(wave):
            others, written = self._bytes(other)
            inside = (others >= low) & (others < high)
            before[others[inside] - low] = written[inside]
        return places[before[places - low] != new] + int(self.base[wave, 0])
