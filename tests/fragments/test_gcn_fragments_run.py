"""Every GCN fragment alone on the emulator, against NumPy."""

from __future__ import annotations

from typing import Any

import gcn_buffers  # noqa: F401  its checks
import ml_dtypes
import numpy as np
import pytest
from gcn_alone import THREADS, run
from gcn_checks import (
    ALL,
    CHECKS,
    FLOATS,
    LANES,
    MEMORY,
    MORE,
    OTHERS,
    PLACES,
    RANDOM,
    VALID,
    WORDS,
    Array,
    check,
    same,
)
from gcn_entries import AMD_CHIPS, claimed_chips, gcn_fragments

from tilekit.assembly.types import GMEM, SMEM, U32
from tilekit.assembly.writer import Writer
from tilekit.emulator import Device


@pytest.mark.sampled(one_in=4)
@pytest.mark.parametrize("chip", AMD_CHIPS)
@pytest.mark.parametrize("name", sorted({f"{group}.{fragment.name}" for group, fragment in gcn_fragments()}))
def test_runs_alone(name: str, chip: str) -> None:
    """It does what it says, and nothing is found; chips that lack it are passed over."""
    group, _, fragment_name = name.partition(".")
    chips = {c for g, f in gcn_fragments() if (g, f.name) == (group, fragment_name) for c in claimed_chips(f)}
    if chip in chips:
        CHECKS[name](chip)
    else:
        assert chips


# -- who a thread is ---------------------------------------------------------------------------------------------------


@check("special.thread_index", "special.lane_index", "special.warp_index", "special.cta_index", "special.cta_count",
       "special.sm_id", "warp.elect")  # fmt: skip
