"""The example with a second matrix and row sums: the same body on the emulator and on a GPU."""

from __future__ import annotations

import numpy as np
import pytest
from composed import BF16, Array, close, coded, example, integers, padded, picking, run

KERNEL = example("gated_row_sums.py", "gated_matmul")

ON = ("emulator", pytest.param("cuda", marks=pytest.mark.gpu))
SHAPES = [(128, 128, 64), (1, 8, 8), (129, 136, 72), (300, 264, 203), (77, 400, 1), (260, 24, 0)]
"""Whole tiles; less than one; ragged everywhere; K of no whole piece; one product; none."""
BF16_VALUES = np.arange(0x3F80, 0x4780, dtype=np.uint16).view(BF16)
"""2048 neighbouring bf16."""


def gated(a: Array, b: Array, gate: Array, *, on: str, seed: int) -> tuple[Array, Array]:
    """Run the kernel on operands of padded rows."""
    d, sums = np.zeros(gate.shape, BF16), np.zeros(len(gate), np.float32)
    inputs = {"a": padded(a), "b": padded(b), "gate": padded(gate)}
    run(KERNEL, inputs, {"d": d, "sums": sums}, on=on, seed=seed)
    return d, sums


@pytest.mark.parametrize("on", ON)
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_small_integers_are_exact(on: str, m: int, n: int, k: int) -> None:
    """Products, gates and sums of small integers agree to the bit."""
    for seed in (m, 7):
        rng = np.random.default_rng(seed)
        a, b, gate = integers(rng, 3, m, k), integers(rng, 3, n, k), integers(rng, 3, m, n)
        d, sums = gated(a, b, gate, on=on, seed=seed)
        exact = (a.astype(np.float32) @ b.astype(np.float32).T) * gate.astype(np.float32)
        np.testing.assert_array_equal(d, exact.astype(BF16))
        np.testing.assert_array_equal(sums, exact.sum(1))


@pytest.mark.parametrize("on", ON)
def test_no_coordinate_is_swapped(on: str) -> None:
    """Each element of B, and then of the gate, comes out in its place; each row's sum is its own."""
    rng = np.random.default_rng(4)
    m, n, k = 141, 272, 136
    a, b, ones = picking(rng, m, k), coded(rng, n, k, values=BF16_VALUES), np.ones((m, n), BF16)
    d, sums = gated(a, b, ones, on=on, seed=5)
    exact = b[:, np.argmax(a.astype(np.float32), 1)].T
    np.testing.assert_array_equal(d, exact)
    close(sums, exact.astype(np.float64).sum(1), exact.astype(np.float64).sum(1), 0)
    first = np.zeros((m, k), BF16)
    first[:, 0] = 1
    gate = coded(rng, m, n, values=BF16_VALUES)
    d, _ = gated(first, np.ones((n, k), BF16), gate, on=on, seed=6)
    np.testing.assert_array_equal(d, gate)


@pytest.mark.parametrize("on", ON)
def test_random_numbers(on: str) -> None:
    """Signed numbers agree with float64 within the roundings of bf16 and of sums in f32."""
    for seed in (11, 12):
        rng = np.random.default_rng(seed)
        m, n, k = int(rng.integers(1, 400)), 8 * int(rng.integers(1, 50)), int(rng.integers(1, 300))
        a, b, gate = (rng.standard_normal(shape).astype(BF16) for shape in ((m, k), (n, k), (m, n)))
        d, sums = gated(a, b, gate, on=on, seed=seed)
        wide_a, wide_b, wide_gate = (array.astype(np.float64) for array in (a, b, gate))
        exact, magnitude = (wide_a @ wide_b.T) * wide_gate, (abs(wide_a) @ abs(wide_b).T) * abs(wide_gate)
        close(d, exact, magnitude, 2.0**-8)
        close(sums, exact.sum(1), magnitude.sum(1), 0)


def test_it_is_inspected_like_any_kernel() -> None:
    """Text, machine code and resources are on the kernel; ptxas neither spills nor serialises wgmma."""
    assert ".visible .entry gated_matmul(" in KERNEL.ptx
    assert KERNEL.resources.spill_store_bytes == 0
    assert "HGMMA" in KERNEL.isa
    assert {role.name for role in KERNEL.traced.roles} == {"load", "mma", "epilogue_load"}
    assert {array.name for array in KERNEL.traced.shared} >= {"inputs.a", "inputs.b", "gate.subtile", "output.subtile"}
