"""Fragments of a single thread, run alone by the emulator and compared with NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from small_kernels import BF16, E4M3, E5M2, Array, SmallKernel

from tilekit.assembly.types import B32, F32, S32, U32
from tilekit.emulator import MemoryFault

LANES = 32
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 65504.0, 3.4e38, 1e-40, 6e-8, 1 + 2**-8], np.float32)


def numbers(scale: float = 4.0) -> Array:
    """Ordinary and special values, one a lane."""
    drawn = np.random.default_rng(7).normal(size=LANES - len(SPECIAL)) * scale
    return np.concatenate([SPECIAL, drawn.astype(np.float32)])


@pytest.mark.parametrize(("name", "dtype"), [("pack_bf16", BF16), ("pack_f16", np.dtype(np.float16))])
def test_pack_rounds_to_nearest_even(name: str, dtype: np.dtype) -> None:
    """`pack_bf16` and `pack_f16` round as NumPy and ml_dtypes do, `low` to the lower address."""
    low, high = numbers(), numbers()[::-1].copy()
    out = np.zeros(LANES, np.uint32)
    k = SmallKernel(pointers=3)
    pack = getattr(k.w.ptx.convert, name)
    k.store(2, k.thread, pack(low=k.load(0, k.thread), high=k.load(1, k.thread)))
    k.run(low, high, out)
    with np.errstate(over="ignore"):
        expected = np.stack([low, high], axis=1).astype(dtype)
    got = out.view(dtype).reshape(LANES, 2)
    # A NaN's payload is the hardware's choice; everything else is compared bit for bit.
    assert (np.isnan(got) == np.isnan(expected)).all()
    number = ~np.isnan(expected)
    assert (got.view(np.uint16) == expected.view(np.uint16))[number].all()


@pytest.mark.parametrize(("name", "dtype"), [("pack_e4m3", E4M3), ("pack_e5m2", E5M2)])
def test_8bit_packing_saturates(name: str, dtype: np.dtype) -> None:
    """`pack_e4m3` and `pack_e5m2` round to nearest even, stop at the largest number, and keep NaN and the order."""
    low, high = numbers(100.0), numbers(0.01)[::-1].copy()
    out = np.zeros(LANES, np.uint16)
    k = SmallKernel(pointers=3)
    pack = getattr(k.w.ptx.convert, name)
    k.store(2, k.thread, pack(low=k.load(0, k.thread), high=k.load(1, k.thread)))
    k.run(low, high, out)
    most = float(ml_dtypes.finfo(dtype).max)
    expected = np.clip(np.stack([low, high], axis=1), -most, most).astype(dtype)
    got = out.view(dtype).reshape(LANES, 2)
    assert (np.isnan(got.astype(np.float32)) == np.isnan(expected.astype(np.float32))).all()
    number = ~np.isnan(expected.astype(np.float32))
    assert (got.view(np.uint8) == expected.view(np.uint8))[number].all()


@pytest.mark.parametrize(("name", "dtype"), [("widen_bf16", BF16), ("widen_f16", np.dtype(np.float16))])
def test_unpack_and_widen_are_exact(name: str, dtype: np.dtype) -> None:
    """Both halves of a packed pair, widened to f32, equal the 16-bit values."""
    with np.errstate(over="ignore"):
        pairs = np.stack([numbers(), numbers()[::-1]], axis=1).astype(dtype)
    out = np.zeros((2, LANES), np.float32)
    k = SmallKernel(pointers=2)
    low, high = k.w.ptx.convert.unpack(packed=k.load(0, k.thread, B32))
    widen = getattr(k.w.ptx.convert, name)
    k.store(1, k.thread, widen(narrow=low))
    k.store(1, k.thread + LANES, widen(narrow=high))
    k.run(pairs.view(np.uint32).reshape(-1), out)
    np.testing.assert_array_equal(out.T, pairs.astype(np.float32))


def test_every_s8_is_widened_exactly() -> None:
    """`widen_s8x4` gives each of the 256 values as f32, the lowest byte first."""
    words = np.arange(256, dtype=np.uint8).view(np.int8)
    out = np.zeros((2 * LANES, 4), np.float32)
    k = SmallKernel(pointers=2)
    for half in range(2):
        word = k.thread + LANES * half
        wide = k.w.ptx.convert.widen_s8x4(packed=k.load(0, word, B32))
        for place, value in enumerate(wide):
            k.store(1, word * 4 + place, value)
    k.run(words.view(np.uint32), out)
    np.testing.assert_array_equal(out.reshape(-1), words)


def test_low_word_keeps_the_lower_half() -> None:
    """`low_word` drops the upper 32 bits."""
    values = np.random.default_rng(2).integers(0, 1 << 32, (2, LANES), dtype=np.uint32)
    out = np.zeros(LANES, np.uint32)
    k = SmallKernel(pointers=2)
    wide = k.w.widen_multiply(k.load(0, k.thread, U32), k.load(0, k.thread + LANES, U32))
    k.store(1, k.thread, k.w.ptx.convert.low_word(wide=wide))
    k.run(values.reshape(-1), out)
    np.testing.assert_array_equal(out, values[0] * values[1])


def test_across_reads_over_the_end_of_a_word() -> None:
    """`across` gives 32 bits from any bit of the first word on; from bit 0 the second one plays no part."""
    words = np.random.default_rng(3).integers(0, 1 << 32, LANES + 1, dtype=np.uint32)
    out = np.zeros(LANES, np.uint32)
    k = SmallKernel(pointers=2)
    low, high = k.load(0, k.thread, U32), k.load(0, k.thread + 1, U32)
    k.store(1, k.thread, k.w.ptx.shift.across(low=low, high=high, bits=k.thread))
    k.run(words, out)
    both = words[:-1] | words[1:].astype(np.uint64) << np.uint64(32)
    np.testing.assert_array_equal(out, (both >> np.arange(LANES, dtype=np.uint64)).astype(np.uint32))


def test_narrow_u16_keeps_the_lower_half() -> None:
    """`narrow_u16` drops the upper 16 bits."""
    wide = np.random.default_rng(1).integers(0, 1 << 32, LANES, dtype=np.uint32)
    out = np.zeros(LANES, np.uint16)
    k = SmallKernel(pointers=2)
    k.store(1, k.thread, k.w.ptx.convert.narrow_u16(wide=k.load(0, k.thread, U32)))
    k.run(wide, out)
    np.testing.assert_array_equal(out, (wide & 0xFFFF).astype(np.uint16))


def elementwise(name: str, *operands: Array) -> Array:
    """Run one elementwise fragment over `operands`."""
    out = np.full(LANES, np.float32(123))
    k = SmallKernel(pointers=len(operands) + 1)
    names = ("x",) if len(operands) == 1 else ("a", "b", "c")[: len(operands)]
    values = {n: k.load(i, k.thread) for i, n in enumerate(names)}
    k.store(len(operands), k.thread, getattr(k.w.ptx.elementwise, name)(**values))
    k.run(*operands, out)
    return out


def test_fma_rounds_once() -> None:
    """`fma` rounds the exact a * b + c once: the product's lower half survives."""
    a = np.full(LANES, np.float32(1 + 2**-12))
    out = elementwise("fma", a, a, np.full(LANES, np.float32(-1)))
    assert (out == np.float32(2**-11 + 2**-24)).all()