def _who(chip: str) -> None:
    threads = np.arange(192, dtype=np.uint32)
    same(run(chip, "special", "thread_index", threads=192).only, threads)
    same(run(chip, "special", "lane_index", threads=192).only, threads % 64)
    same(run(chip, "special", "warp_index", threads=192).only, threads // 64)
    same(run(chip, "special", "cta_index").only, 0 * LANES)
    same(run(chip, "special", "cta_count", grid=1).only, 0 * LANES + 1)
    same(run(chip, "special", "sm_id").only, 0 * LANES)
    same(run(chip, "warp", "elect", threads=192).only, (threads % 64 == 0).astype(np.uint32))


@check("special.clock", "special.global_timer")
def _clocks(chip: str) -> None:
    assert (run(chip, "special", "clock").only < 1 << 20).all()
    time = run(chip, "special", "global_timer").only
    assert (time[:, 0] % 10 == 0).all()
    assert (time[:, 1] == 0).all()


@check("warp.broadcast", "warp.shuffle_xor_f32")
def _exchanges(chip: str) -> None:
    for lane in (0, 37, 63):
        same(run(chip, "warp", "broadcast", value=WORDS, lane=lane).only, np.full(THREADS, WORDS[lane]))
    for mask in (1, 5, 32, 63):
        same(run(chip, "warp", "shuffle_xor_f32", value=FLOATS, mask=mask).only, FLOATS[LANES ^ mask])


# -- arithmetic --------------------------------------------------------------------------------------------------------


def _pair(low: Array, high: Array) -> Array:
    return low.astype(np.uint32) | high.astype(np.uint32) << np.uint32(16)


@check("convert.pack_bf16", "convert.pack_f16")
def _packs(chip: str) -> None:
    for name, kind in (("pack_bf16", ml_dtypes.bfloat16), ("pack_f16", np.float16)):
        halves = run(chip, "convert", name, low=FLOATS, high=MORE).only.view(np.uint16).reshape(-1, 2)
        with np.errstate(all="ignore"):
            for i, given in enumerate((FLOATS, MORE)):
                same(np.ascontiguousarray(halves[:, i]), given.astype(kind))


@check("convert.pack_e4m3", "convert.pack_e5m2")
def _packs_bytes(chip: str) -> None:
    for name, kind, largest in (
        ("pack_e4m3", ml_dtypes.float8_e4m3fn, 448),
        ("pack_e5m2", ml_dtypes.float8_e5m2, 57344),
    ):
        found = run(chip, "convert", name, low=FLOATS, high=MORE).only
        for shift, given in ((0, FLOATS), (8, MORE)):
            with np.errstate(all="ignore"):
                wanted = np.clip(given, -largest, largest).astype(kind)
            same((found >> np.uint32(shift)).astype(np.uint8), wanted)


@check("convert.widen_fp8x4")
def _widens_bytes(chip: str) -> None:
    for name, kind in (("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2)):
        found = run(chip, "convert", "widen_fp8x4", packed=WORDS, type=name).outputs
        with np.errstate(all="ignore"):
            wanted = WORDS.view(np.uint8).view(kind).astype(np.float16).reshape(-1, 4)
        for i, key in enumerate(("low", "high")):
            same(found[key].view(np.float16).reshape(-1, 2), np.ascontiguousarray(wanted[:, 2 * i : 2 * i + 2]))


@check("convert.unpack", "convert.widen_bf16", "convert.widen_f16", "convert.narrow_u16", "convert.low_word",
       "convert.widen_s8x4", "convert.interleave", "convert.bits_f32", "convert.bits_s32", "convert.float_s32",
       "convert.join_bytes")  # fmt: skip
def _converts(chip: str) -> None:
    same(run(chip, "convert", "bits_f32", whole=WORDS.view(np.int32)).only, WORDS.view(np.float32))
    same(run(chip, "convert", "bits_s32", bits=WORDS.view(np.float32)).only, WORDS)
    halves = {name: (words & 0xFFFF).astype(np.uint16) for name, words in (("first", WORDS), ("second", OTHERS))}
    same(run(chip, "convert", "join_bytes", **halves).only, WORDS & 0xFFFF | OTHERS << np.uint32(16))
    same(run(chip, "convert", "float_s32", whole=WORDS.view(np.int32)).only, WORDS.view(np.int32).astype(np.float32))
    found = run(chip, "convert", "unpack", packed=WORDS).outputs
    same(found["low"], WORDS & 0xFFFF)
    same(found["high"], WORDS >> 16)
    halves = (WORDS & 0xFFFF).astype(np.uint16)
    same(run(chip, "convert", "widen_bf16", narrow=WORDS).only, halves.view(ml_dtypes.bfloat16).astype(np.float32))
    same(run(chip, "convert", "widen_f16", narrow=WORDS).only, halves.view(np.float16).astype(np.float32))
    same(run(chip, "convert", "narrow_u16", wide=WORDS).only, WORDS & 0xFFFF)
    wide = WORDS.astype(np.uint64) << np.uint64(32) | OTHERS
    same(run(chip, "convert", "low_word", wide=wide).only, OTHERS)
    bytes_ = run(chip, "convert", "widen_s8x4", packed=WORDS).outputs
    for i, key in enumerate(("first", "second", "third", "fourth")):
        same(bytes_[key], WORDS.view(np.int8)[i::4].astype(np.float32))
    mixed = run(chip, "convert", "interleave", first=WORDS, second=OTHERS).outputs
    same(mixed["low"], _pair(WORDS & 0xFFFF, OTHERS & 0xFFFF))
    same(mixed["high"], _pair(WORDS >> 16, OTHERS >> 16))


@check("elementwise.fma", "elementwise.relu", "elementwise.tanh", "elementwise.sigmoid")
def _elementwise(chip: str) -> None:
    a, b, c = (RANDOM.integers(-50, 50, THREADS).astype(np.float32) for _ in range(3))
    same(run(chip, "elementwise", "fma", a=a, b=b, c=c).only, a * b + c)
    wanted = np.where(np.isnan(FLOATS), FLOATS, np.maximum(FLOATS, np.float32(0)))
    found = run(chip, "elementwise", "relu", x=FLOATS).only.view(np.float32)
    assert (np.isnan(found) == np.isnan(wanted)).all()
    assert (found[~np.isnan(found)] == wanted[~np.isnan(wanted)]).all()
    for scale in (1e-6, 1e-3, 0.03, 0.04, 1, 30):
        x = (RANDOM.normal(0, 1, THREADS) * scale).astype(np.float32)
        found = run(chip, "elementwise", "tanh", x=x).only.view(np.float32)
        assert (abs(found - np.tanh(x.astype(np.float64))) <= 2.0**-11 * abs(np.tanh(x))).all(), scale
        found = run(chip, "elementwise", "sigmoid", x=x).only.view(np.float32)
        exact = 1 / (1 + np.exp(-x.astype(np.float64)))
        assert (abs(found - exact) <= 2.0**-22 * (2 + abs(x)) * exact + 1e-38).all()
    found = run(chip, "elementwise", "tanh", x=FLOATS).only.view(np.float32)
    assert (np.isnan(found) == np.isnan(FLOATS)).all()
    assert (found[np.isinf(FLOATS)] == np.sign(FLOATS[np.isinf(FLOATS)])).all()


@check("elementwise.maximum", "elementwise.minimum", "elementwise.absolute", "elementwise.floor", "elementwise.exp2",
       "elementwise.log2", "elementwise.sqrt", "elementwise.rsqrt", "elementwise.divide",
       "convert.float_u32")  # fmt: skip
def _functions(chip: str) -> None:
    a, b = FLOATS, np.roll(FLOATS, 7)
    for name, expected in (("maximum", np.maximum(a, b)), ("minimum", np.minimum(a, b))):
        found = run(chip, "elementwise", name, a=a, b=b).only.view(np.float32)
        assert ((found == expected) | (np.isnan(found) & np.isnan(expected))).all(), name
    found = run(chip, "elementwise", "absolute", x=a).only.view(np.float32)
    assert ((found == abs(a)) | (np.isnan(found) & np.isnan(a))).all()
    found = run(chip, "elementwise", "floor", x=a).only.view(np.float32)
    assert ((found == np.floor(a)) | (np.isnan(found) & np.isnan(a))).all()
    x = np.linspace(0.01, 9, len(FLOATS), dtype=np.float32)
    wide = x.astype(np.float64)
    roots = {"exp2": np.exp2(wide), "log2": np.log2(wide), "sqrt": np.sqrt(wide), "rsqrt": 1 / np.sqrt(wide)}
    for name, exact in roots.items():
        found = run(chip, "elementwise", name, x=x).only.view(np.float32)
        assert (abs(found - exact) <= 2.0**-21 * np.maximum(abs(exact), 2.0**-1)).all(), name
    found = run(chip, "elementwise", "divide", a=x, b=x[::-1].copy()).only.view(np.float32)
    assert (abs(found - wide / wide[::-1]) <= 2.0**-22 * wide / wide[::-1]).all()
    same(run(chip, "convert", "float_u32", whole=WORDS).only.view(np.float32), WORDS.astype(np.float32))


@check("elementwise.add_where", "elementwise.maximum_where", "elementwise.minimum_where")
def _where(chip: str) -> None:
    total, value, counts = FLOATS, np.roll(FLOATS, 7), WORDS & 1
    for name, combine in (("add", np.add), ("maximum", np.maximum), ("minimum", np.minimum)):
        out = run(chip, "elementwise", f"{name}_where", total=total, value=value, counts=counts)
        with np.errstate(invalid="ignore", over="ignore"):
            expected = np.where(counts == 1, combine(total, value), total)
        np.testing.assert_array_equal(out.only.view(np.float32), expected)


# -- memory ------------------------------------------------------------------------------------------------------------


def _at(array: Array, places: Array, words: int = 1) -> Array:
    rows = [array.view(np.uint32)[places // 4 + i] for i in range(words)]
    return rows[0] if words == 1 else np.stack(rows, axis=1)


@check("memory.load_global_f32", "memory.load_coherent_f32", "memory.load_count", "memory.load_global_b16",
       "memory.load_global_scalar", "memory.load_global_f32x4", "memory.load_acquire_gpu")  # fmt: skip
def _global_loads(chip: str) -> None:
    for name in ("load_global_f32", "load_coherent_f32", "load_count"):
        found = run(chip, "memory", name, memory=MEMORY, address=PLACES, valid=VALID).only
        same(found, np.where(VALID, _at(MEMORY, PLACES), 0))
    negative = MEMORY | (MEMORY << np.uint32(31))
    found = run(chip, "memory", "load_count", memory=negative, address=PLACES, valid=ALL).only
    same(found, np.maximum(_at(negative, PLACES).view(np.int32), 0).astype(np.uint32))
    found = run(chip, "memory", "load_global_b16", memory=WORDS.repeat(8), address=PLACES + 2, valid=VALID).only
    same(found, np.where(VALID, WORDS.repeat(8)[PLACES // 4] >> 16, 0))
    for name in ("load_global_scalar", "load_acquire_gpu"):
        same(run(chip, "memory", name, memory=MEMORY, address=PLACES).only, _at(MEMORY, PLACES))
    same(run(chip, "memory", "load_global_f32x4", memory=MEMORY, address=PLACES).only, _at(MEMORY, PLACES, 4))


@check("memory.load_global_u8", "memory.load_global_u16", "memory.load_global_u32", "memory.load_global_u32x2",
       "memory.load_global_b32x4")  # fmt: skip
def _widening_loads(chip: str) -> None:
    for name, kind, apart in (("u8", np.uint8, 3), ("u16", np.uint16, 2), ("u32", np.uint32, 4)):
        found = run(chip, "memory", f"load_global_{name}", memory=MEMORY, address=PLACES + apart, valid=VALID).only
        same(found, np.where(VALID, MEMORY.view(kind)[(PLACES + apart) // kind().itemsize], 0))
    same(run(chip, "memory", "load_global_b32x4", memory=MEMORY, address=PLACES).only, _at(MEMORY, PLACES, 4))
    found = run(chip, "memory", "load_global_u32x2", memory=MEMORY, address=PLACES + 8, valid=VALID).outputs
    for word, part in enumerate(("low", "high")):
        same(found[part], np.where(VALID, _at(MEMORY, PLACES + 8 + 4 * word), 0))


@check("memory.store_global_f32", "memory.store_global_b16", "memory.store_global_b8", "memory.store_global_f32x4",
       "memory.store_global_b32", "memory.store_global_b32x2", "memory.store_global_b32x4",
       "memory.store_release_gpu", "memory.add_release_gpu", "memory.count_gpu", "memory.acquire_gpu")  # fmt: skip
def _global_stores(chip: str) -> None:
    blank = np.full(1024, 0xAB, np.uint8)
    for name, size in (("f32", 4), ("b16", 2), ("b8", 1)):
        value = FLOATS if name == "f32" else WORDS
        memory = run(
            chip, "memory", f"store_global_{name}", memory=blank, address=PLACES, value=value, valid=VALID
        ).memory
        wanted = blank.copy()
        for thread in np.flatnonzero(VALID):
            wanted[PLACES[thread] : PLACES[thread] + size] = value[thread : thread + 1].view(np.uint8)[:size]
        same(memory, wanted)
    rows = RANDOM.normal(0, 1, (THREADS, 4)).astype(np.float32)
    memory = run(chip, "memory", "store_global_b32", memory=blank, address=PLACES, value=WORDS).memory
    wanted = blank.copy()
    for thread in range(THREADS):
        wanted[PLACES[thread] : PLACES[thread] + 4] = WORDS[thread : thread + 1].view(np.uint8)[:4]
    same(memory, wanted)
    for count in (2, 4):
        words = RANDOM.integers(0, 1 << 32, (THREADS, count), np.uint32)
        found = run(
            chip, "memory", f"store_global_b32x{count}", memory=blank, address=PLACES, values=words, valid=VALID
        ).memory
        wanted = blank.copy()
        for thread in np.flatnonzero(VALID):
            wanted[PLACES[thread] : PLACES[thread] + 4 * count] = words[thread].view(np.uint8)
        same(found, wanted)
    memory = run(chip, "memory", "store_global_f32x4", memory=blank, address=PLACES, values=rows).memory
    same(_at(memory, PLACES, 4), rows.view(np.uint32))
    memory = run(chip, "memory", "store_release_gpu", memory=blank, address=PLACES, value=WORDS).memory
    same(_at(memory, PLACES), WORDS)
    memory = run(chip, "memory", "add_release_gpu", memory=MEMORY, address=PLACES % 64, value=WORDS).memory
    wanted = MEMORY.copy()
    np.add.at(wanted, PLACES % 64 // 4, WORDS)
    same(memory.view(np.uint32), wanted)
    done = run(chip, "memory", "count_gpu", memory=MEMORY, address=0 * LANES, value=0 * LANES + 3)
    assert done.memory.view(np.uint32)[0] == MEMORY[0] + 3 * THREADS
    same(np.sort(done.only), MEMORY[0] + 3 * LANES)
    same(run(chip, "memory", "acquire_gpu", memory=MEMORY).memory.view(np.uint32), MEMORY)


@check("memory.store_shared_f32", "memory.store_shared_b32", "memory.store_shared_b16", "memory.store_shared_f32x2",
       "memory.store_shared_b32x4", "memory.store_shared_f32_at", "memory.store_shared_f32x2_at")  # fmt: skip
def _shared_stores(chip: str) -> None:
    blank = np.full(2048, 0xCD, np.uint8)

    def lds(name: str, **given: Any) -> Array:
        return run(chip, "memory", name, lds=blank, address=PLACES, **given).lds

    same(_at(lds("store_shared_f32", value=FLOATS), PLACES), FLOATS.view(np.uint32))
    same(_at(lds("store_shared_b32", value=WORDS), PLACES), WORDS)
    same(_at(lds("store_shared_b16", value=WORDS), PLACES), 0xCDCD0000 | WORDS & 0xFFFF)
    pair = np.stack([FLOATS, MORE], axis=1).view(np.uint32)
    same(_at(lds("store_shared_f32x2", low=FLOATS, high=MORE), PLACES, 2), pair)
    rows = RANDOM.integers(0, 1 << 32, (THREADS, 4), np.uint32)
    same(_at(lds("store_shared_b32x4", values=rows), PLACES, 4), rows)
    same(_at(lds("store_shared_f32_at", value=FLOATS, offset=12), PLACES + 12), FLOATS.view(np.uint32))
    same(_at(lds("store_shared_f32x2_at", low=FLOATS, high=MORE, offset=8), PLACES + 8, 2), pair)


@check("memory.load_shared_f32", "memory.load_shared_b32", "memory.load_shared_f32x2", "memory.load_shared_b32x2",
       "memory.load_shared_b32x4", "memory.load_shared_f32_at", "memory.copy_16")  # fmt: skip
def _shared_loads(chip: str) -> None:
    lds = MEMORY[:512]
    for name in ("load_shared_f32", "load_shared_b32"):
        same(run(chip, "memory", name, lds=lds, address=PLACES).only, _at(lds, PLACES))
    found = run(chip, "memory", "load_shared_f32x2", lds=lds, address=PLACES).outputs
    same(np.stack([found["low"], found["high"]], axis=1), _at(lds, PLACES, 2))
    for count in (2, 4):
        same(run(chip, "memory", f"load_shared_b32x{count}", lds=lds, address=PLACES).only, _at(lds, PLACES, count))
    same(run(chip, "memory", "load_shared_f32_at", lds=lds, address=PLACES, offset=64).only, _at(lds, PLACES + 64))
    blank = np.zeros(2048, np.uint8)
    done = run(chip, "memory", "copy_16", lds=lds, memory=blank, source=PLACES, target=LANES * 16, valid=VALID)
    same(_at(done.memory, LANES * 16, 4), np.where(VALID[:, None], _at(lds, PLACES, 4), 0))


@check("lds.read_b32", "lds.read_b32x2", "lds.read_b32x3", "lds.read_b32x4", "lds.write_b32", "lds.write_b32x2",
       "lds.write_b32x3", "lds.write_b32x4")  # fmt: skip
def _lds(chip: str) -> None:
    lds = MEMORY[:512]
    for count, suffix in ((1, ""), (2, "x2"), (3, "x3"), (4, "x4")):
        found = run(chip, "lds", f"read_b32{suffix}", lds=lds, address=PLACES, offset=32)
        same(found.only, _at(lds, PLACES + 32, count))
        rows = RANDOM.integers(0, 1 << 32, (THREADS, count), np.uint32)
        given = {"value": rows[:, 0].copy()} if count == 1 else {"values": rows}
        done = run(chip, "lds", f"write_b32{suffix}", lds=lds, address=PLACES, offset=32, **given)
        same(_at(done.lds, PLACES + 32, count), rows[:, 0] if count == 1 else rows)


@check("lds.add_u32", "lds.fetch_add_u32", "lds.maximum_u32")
def _lds_atomics(chip: str) -> None:
    lds, places = MEMORY[:64], LANES % 4 * 4
    for name, operate in (("add_u32", np.add), ("maximum_u32", np.maximum)):
        wanted = lds.copy()
        operate.at(wanted, places // 4 + 2, WORDS)
        same(run(chip, "lds", name, lds=lds, address=places, value=WORDS, offset=8).lds.view(np.uint32), wanted)
    done = run(chip, "lds", "fetch_add_u32", lds=lds, address=0 * LANES, value=0 * LANES + 5, offset=8)
    same(np.sort(done.only), lds[2] + 5 * LANES)


@check("lds.read_transposed_b16")
def _transposed(chip: str) -> None:
    lds = np.arange(512, dtype=np.uint16)  # of each 16 lanes 4 rows of 16
    address = LANES // 16 * 128 + LANES % 16 // 4 * 32 + LANES % 4 * 8
    found = run(chip, "lds", "read_transposed_b16", lds=lds, address=address, offset=0).only
    rows = lds[:256].reshape(4, 4, 16)
    wanted = rows[LANES // 16, :, LANES % 16]
    same(np.ascontiguousarray(found).view(np.uint16), np.ascontiguousarray(wanted))


# -- waiting -----------------------------------------------------------------------------------------------------------


@check("counter.clear", "counter.arrive", "counter.wait_parity", "schedule.sleep", "schedule.priority")
def _counters(chip: str) -> None:
    for arrivals, seed in ((3, 1), (192, 2), (7, 3)):
        w = Writer("alone", target=chip, threads=256)
        out = w.parameter("out", GMEM)
        thread, warp = w.thread(), w.warp()
        counter = w.shared.allocate("counter", size=4).at(w, w.constant(U32, 0))
        box = w.shared.allocate("box", size=4 * 256).at(w, w.constant(U32, 0))
        with w.when(thread == 0):
            w.isa.counter.clear(address=counter.retyped(SMEM))
        w.isa.barrier.sync_cta()
        for turn in range(3):
            with w.when(warp < 3):
                w.gcn.schedule.priority(level=1)
                w.isa.memory.store_shared_b32(address=box + thread * 4, value=thread + 100 * turn)
                w.isa.counter.arrive(address=counter.retyped(SMEM), active=thread < arrivals)
            with w.when(warp == 3):
                w.gcn.schedule.sleep(turns=2)
                w.isa.counter.wait_parity(address=counter.retyped(SMEM), parity=turn & 1, arrivals=arrivals)
                lane = thread - 192
                value = w.isa.memory.load_shared_b32(address=box + w.minimum(lane, arrivals - 1) * 4)
                address = (out + w.widen_multiply(lane + 64 * turn, 4)).retyped(GMEM)
                w.isa.memory.store_release_gpu(address=address, value=value.retyped(U32))
            w.isa.barrier.sync_cta()
        device = Device(chip, seed=seed)
        found = device.buffer(np.zeros(192, np.uint32), "out")
        report = device.load(w.text())["alone"].launch(grid=1, block=256, args=[found])
        assert not report.findings, report
        lanes = np.minimum(LANES, arrivals - 1)
        same(found.read(), np.concatenate([lanes, lanes + 100, lanes + 200]).astype(np.uint32))


@check("counter.wait_within")
def _within(chip: str) -> None:
    random = np.random.default_rng(9)
    for period, arrivals in ((1, 1), (2, 1), (6, 1), (7, 6), (24, 8), (1000, 3), (131072, 65536)):
        for rest in {0, arrivals - 1, min(arrivals, period - 1), period - 1}:
            # The counter and `ahead` leave `rest`; where that is not within, another wave arrives as often as it takes.
            ahead, laps = (int(random.integers(most)) for most in (2 * period, (1 << 32) // period - 3))
            count = laps * period + (rest - ahead) % period
            missing = 0 if rest < arrivals else period - rest
            w = Writer("alone", target=chip, threads=128)
            out = w.parameter("out", GMEM)
            thread, warp = w.thread(), w.warp()
            counter = w.shared.allocate("counter", size=4).at(w, w.constant(U32, 0)).retyped(SMEM)
            box = w.shared.allocate("box", size=4).at(w, w.constant(U32, 0)).retyped(SMEM)
            with w.when(thread == 0):
                w.isa.memory.store_shared_b32(address=counter, value=w.constant(U32, count))
                w.isa.memory.store_shared_b32(address=box, value=w.constant(U32, 0 if missing else 41))
            w.isa.barrier.sync_cta()
            if missing:
                with w.when(thread == 64):
                    w.isa.memory.store_shared_b32(address=box, value=w.constant(U32, 41))
                    w.isa.barrier.warp_sync()
                    w.gcn.lds.add_u32(address=counter, value=w.constant(U32, missing), offset=0)
            with w.when(warp == 0):
                w.isa.counter.wait_within(
                    address=counter, ahead=w.constant(U32, ahead), period=period, arrivals=arrivals
                )
                address = (out + w.widen_multiply(thread, 4)).retyped(GMEM)
                w.isa.memory.store_release_gpu(
                    address=address, value=w.isa.memory.load_shared_b32(address=box).retyped(U32)
                )
            device = Device(chip, seed=rest)
            found = device.buffer(np.zeros(64, np.uint32), "out")
            report = device.load(w.text())["alone"].launch(grid=1, block=128, args=[found])
            assert not report.findings, report
            same(found.read(), np.full(64, 41, np.uint32))


@check("semaphore.wait", "semaphore.release")
def _semaphores(chip: str) -> None:
    w = Writer("alone", target=chip, threads=64)
    turns, out = w.parameter("turns", GMEM), w.parameter("out", GMEM)
    cta, thread = w.cta(), w.thread()
    with w.when(thread == 0):
        w.isa.semaphore.wait(address=turns, turn=cta)
        before = w.isa.memory.load_acquire_gpu(address=out)
        w.isa.memory.store_release_gpu(address=out, value=before * 3 + cta)
        w.isa.semaphore.release(address=turns, turn=cta + 1)
    for seed in range(3):
        device = Device(chip, seed=seed)
        buffers = [device.buffer(np.zeros(1, np.uint32)), device.buffer(np.ones(1, np.uint32))]
        report = device.load(w.text())["alone"].launch(grid=5, block=64, args=buffers)
        assert not report.findings, report
        value = 1
        for i in range(5):
            value = value * 3 + i
        assert buffers[1].read()[0] == value


@check("profile.record")
def _record(chip: str) -> None:
    wide = WORDS.astype(np.uint64) << np.uint64(20)
    done = run(chip, "profile", "record", memory=np.zeros(2048, np.uint8), address=LANES * 32, begin=wide,
               end=wide + np.uint64(9), row=WORDS, column=OTHERS, sm=LANES, turn=7, active=VALID)  # fmt: skip
    rows = done.memory.view(np.uint64).reshape(64, 4)
    same(rows[:, 0], np.where(VALID, wide, 0))
    same(rows[:, 1], np.where(VALID, wide + np.uint64(9), 0))
    words = done.memory.view(np.uint32).reshape(64, 8)[:, 4:]
    same(words, np.where(VALID[:, None], np.stack([WORDS, OTHERS, LANES, 0 * LANES + 7], axis=1), 0))
