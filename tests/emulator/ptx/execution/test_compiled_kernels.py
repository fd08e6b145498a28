"""Kernels compiled by nvcc (ptx/basic.cu, for two targets) against NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tilekit.emulator import Device, Module

Array = np.ndarray[Any, Any]
MASK64 = (1 << 64) - 1
random = np.random.default_rng(1)


@pytest.fixture(scope="module", params=["sm_80", "sm_90a"])
def module(request: pytest.FixtureRequest) -> Module:
    """The compiled module on a device of its target."""
    text = (Path(__file__).parent / "ptx" / f"basic_{request.param}.ptx").read_text()
    return Device(request.param).load(text)


def test_axpy(module: Module) -> None:
    """A grid-stride loop with a fused multiply-add."""
    x, y = random.standard_normal((2, 1000)).astype("f4")
    expected = (np.float64(2.5) * x + y).astype("f4")
    module["axpy"].launch(3, 128, [y, x, np.float32(2.5), 1000])
    np.testing.assert_array_equal(y, expected)


def test_transpose(module: Module) -> None:
    """Static shared memory, bar.sync, edges that cut tiles."""
    a = random.standard_normal((70, 45)).astype("f4")
    out = np.zeros((45, 70), "f4")
    module["transpose"].launch((2, 3), (32, 8), [out, a, 70, 45])
    np.testing.assert_array_equal(out, a.T)


def test_reduce_sum(module: Module) -> None:
    """Shuffles of full warps and of one warp in a divergent branch."""
    a = random.integers(-9, 9, (3, 1000)).astype("f4")
    out = np.zeros(3, "f4")
    module["reduce_sum"].launch(3, 256, [out, a, 1000])
    np.testing.assert_array_equal(out, a.sum(1))


def test_histogram(module: Module) -> None:
    """Atomics on shared and global memory with colliding lanes."""
    data = random.integers(0, 256, 3000).astype("u1")
    bins = np.zeros(256, "u4")
    module["histogram"].launch(2, 256, [bins, data, 3000])
    np.testing.assert_array_equal(bins, np.bincount(data, minlength=256))


def test_collatz(module: Module) -> None:
    """Every lane leaves its loop at another iteration."""

    def steps(value: int) -> int:
        count = 0
        while value != 1:
            value = 3 * value + 1 if value & 1 else value // 2
            count += 1
        return count

    out = np.zeros(100, "i4")
    module["collatz"].launch(4, 32, [out, 100])
    np.testing.assert_array_equal(out, [steps(i + 1) for i in range(100)])


def test_softmax(module: Module) -> None:
    """Dynamic shared memory, exponentials and division."""
    a = random.standard_normal((4, 100)).astype("f4")
    out = np.zeros_like(a)
    module["softmax"].launch(4, 32, [out, a, 100], shared_bytes=400)
    e = np.exp(a.astype("f8") - a.max(1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=2e-6)


def _toward_zero(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return -quotient if (a < 0) != (b < 0) else quotient


def _integer_mix(x: int, y: int) -> int:
    signed, pattern, odd = x - (x >> 31 << 32), y & 0xFFFFFFFF, y | 1
    r = int(f"{x:032b}"[::-1], 2) ^ (32 - x.bit_length()) ^ x.bit_count() << 32
    r = (r + (x * pattern >> 32)) & MASK64
    r ^= ((signed * y >> 32) << 7) & MASK64
    r = (r + x // (pattern | 1) + (_toward_zero(signed, odd) & 0xFFFFFFFF)) & MASK64
    r ^= x % (pattern | 1)
    r = (r + ((signed - odd * _toward_zero(signed, odd)) & 0xFFFFFFFF)) & MASK64
    parts = [value >> 8 * k & 255 for value in (x, pattern) for k in range(4)]
    r ^= sum(parts[x >> 4 * k & 7] << 8 * k for k in range(4))
    r = (r + ((pattern << 32 | x) << (x & 31) >> 32 & 0xFFFFFFFF)) & MASK64
    r ^= (x & -x).bit_length()
    r = (r + ((max(signed, y) + min(x, pattern)) & 0xFFFFFFFF)) & MASK64
    r ^= y * signed & MASK64
    r = (r + r // (x | 1)) & MASK64
    r ^= r % (pattern | 1)
    r = (r + ((abs(signed - y) + x) & 0xFFFFFFFF)) & MASK64
    r ^= abs(y)
    return (r * 0x9E3779B97F4A7C15 + (r >> 29)) & MASK64


def test_integer_mix(module: Module) -> None:
    """Two dozen integer operations against Python integers."""
    a = random.integers(0, 2**32, 500, dtype=np.uint32)
    b = random.integers(-(2**31), 2**31, 500).astype("i4")
    b[:50] = random.integers(-5, 5, 50)
    out = np.zeros(500, "u8")
    module["integer_mix"].launch(4, 128, [out, a, b, 500])
    assert out.tolist() == [_integer_mix(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]


def test_half_mix(module: Module) -> None:
    """Packed f16 and bf16 arithmetic, rounded once; conversion to bytes."""
    bf16 = ml_dtypes.bfloat16
    a, b = random.standard_normal((2, 64, 2)).astype("f2")
    c = random.standard_normal((64, 2)).astype(bf16)
    f = (random.standard_normal(64) * 10).astype("f4")
    out, out_bf16, out_bytes = np.zeros_like(a), np.zeros_like(c), np.zeros(64, "u1")
    module["half_mix"].launch(1, 64, [out, a, b, out_bf16, c, f, out_bytes, 64])
    np.testing.assert_array_equal(out, (a.astype("f8") * b + np.maximum(a, b)).astype("f2"))
    square = (c.astype("f4") * c.astype("f4")).astype(bf16)
    expected = (square.astype("f4") + f.astype(bf16).astype("f4")[:, None]).astype(bf16)
    np.testing.assert_array_equal(out_bf16.view("u2"), expected.view("u2"))
    np.testing.assert_array_equal(out_bytes, np.clip(np.rint(f * np.float32(10)), 0, 255).astype("u1"))


def test_calls(module: Module) -> None:
    """A function that is not inlined: parameters, local memory through a pointer, two call sites."""

    def helper(x: np.float32, count: int, scratch: Array) -> np.float32:
        for i in range(count):
            scratch[i] = x
            x = np.float32(np.float64(x) * 0.5 + i)
        return np.float32(x + scratch[count // 2])

    a = random.standard_normal(70).astype("f4")
    out = np.zeros(70, "f4")
    module["calls"].launch(3, 32, [out, a, 70])
    expected = []
    for i, value in enumerate(a):
        scratch = np.zeros(16, "f4")
        first = helper(value, 3 + i % 5, scratch)
        expected.append(np.float32(first + helper(np.float32(value + 1), 4, scratch)))
    np.testing.assert_array_equal(out, expected)


def test_switches(module: Module) -> None:
    """brx.idx with lanes that go to different cases."""
    a = random.integers(-1, 9, 100).astype("i4")
    out = np.zeros(100, "i4")
    module["switches"].launch(4, 32, [out, a, 100])
    cases = [
        {0: 10 * i, 1: i * i, 2: -i, 3: i ^ 0x55, 4: i << 3, 5: i // 3, 6: i % 7}.get(int(v), int(v))
        for i, v in enumerate(a)
    ]
    np.testing.assert_array_equal(out, cases)


def test_cp_async(module: Module) -> None:
    """A three-stage cp.async pipeline that waits for all but one group."""
    a = random.integers(-9, 9, (5, 512)).astype("f4")
    out = np.zeros(512, "f4")
    module["cpasync"].launch(1, 128, [out, a, 5])
    np.testing.assert_array_equal(out, a.sum(0)[np.arange(512) ^ 1])


def test_mma(module: Module) -> None:
    """ldmatrix and mma.sync."""
    a, b = random.integers(-4, 5, (16, 64)).astype("f2"), random.integers(-4, 5, (8, 64)).astype("f2")
    c = np.zeros((16, 8), "f4")
    module["mma_gemm"].launch(1, 32, [c, a, b, 64])
    np.testing.assert_array_equal(c, a.astype("f4") @ b.astype("f4").T)


def test_doubles(module: Module) -> None:
    """f64 square root, division and fused multiply-add."""
    a, b = random.standard_normal((2, 50))
    out = np.zeros(50)
    module["doubles"].launch(2, 32, [out, a, b, 50])
    np.testing.assert_allclose(out, np.sqrt(abs(a)) / (b * b + 1) + a * b + np.floor(a), rtol=1e-14)


def test_module_variables(module: Module) -> None:
    """Constant memory with an initialiser; a global variable that outlives the launch."""
    out = np.zeros(50, "f4")
    before = module.variable("counter").data[:4].view("i4")[0]
    module["constants"].launch(2, 32, [out, 50])
    np.testing.assert_array_equal(out, np.array([1, -2, 0.5, 3], "f4")[np.arange(50) & 3] * np.arange(50))
    assert module.variable("counter").data[:4].view("i4")[0] == before + 1


def test_warp_operations(module: Module) -> None:
    """Ballot, any, all, match, redux, shuffles with segments, activemask."""
    values = random.integers(-3, 8, 32).astype("i4")
    out = np.zeros((32, 4), "u4")
    module["warp_ops"].launch(1, 32, [out, values])
    lane = np.arange(32)
    ballot = sum(1 << i for i in range(32) if values[i] > 0)
    votes = ballot + int((values > 5).any()) + 2 * int((values < 100).all())
    np.testing.assert_array_equal(out[:, 0], votes & 0xFFFFFFFF)
    np.testing.assert_array_equal(out[:, 1], [sum(1 << j for j in range(32) if values[j] == v) for v in values])
    up = np.where(lane >= 3, values[lane - 3], values)
    np.testing.assert_array_equal(out[:, 2], (values.sum() + values.max() + up).astype("i8") & 0xFFFFFFFF)
    indexed = values[(lane & 24) | ((lane * 7 + 1) & 7)]
    np.testing.assert_array_equal(out[:, 3], (indexed.astype("i8") + 0xFFFFFFFF) & 0xFFFFFFFF)
