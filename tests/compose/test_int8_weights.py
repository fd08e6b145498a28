"""The example with int8 weights: the same body on the emulator and on a GPU."""

from __future__ import annotations

import numpy as np
import pytest
from composed import BF16, Array, close, coded, example, integers, padded, picking, run

KERNEL = example("int8_weights.py", "int8_matmul")

ON = ("emulator", pytest.param("cuda", marks=pytest.mark.gpu))
SHAPES = [(128, 128, 64), (1, 8, 8), (129, 136, 72), (300, 264, 203), (77, 400, 1), (260, 24, 0)]


def product(a: Array, b: Array, scale: Array, *, on: str, seed: int) -> Array:
    """Run the kernel on operands of padded rows; behind each row of B there are more numbers."""
    d = np.zeros((len(a), len(b)), BF16)
    run(KERNEL, {"a": padded(a), "b": padded(b), "scale_b": padded(scale)}, {"d": d}, on=on, seed=seed)
    return d


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize("on", ON)
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_small_integers_are_exact(on: str, m: int, n: int, k: int) -> None:
    """Products of small integers, times powers of two, agree to the bit."""
    for seed in (n, 8):
        rng = np.random.default_rng(seed)
        a, b = integers(rng, 3, m, k), integers(rng, 7, n, k, dtype=np.int8)
        scale = 2.0 ** rng.integers(-3, 4, n).astype(np.float32) * rng.choice([-1, 1], n).astype(np.float32)
        exact = (a.astype(np.float32) @ b.astype(np.float32).T) * scale
        np.testing.assert_array_equal(product(a, b, scale, on=on, seed=seed), exact.astype(BF16))


@pytest.mark.parametrize("on", ON)
def test_no_coordinate_is_swapped(on: str) -> None:
    """Each of B's elements, of every int8 value, comes out in its place; and each column has its own scale."""
    rng = np.random.default_rng(4)
    m, n, k = 141, 272, 136
    a, b = picking(rng, m, k), coded(rng, n, k, values=np.arange(-128, 123, dtype=np.int8))
    chosen = np.argmax(a.astype(np.float32), 1)
    d = product(a, b, np.ones(n, np.float32), on=on, seed=5)
    np.testing.assert_array_equal(d.astype(np.float32), b[:, chosen].T.astype(np.float32))
    b[...] = 1
    scale = coded(rng, n, values=np.arange(0x3F80, 0x4780, dtype=np.uint16).view(BF16)).astype(np.float32)
    d = product(a, b, scale, on=on, seed=6)
    np.testing.assert_array_equal(d, np.broadcast_to(scale.astype(BF16), (m, n)))
    every = np.resize(np.arange(-128, 128, dtype=np.int8), (n, k))
    d = product(a, every, np.ones(n, np.float32), on=on, seed=7)
    np.testing.assert_array_equal(d.astype(np.float32), every[:, chosen].T.astype(np.float32))


@pytest.mark.parametrize("on", ON)
def test_random_numbers(on: str) -> None:
    """Signed numbers agree with float64 within the roundings of bf16 and of sums in f32."""
    for seed in (21, 22):
        rng = np.random.default_rng(seed)
        m, n, k = int(rng.integers(1, 400)), 8 * int(rng.integers(1, 50)), int(rng.integers(1, 300))
        a, b = rng.standard_normal((m, k)).astype(BF16), rng.integers(-128, 128, (n, k), np.int8)
        scale = (rng.standard_normal(n) / 100).astype(np.float32)
        wide = a.astype(np.float64)
        exact, magnitude = (
            (wide @ b.T.astype(np.float64)) * scale,
            (abs(wide) @ abs(b.T.astype(np.float64))) * abs(scale),
        )
        close(product(a, b, scale, on=on, seed=seed), exact, magnitude, 2.0**-8)


def test_it_is_inspected_like_any_kernel() -> None:
    """Text, machine code and resources are on the kernel; ptxas neither spills nor serialises wgmma."""
    assert ".visible .entry int8_matmul(" in KERNEL.ptx
    assert KERNEL.resources.spill_store_bytes == 0
    assert "HGMMA" in KERNEL.isa
    assert {array.name for array in KERNEL.traced.shared} >= {"inputs.a", "inputs.b", "inputs.b_raw"}