def test_relu_keeps_nan() -> None:
    """`relu` is max(x, 0), and NaN stays NaN."""
    x = numbers()
    np.testing.assert_array_equal(elementwise("relu", x), np.where(np.isnan(x), np.nan, np.maximum(x, 0)))


def test_tanh_is_within_its_bound() -> None:
    """`tanh` has a relative error of at most 2^-11, its documented bound, and saturates."""
    x = numbers()
    exact = np.tanh(x.astype(np.float64))
    out = elementwise("tanh", x)
    finite = np.isfinite(exact) & (np.abs(exact) > 1e-30)
    assert (np.abs(out - exact)[finite] <= 2**-10.98 * np.abs(exact)[finite]).all()
    assert np.isnan(out[np.isnan(x)]).all()


def test_sigmoid_is_accurate() -> None:
    """`sigmoid` is within 2^-21 of the exact value relative to it, goes to 0 and 1 at the infinities, and keeps NaN."""
    x = numbers()
    with np.errstate(over="ignore"):
        exact = 1 / (1 + np.exp(-x.astype(np.float64)))
    out = elementwise("sigmoid", x)
    finite = np.isfinite(x) & (np.abs(x) < 80)
    assert (np.abs(out - exact)[finite] <= 2**-21 * exact[finite]).all()
    assert out[x == np.inf] == 1
    assert out[x == -np.inf] == 0
    assert np.isnan(out[np.isnan(x)]).all()


