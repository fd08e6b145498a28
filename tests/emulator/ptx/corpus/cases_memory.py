"""Cases of ``triton_kernels/memory.py``."""

from __future__ import annotations

import numpy as np
from corpus_case import Expect, Launch, bf16, case, i32, normal, unset, whole

ALL = ("sm_80", "sm_90a", "sm_100a")
HOPPER_ON = ("sm_90a", "sm_100a")


@case("triton/transpose", *ALL)
def transpose(rng: np.random.Generator) -> Launch:
    x, out = normal(rng, 50, 70), unset(70, 50)
    return Launch((2, 3), [x, out, i32(50), i32(70)], {"out": Expect(out, x.T)})


@case("triton/embedding", *ALL)
def embedding(rng: np.random.Generator) -> Launch:
    index, table, out = rng.integers(0, 50, 7), normal(rng, 50, 100, dtype=bf16), unset(7, 100, dtype=bf16)
    return Launch((7,), [index, table, out, i32(100)], {"out": Expect(out, table[index])})


@case("triton/scatter_add", *ALL)
def scatter_add(rng: np.random.Generator) -> Launch:
    index, x, out = rng.integers(0, 8, 48).astype(np.int32), whole(rng, 48, 32), np.zeros((8, 32), np.float32)
    want = np.zeros((8, 32))
    np.add.at(want, index, x)
    return Launch((3,), [index, x, out], {"out": Expect(out, want)})


@case("triton/gather_axis", *ALL)
def gather_axis(rng: np.random.Generator) -> Launch:
    x, index, out = normal(rng, 16, 32), rng.integers(0, 16, (16, 32)).astype(np.int32), unset(16, 32)
    return Launch((1,), [x, index, out], {"out": Expect(out, np.take_along_axis(x, index, 0))})


@case("triton/reshape_join", *ALL)
def reshape_join(rng: np.random.Generator) -> Launch:
    x, y = (rng.integers(-999, 999, 128).astype(np.int16) for _ in range(2))
    out = unset(512, dtype=np.int16)
    both = np.stack([x, y], 1).reshape(-1)
    low, high = both[::-1].reshape(128, 2).T
    want = np.concatenate([both, low - high, x.reshape(4, 8, 4).transpose(2, 0, 1).reshape(-1)])
    return Launch((1,), [x, y, out], {"out": Expect(out, want)})


@case("triton/atomics_f32", *ALL)
def atomics_f32(rng: np.random.Generator) -> Launch:
    x, seen = whole(rng, 3 * 128, most=50), unset(3 * 128)
    out = np.zeros(12 + 3 * 128, np.float32)
    lanes = x.reshape(-1, 4)
    want = np.concatenate([lanes.sum(0), lanes.max(0), lanes.min(0), x])
    return Launch((3,), [x, out, seen], {"out": Expect(out, want), "seen": Expect(seen, 0 * x)})


@case("triton/atomics_half", "sm_80")
def atomics_f16(rng: np.random.Generator) -> Launch:
    return halves(rng, np.float16)


@case("triton/atomics_half", *HOPPER_ON)
def atomics_half(rng: np.random.Generator) -> Launch:
    return halves(rng, bf16)


def halves(rng: np.random.Generator, second: type) -> Launch:
    x, y = whole(rng, 4, 128, dtype=np.float16), whole(rng, 4, 128, dtype=second)
    out, out2 = np.zeros(128, np.float16), np.zeros(128, second)
    expect = {"out": Expect(out, x.astype(float).sum(0)), "out2": Expect(out2, y.astype(float).sum(0))}
    return Launch((4,), [x, out, y, out2], expect)


@case("triton/atomics_i32", *ALL)
def atomics_i32(rng: np.random.Generator) -> Launch:
    x = rng.integers(-(2**31), 2**31, 4 * 64).astype(np.int32)
    out, seen = np.zeros(13 + 64, np.int32), np.zeros(16 + 4 * 64, np.int32)
    out[4:8] = [2**31 - 1, 2**31 - 1, -1, -1]
    lanes = x.reshape(-1, 2)
    rows = [lanes.sum(0, dtype=np.int32), lanes.max(0).clip(0), lanes.min(0), np.bitwise_and.reduce(lanes),
            np.bitwise_or.reduce(lanes), np.bitwise_xor.reduce(lanes), [4]]  # fmt: skip
    return Launch((4,), [x, out, seen], {"out": Expect(out[:13], np.concatenate(rows))})


@case("triton/atomics_i64", *ALL)
def atomics_i64(rng: np.random.Generator) -> Launch:
    x, out = rng.integers(-(2**60), 2**60, 3 * 64), np.zeros(6, np.int64)
    y, out2 = whole(rng, 3 * 64, dtype=np.float64), np.zeros(4)
    lanes = x.reshape(-1, 2)
    want = np.concatenate([lanes.sum(0), lanes.max(0), lanes.min(0)])
    expect = {"out": Expect(out, want), "out2": Expect(out2, y.reshape(-1, 4).sum(0))}
    return Launch((3,), [x, out, y, out2], expect)


@case("triton/spin_lock", *ALL)
def spin_lock(rng: np.random.Generator) -> Launch:
    lock, x, out = np.zeros(1, np.int32), np.ones(4 * 128, np.float32), np.zeros(256, np.float32)
    want = np.repeat([1.875, 4.0], 128)
    return Launch((4,), [lock, x, out], {"out": Expect(out, want), "lock": Expect(lock, [0])})


@case("triton/collatz", *ALL)
def collatz(rng: np.random.Generator) -> Launch:
    x, out = rng.integers(1, 60, 256).astype(np.int32), unset(256, dtype=np.int32)

    def steps(v: int) -> int:
        return 0 if v == 1 else 1 + steps(v // 2 if v % 2 == 0 else 3 * v + 1)

    return Launch((2,), [x, out], {"out": Expect(out, [steps(v) for v in x.tolist()])})


@case("triton/descriptor_copy", *HOPPER_ON)
def descriptor_copy(rng: np.random.Generator) -> Launch:
    x, out = whole(rng, 48, 96, dtype=np.float16), unset(48, 96, dtype=np.float16)
    return Launch((2, 2), [x, out, i32(48), i32(96)], {"out": Expect(out, x.astype(float) + 1)})


@case("triton/descriptor_reduce", *HOPPER_ON)
def descriptor_reduce(rng: np.random.Generator) -> Launch:
    x, out = whole(rng, 48, 64), np.zeros((16, 64), np.float32)
    return Launch((3, 2), [x, out, i32(48), i32(64)], {"out": Expect(out, x.reshape(3, 16, 64).sum(0))})


@case("triton/descriptor_gather", "sm_100a")
def descriptor_gather(rng: np.random.Generator) -> Launch:
    x, index = normal(rng, 80, 128, dtype=np.float16), rng.integers(0, 80, 32).astype(np.int32)
    out = unset(32, 128, dtype=np.float16)
    return Launch((2,), [x, index, out, i32(80), i32(128)], {"out": Expect(out, x[index])})
