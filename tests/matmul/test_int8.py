"""Products of signed bytes: sums in s32 that are exact to the last bit, and floats that are rounded once."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import tilekit
from tilekit import MatmulConfig
from tilekit.bench.workload import MatmulWorkload
from tilekit.dtypes import S8, S32
from tilekit.errors import ArgumentError, ConfigError
from tilekit.kernels.matmul.sm_100a.config import BlackwellConfig

Array = npt.NDArray[Any]


def random(seed: int, *shape: int) -> Array:
    """Signed bytes, both ends among them."""
    return np.random.default_rng(seed).integers(-128, 128, shape, dtype=np.int8)


def product(a: Array, b: Array) -> Array:
    """A B^T in int32, whose sums wrap as the tensor core's do."""
    exact: Array = (a.astype(np.int64) @ b.astype(np.int64).swapaxes(-1, -2)).astype(np.int32)
    return exact


SHAPES = ((64, 64, 64), (130, 200, 256), (77, 101, 48), (5, 64, 128), (1, 1, 16), (300, 520, 272), (64, 64, 0))


@pytest.mark.parametrize("target", ["sm_80", "sm_120a"])
def test_chips_of_mma_sync(target: str) -> None:
    """By a warp's instruction as by a warpgroup's: whole, beyond what an f32 holds, and scaled; rows begin anywhere."""
    a, b = np.full((70, 2080), -128, np.int8), np.full((40, 2080), -128, np.int8)
    a[:, 0] = np.arange(70)
    b[:, 0] = np.arange(40)
    np.testing.assert_array_equal(tilekit.matmul(a, b.T, target=target), product(a, b))
    a, b = random(4, 33, 131)[:, 1:98], random(5, 50, 130)[:, 3:100]
    np.testing.assert_array_equal(tilekit.matmul(a, b.T, target=target), product(a, b))
    scaled = tilekit.matmul(a, b.T, target=target, out_dtype="f32", scale_a=np.full(33, 0.5, np.float32))
    np.testing.assert_array_equal(scaled, product(a, b) * np.float32(0.5))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_exact(shape: tuple[int, int, int]) -> None:
    """Of every value a byte has, in shapes that end anywhere; the result is int32 where nothing else is asked for."""
    m, n, k = shape
    a, b = random(m, m, k), random(n, n, k)
    d = tilekit.matmul(a, b.T)
    assert d.dtype == np.int32
    np.testing.assert_array_equal(d, product(a, b))


def test_sums_beyond_what_an_f32_holds() -> None:
    """Sums of more than 24 bits, odd ones, keep their last bit; as f32 they are rounded to the nearest."""
    a, b = np.full((70, 2080), -128, np.int8), np.full((40, 2080), -128, np.int8)
    a[:, 0] = np.arange(70)
    b[:, 0] = np.arange(40)
    exact = product(a, b)
    assert (np.abs(exact) > 1 << 25).all()
    assert (exact % 2).any()
    np.testing.assert_array_equal(tilekit.matmul(a, b.T), exact)
    np.testing.assert_array_equal(tilekit.matmul(a, b.T, out_dtype="f32"), exact.astype(np.float32))


def test_places() -> None:
    """Each row of one operand picks a column of the other: every element says where it comes from."""
    rng = np.random.default_rng(3)
    m, n, k = 150, 90, 208
    for turned in (False, True):
        rows, others = (n, m) if turned else (m, n)
        picking = np.zeros((rows, k), np.int8)
        picking[np.arange(rows), rng.permutation(k)[:rows]] = 1
        coded = ((np.arange(others)[:, None] * 37 + np.arange(k) * 11) % 251 - 125).astype(np.int8)
        a, b = (coded, picking) if turned else (picking, coded)
        np.testing.assert_array_equal(tilekit.matmul(a, b.T), product(a, b))


CONFIGS = (
    MatmulConfig(tile=(128, 128), consumers=2),
    MatmulConfig(tile=(128, 24), consumers=1, cluster=(2, 1)),
    MatmulConfig(tile=(64, 176), consumers=2, schedule="pingpong"),
    MatmulConfig(tile=(64, 64), consumers=1, swap_ab=True, k_group=2),
    MatmulConfig(tile=(16, 48), consumers=1),
)


@pytest.mark.parametrize("out", [np.int32, np.float16], ids=lambda t: t.__name__)
@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: f"{c.tile}-{c.schedule}-{c.swap_ab}")
def test_configs(config: MatmulConfig, out: Any) -> None:
    """Clusters, turns, swapped operands and short tiles, stored whole and rounded."""
    a, b = random(1, 140, 400) // 16, random(2, 192, 400) // 16
    d = np.full((140, 208), 77, out)
    tilekit.matmul(a, b.T, out=d[:, :192], config=config)
    np.testing.assert_array_equal(d[:, :192], product(a, b).astype(out))
    assert (d[:, 192:] == 77).all()


@pytest.mark.parametrize("rows", [3, 70])
def test_rows_that_begin_anywhere(rows: int) -> None:
    """Operands and outputs that TMA refuses, copied and stored by threads; batches whose one operand is shared."""
    a, b = random(4, 2, rows, 131)[..., 1:98], random(5, 33, 130)[:, 3:100]
    d = np.full((2, rows, 35), -1, np.int32)
    tilekit.matmul(a, b.T[None], out=d[..., 1:34])
    np.testing.assert_array_equal(d[..., 1:34], product(a, b[None]))
    assert (d[..., :1] == -1).all()
    assert (d[..., 34:] == -1).all()