def test_functions_of_python_epilogues() -> None:
    """What a Python epilogue calls is as exact as its fragment says; the larger and the smaller keep NaN."""
    a, b = numbers(), np.roll(numbers(), 5)
    for name, exact in (("maximum", np.maximum(a, b)), ("minimum", np.minimum(a, b))):
        np.testing.assert_array_equal(elementwise(name, a, b), exact)
    np.testing.assert_array_equal(elementwise("absolute", a), abs(a))
    np.testing.assert_array_equal(elementwise("floor", a), np.floor(a))
    x = np.linspace(0.01, 9, LANES).astype(np.float32)
    wide = x.astype(np.float64)
    roots = {"exp2": np.exp2(wide), "log2": np.log2(wide), "sqrt": np.sqrt(wide), "rsqrt": 1 / np.sqrt(wide)}
    for name, exact in roots.items():
        assert (abs(elementwise(name, x) - exact) <= 2.0**-21 * np.maximum(abs(exact), 0.5)).all(), name
    quotient = wide / wide[::-1]
    assert (abs(elementwise("divide", x, x[::-1].copy()) - quotient) <= 2.0**-22 * quotient).all()


def test_whole_numbers_as_floats() -> None:
    """`float_s32` is a whole number's nearest f32, and `bits_f32` keeps its bits, which `bits_s32` takes back."""
    whole = np.linspace(-(2**31), 2**31 - 1, LANES).astype(np.int32)
    out = np.zeros((3, LANES), np.float32)
    k = SmallKernel(pointers=2)
    value = k.load(0, k.thread, U32).retyped(S32)
    back = k.w.isa.convert.bits_s32(bits=k.w.isa.convert.bits_f32(whole=value))
    k.store(1, k.thread + 2 * LANES, k.w.isa.convert.float_s32(whole=back + 1))
    k.store(1, k.thread, k.w.isa.convert.float_s32(whole=value))
    k.store(1, k.thread + LANES, k.w.isa.convert.bits_f32(whole=value))
    k.run(whole, out)
    np.testing.assert_array_equal(out[0], whole.astype(np.float32))
    np.testing.assert_array_equal(out[1].view(np.int32), whole)
    np.testing.assert_array_equal(out[2], (whole + np.int32(1)).astype(np.float32))


def test_float_u32_rounds_to_nearest() -> None:
    """`float_u32` is a whole number's nearest f32."""
    whole = np.linspace(0, 2**32 - 1, LANES).astype(np.uint32)
    out = np.zeros(LANES, np.float32)
    k = SmallKernel(pointers=2)
    k.store(1, k.thread, k.w.isa.convert.float_u32(whole=k.load(0, k.thread, U32)))
    k.run(whole, out)
    np.testing.assert_array_equal(out, whole.astype(np.float32))


