"""The kernel that copies elements in another order, against NumPy's indexing."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from tilekit.arrays import view_of
from tilekit.kernels.rearrange import Dimension, rearrange
from tilekit.targets import SM_90A, SM_100A


@pytest.mark.parametrize("seed", range(12))
def test_elements_are_where_indices_say(seed: int) -> None:
    """Dimensions exchanged and turned round, counted short and filled up, from an element of each array on."""
    rng = Random(seed)
    dtype = (np.uint8, np.float16, np.float32)[seed % 3]
    extents = [rng.randint(1, 6) for _ in range(rng.randint(1, 5))]
    counts = [rng.randint(0 if rng.random() < 0.2 else 1, extent) for extent in extents]
    turned = [rng.random() < 0.4 for _ in extents]
    order = rng.sample(range(len(extents)), len(extents))
    source = np.arange(1, 1 + np.prod([max(1, count) for count in counts]) + 3).astype(dtype)
    shaped = source[3:].reshape([max(1, counts[axis]) for axis in order])
    strides = {axis: shaped.strides[place] // shaped.itemsize for place, axis in enumerate(order)}
    out = np.full(np.prod(extents) * 2 + 5, 99, dtype)
    outs = [int(np.prod(extents[i + 1 :])) * 2 for i in range(len(extents))]
    dimensions = [Dimension(extent, strides[i], outs[i], counts[i], turned[i]) for i, extent in enumerate(extents)]
    target = (SM_90A, SM_100A)[seed % 2]
    rearrange(view_of(source), out, dimensions, target=target, device=None, read_from=3, write_from=5)
    expected = np.full_like(out, 99)
    for index in np.ndindex(*extents):
        read = [count - 1 - at if back else at for at, count, back in zip(index, counts, turned, strict=True)]
        inside = all(at < count for at, count in zip(index, counts, strict=True))
        place = 5 + sum(at * pitch for at, pitch in zip(index, outs, strict=True))
        expected[place] = source[3 + sum(at * strides[i] for i, at in enumerate(read))] if inside else 0
    np.testing.assert_array_equal(out, expected)


def test_nothing_is_launched_for_nothing() -> None:
    """An extent of 0 leaves the array as it was."""
    out = np.full(4, 7.0, np.float32)
    rearrange(view_of(np.zeros(4, np.float32)), out, [Dimension(0, 1, 1)], target=SM_90A, device=None)
    assert (out == 7).all()


@pytest.mark.parametrize("channels", [8, 24, 20])
def test_whole_16_bytes_are_copied_at_once(channels: int) -> None:
    """Rows that begin at multiples of them and are as long, from a place of each array on; zeros behind a count."""
    source = np.arange(4 * 5 * channels).reshape(4, 5, channels).astype(np.float16)
    out = np.full((4, 14, channels), 7, np.float16)
    rows = [Dimension(3, 5 * channels, 14 * channels), Dimension(6, channels, 2 * channels, count=5)]
    last = Dimension(channels, 1, 1)
    rearrange(
        view_of(source), out, [*rows, last], target=SM_90A, device=None, read_from=5 * channels, write_from=channels
    )
    expected = np.full_like(out, 7)
    expected[:3, 1:11:2] = source[1:]
    expected[:3, 11] = 0
    np.testing.assert_array_equal(out, expected)