@pytest.mark.parametrize("out", ["bf16", "f16", "f32"])
def test_scales_of_rows_and_columns(out: str) -> None:
    """As quantised layers have them: a factor a row, one a column, a bias, an activation; each f32 operation rounds."""
    rng = np.random.default_rng(6)
    a, b = random(7, 100, 320), random(8, 70, 320)
    rows, columns = rng.random(100, np.float32) / 128, rng.random(70, np.float32) / 128
    bias = rng.standard_normal(70).astype(np.float32)
    d = tilekit.matmul(a, b.T, out_dtype=out, scale_a=rows, scale_b=columns, bias=bias, activation="relu")
    exact = np.maximum(product(a, b).astype(np.float64) * rows[:, None] * columns + bias, 0)
    error = np.abs(d.astype(np.float64) - exact)
    step = {"bf16": 2.0**-8, "f16": 2.0**-11, "f32": 2.0**-22}[out]
    assert (
        error <= step * np.abs(exact) + 2.0**-22 * (np.abs(product(a, b) * rows[:, None] * columns) + np.abs(bias))
    ).all()


@pytest.mark.parametrize(
    ("given", "code", "parts"),
    [
        ({"a": np.uint8, "b": np.uint8}, "TK-MM-001", ("a is u8 and b is u8", "s8 by s8")),
        ({"b": np.uint8}, "TK-MM-001", ("a is s8 and b is u8", "for example b to s8")),
        ({"b": np.float16}, "TK-MM-001", ("a is s8 and b is f16",)),
        ({"out_dtype": "e4m3"}, "TK-MM-002", ("out_dtype=e4m3", "s32, bf16, f16, f32", "nearest: s32")),
        ({"out_dtype": "s8"}, "TK-MM-002", ("out_dtype=s8", "nearest: s32")),
        ({"a": np.float16, "b": np.float16, "out_dtype": "s32"}, "TK-MM-002", ("out_dtype=s32 with a of f16",)),
        ({"bias": np.zeros(64, np.float32)}, "TK-MM-002", ("out_dtype=s32 with a bias", "nearest: out_dtype=f32")),
        ({"scale_a": np.ones(64, np.float32)}, "TK-MM-002", ("out_dtype=s32", "nearest: out_dtype=f32")),
        ({"activation": "relu"}, "TK-MM-002", ("out_dtype=s32", "nearest: out_dtype=f32")),
        ({"accumulation": "promoted"}, "TK-MM-027", ("promoted",)),
    ],
)
def test_bad_input(given: dict[str, Any], code: str, parts: tuple[str, ...]) -> None:
    """Unsigned bytes, mixed signs, results that are not made of whole numbers: the argument, and the nearest."""
    more = dict(given)
    a, b = (np.ones((64, 64), more.pop(name, np.int8)) for name in "ab")
    with pytest.raises(ArgumentError, match=code) as caught:
        tilekit.matmul(a, b.T, **more)
    assert all(part in str(caught.value) for part in parts), str(caught.value)


@pytest.mark.parametrize("name", ["a", "b"])
def test_layouts_that_wgmma_does_not_read(name: str) -> None:
    """Of bytes an operand has K contiguous: the layout is named, and what to pass."""
    a, b = random(1, 64, 64), random(2, 64, 64)
    operands = (a.T.copy().T, b.T) if name == "a" else (a, b.T.copy())
    with pytest.raises(
        ArgumentError, match=rf"{name} is s8 and not contiguous along K.*K-major operands only.*TK-MM-004"
    ):
        tilekit.matmul(*operands)


@pytest.mark.parametrize(
    ("config", "parts"),
    [
        (MatmulConfig(tile=(128, 40)), ("tile N=40 with operands of s8", "multiple of 16")),
        (MatmulConfig(tile=(128, 64), stream_k=2), ("stream_k=2 with operands of s8",)),
        (BlackwellConfig(tile=(128, 48), cta_group=2, cluster=(2, 1)), ("tile N=48", "multiple of 32", "mma of s8")),
    ],
)  # fmt: skip
def test_configs_that_cannot_be(config: MatmulConfig, parts: tuple[str, ...]) -> None:
    """Widths that integer instructions lack, and streamed shares, which would be added in f32."""
    with pytest.raises(ConfigError) as caught:
        tilekit.matmul(random(1, 128, 128), random(2, 128, 128).T, config=config, target=config.TARGET)
    assert all(part in str(caught.value) for part in parts), str(caught.value)


def test_the_workload_holds_sums_to_the_last_bit() -> None:
    """What `tilekit run` and `bench` compare with: exact in s32, and close to it rounded."""
    workload = MatmulWorkload(8, 8, 32, a_dtype=S8, b_dtype=S8, out_dtype=S32)
    operands = workload.operands(0)
    exact = operands.a.astype(np.int32) @ operands.b.astype(np.int32)
    assert workload.accuracy(operands, exact).worst == 0
    exact[3, 4] += 1
    assert workload.accuracy(operands, exact).worst > 1
    assert workload.error_limit < 1e-4
    assert workload.kind == "s8→s32 k/k"


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(12))
def test_on_a_gpu(seed: int) -> None:
    """Random shapes on the device, bit for bit: whole, and with scales as the emulator has them."""
    rng = np.random.default_rng(seed)
    m, n, k = (int(extent) for extent in rng.integers(1, (700, 700, 3000)))
    a, b = random(seed, m, k), random(seed + 1, n, k)
    np.testing.assert_array_equal(tilekit.matmul(a, b.T, target="cuda"), product(a, b))
    rows, columns = np.ones(m, np.float32) / 2, np.ones(n, np.float32) * 4
    d = tilekit.matmul(a, b.T, target="cuda", out_dtype="f32", scale_a=rows, scale_b=columns)
    np.testing.assert_array_equal(d, product(a, b).astype(np.float32) * 2)