def test_loads_are_predicated() -> None:
    """A lane whose predicate is false reads nothing, out of bounds or not, and gets 0."""
    source, half = np.arange(1, 11, dtype=np.float32), np.arange(1, 11, dtype=np.uint16)
    out, out_half = np.full(LANES, np.float32(9)), np.full(LANES, 9, np.uint16)
    k = SmallKernel(pointers=4)
    inside = k.thread < 10
    k.store(2, k.thread, k.w.ptx.memory.load_global_f32(address=k.element(0, k.thread), valid=inside))
    k.store(3, k.thread, k.w.ptx.memory.load_global_b16(address=k.element(1, k.thread, 2), valid=inside))
    k.run(source, half, out, out_half)
    np.testing.assert_array_equal(out, np.r_[source, np.zeros(LANES - 10)])
    np.testing.assert_array_equal(out_half, np.r_[half, np.zeros(LANES - 10)])


def test_an_unpredicated_load_out_of_bounds_faults() -> None:
    """The same load with a predicate that always holds is caught: the test above can fail."""
    k = SmallKernel(pointers=2)
    value = k.w.ptx.memory.load_global_f32(address=k.element(0, k.thread), valid=k.thread >= 0)
    k.store(1, k.thread, value)
    with pytest.raises(MemoryFault):
        k.run(np.ones(10, np.float32), np.zeros(LANES, np.float32))


def test_stores_are_predicated() -> None:
    """A lane whose predicate is false writes nothing, out of bounds or not."""
    out, half = np.zeros(10, np.float32), np.zeros(10, np.uint16)
    k = SmallKernel(pointers=2)
    odd = ((k.thread & 1) == 1) & (k.thread < 10)
    one = k.w.constant(U32, np.float32(1).view(np.uint32).item())
    k.w.ptx.memory.store_global_f32(address=k.element(0, k.thread), value=1.0, valid=odd)
    narrow = k.w.ptx.convert.narrow_u16(wide=one >> 16)
    k.w.ptx.memory.store_global_b16(address=k.element(1, k.thread, 2), value=narrow, valid=odd)
    k.run(out, half)
    np.testing.assert_array_equal(out, np.arange(10) % 2)
    np.testing.assert_array_equal(half.view(ml_dtypes.bfloat16).astype(np.float32), np.arange(10) % 2)


