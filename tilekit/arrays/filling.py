"""Filling an array with a number: what a sum of nothing is."""

from __future__ import annotations

from math import prod

import numpy as np

from tilekit.arrays.view import ArrayView, host_array
from tilekit.runtime import driver, hip


def fill(view: ArrayView, value: float, stream: int) -> None:
    """Write an f32 to every element of an array of f32 that lie behind each other, in the order of `stream`."""
    count = prod(view.shape)
    if view.device == "cpu":
        host_array(view)[...] = value
    elif count:
        bits, ordinal = np.float32(value).view(np.uint32), int(view.device[1])
        if view.device[0] == "hip":
            with hip.activated(ordinal):
                hip.call("hipMemsetD32Async", view.address, int(bits.view(np.int32)), count, stream)
        else:
            with driver.activated(driver.context_for(ordinal)):
                driver.call("cuMemsetD32Async", view.address, int(bits), count, stream)