def test_special_registers() -> None:
    """Thread, lane and warp indices of a CTA of 96 threads."""
    out = np.zeros((3, 96), np.uint32)
    k = SmallKernel(pointers=1, threads=96)
    for row, value in enumerate((k.thread, k.w.lane(), k.w.warp())):
        k.store(0, k.thread + 96 * row, value)
    k.run(out)
    thread = np.arange(96)
    np.testing.assert_array_equal(out, [thread, thread % 32, thread // 32])


def test_elect_chooses_one_lane() -> None:
    """`elect` is true in exactly one lane of each warp."""
    out = np.zeros(64, np.uint32)
    k = SmallKernel(pointers=1, threads=64)
    k.store(0, k.thread, k.w.select(k.w.elect(), 1, 0))
    k.run(out)
    assert out.reshape(2, 32).sum(axis=1).tolist() == [1, 1]


def test_clocks_go_forward() -> None:
    """`clock` and `global_timer` never go back, and move on while a warp waits; `sm_id` is the CTA's, of the chip's."""
    threads = 64
    sms = np.full((2, threads), 999, np.uint32)
    moved = np.zeros((2, 2, threads), np.uint32)
    k = SmallKernel(pointers=2, threads=threads)
    w, special = k.w, k.w.ptx.special
    before = special.clock(), special.global_timer()
    w.barrier(id=1, threads=threads)
    after = special.clock(), special.global_timer()
    for row, (first, second) in enumerate(zip(before, after, strict=True)):
        assert first.type.bits == (32, 64)[row]
        k.store(1, k.thread + 2 * threads * row, w.select(second >= first, w.constant(U32, 1), 0))
        k.store(1, k.thread + threads * (2 * row + 1), w.select(second > first, w.constant(U32, 1), 0))
    k.store(0, w.ptx.cluster.cluster_index() * threads + k.thread, special.sm_id())
    k.run(sms, moved, grid=2)
    assert (moved[:, 0] == 1).all()
    assert moved[:, 1].any(axis=1).all()
    assert (sms == sms[:, :1]).all()
    assert (sms < 132).all()


def test_cta_index_and_count() -> None:
    """`cta_index` and `cta_count` in a grid of three CTAs."""
    out = np.zeros((2, 3), np.uint32)
    k = SmallKernel(pointers=1)
    index, count = k.w.cta(), k.w.cta_count()
    with k.w.when(k.thread == 0):
        k.store(0, index, index)
        k.store(0, index + 3, count)
    k.run(out, grid=3)
    np.testing.assert_array_equal(out, [[0, 1, 2], [3, 3, 3]])


@pytest.mark.parametrize("lane", [0, 5, 31])
def test_broadcast_takes_one_lane(lane: int) -> None:
    """`broadcast` gives every lane of each warp the value of one."""
    values = np.random.default_rng(3).integers(0, 1 << 32, 64, dtype=np.uint32)
    out = np.zeros(64, np.uint32)
    k = SmallKernel(pointers=2, threads=64)
    k.store(1, k.thread, k.w.ptx.warp.broadcast(value=k.load(0, k.thread, U32), lane=lane))
    k.run(values, out)
    np.testing.assert_array_equal(out, np.repeat(values[[lane, 32 + lane]], 32))


@pytest.mark.parametrize("mask", [1, 6, 16, 31])
def test_shuffle_xor_exchanges_lanes(mask: int) -> None:
    """`shuffle_xor_f32` gives lane l the value of lane l ^ mask."""
    values = np.arange(64, dtype=np.float32)
    out = np.zeros(64, np.float32)
    k = SmallKernel(pointers=2, threads=64)
    k.store(1, k.thread, k.w.ptx.warp.shuffle_xor_f32(value=k.load(0, k.thread), mask=mask))
    k.run(values, out)
    np.testing.assert_array_equal(out, values[np.arange(64) ^ mask])


@pytest.mark.parametrize("first", [0, 4, 28])
def test_take_reads_one_of_four_lanes(first: int) -> None:
    """`take_f32` gives lane l of each warp the value of its lane `first` + l % 4."""
    values = np.arange(64, dtype=np.float32)
    out = np.zeros(64, np.float32)
    k = SmallKernel(pointers=2, threads=64)
    k.store(1, k.thread, k.w.ptx.warp.take_f32(value=k.load(0, k.thread), first=first))
    k.run(values, out)
    lane = np.arange(64)
    np.testing.assert_array_equal(out, values[lane // 32 * 32 + first + lane % 4])


@pytest.mark.parametrize(("name", "combine"), [("add", np.add), ("maximum", np.maximum), ("minimum", np.minimum)])
def test_what_does_not_count_changes_nothing(name: str, combine: np.ufunc) -> None:
    """`add_where`, `maximum_where` and `minimum_where` combine where an element counts, and keep NaN."""
    totals, values = numbers(), numbers()[::-1].copy()
    out = np.zeros(LANES, np.float32)
    k = SmallKernel(pointers=3)
    total = k.w.variable(F32, 0.0, "total")
    total.assign(k.load(0, k.thread))
    where = getattr(k.w.ptx.elementwise, f"{name}_where")
    where(total=total, value=k.load(1, k.thread), counts=(k.thread & 1) == 1)
    k.store(2, k.thread, total)
    k.run(totals, values, out)
    with np.errstate(invalid="ignore", over="ignore"):
        expected = np.where(np.arange(LANES) % 2 == 1, combine(totals, values), totals)
    np.testing.assert_array_equal(out, expected)


def test_pairs_of_bytes_as_a_word() -> None:
    """`join_bytes` puts the first pair below the second."""
    words = np.arange(LANES, dtype=np.uint32) * 0x01020304 + 0xF00D0B5
    out = np.zeros(LANES, np.uint32)
    k = SmallKernel(pointers=2)
    low, high = k.w.ptx.convert.unpack(packed=k.load(0, k.thread, U32).retyped(B32))
    k.store(1, k.thread, k.w.isa.convert.join_bytes(first=high, second=low))
    k.run(words, out)
    np.testing.assert_array_equal(out, words >> np.uint32(16) | words << np.uint32(16))
