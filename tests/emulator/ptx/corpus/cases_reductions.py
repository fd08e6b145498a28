"""Cases of ``triton_kernels/reductions.py``."""

from __future__ import annotations

import numpy as np
from corpus_case import Expect, Launch, bf16, case, f32, i32, normal, unset

ALL = ("sm_80", "sm_90a", "sm_100a")


@case("triton/row_reductions", *ALL)
def row_reductions(rng: np.random.Generator) -> Launch:
    x, out, where = normal(rng, 5, 400), unset(5, 3), unset(5, 3, dtype=np.int32)
    v = x.astype(np.float64)
    want = np.stack([v.sum(1), v.max(1), v.min(1)], 1)
    bits = np.bitwise_xor.reduce((x * np.float32(1000)).astype(np.int32), axis=1)
    places = np.stack([x.argmax(1), x.argmin(1), bits], 1)
    expect = {"out": Expect(out, want, 1e-5, 1e-5), "where": Expect(where, places)}
    return Launch((5,), [x, out, where, i32(400)], expect)


@case("triton/softmax", *ALL)
def softmax(rng: np.random.Generator) -> Launch:
    x, out = normal(rng, 6, 1008), unset(6, 1008)
    out[:, 1000:] = 7
    e = np.exp(x[:, :1000].astype(np.float64))
    want = np.full((6, 1008), 7.0)
    want[:, :1000] = e / e.sum(1, keepdims=True)
    return Launch((6,), [x, out, i32(1008), i32(1000)], {"out": Expect(out, want, 1e-5)})


@case("triton/layer_norm", *ALL)
def layer_norm(rng: np.random.Generator) -> Launch:
    x, out = normal(rng, 4, 600, dtype=np.float16), unset(4, 600, dtype=np.float16)
    weight, bias = normal(rng, 600), normal(rng, 600)
    v = x.astype(np.float64)
    want = (v - v.mean(1, keepdims=True)) / np.sqrt(v.var(1, keepdims=True) + 1e-5) * weight + bias
    return Launch((4,), [x, weight, bias, out, i32(600), f32(1e-5)], {"out": Expect(out, want, 2e-3, 2e-3)})


@case("triton/rms_norm", *ALL)
def rms_norm(rng: np.random.Generator) -> Launch:
    x, weight, out = normal(rng, 4, 500, dtype=bf16), normal(rng, 500, dtype=bf16), unset(4, 500, dtype=bf16)
    v = x.astype(np.float64)
    want = v / np.sqrt((v * v).mean(1, keepdims=True) + 1e-6) * weight.astype(np.float64)
    return Launch((4,), [x, weight, out, i32(500), f32(1e-6)], {"out": Expect(out, want, 8e-3, 1e-3)})


@case("triton/welford", *ALL)
def welford(rng: np.random.Generator) -> Launch:
    x, mean, variance = normal(rng, 16, 100), unset(16), unset(16)
    v = x.astype(np.float64)
    expect = {"mean": Expect(mean, v.mean(1), 1e-5, 1e-6), "variance": Expect(variance, v.var(1), 1e-5)}
    return Launch((2,), [x, mean, variance, i32(100)], expect)


@case("triton/column_sum", *ALL)
def column_sum(rng: np.random.Generator) -> Launch:
    x, out = normal(rng, 70, 96, dtype=np.float16), unset(96)
    return Launch((2,), [x, out, i32(70), i32(96)], {"out": Expect(out, x.astype(np.float64).sum(0), 1e-4, 1e-4)})


@case("triton/cross_entropy", *ALL)
def cross_entropy(rng: np.random.Generator) -> Launch:
    logits, loss = normal(rng, 6, 900), unset(6)
    labels = np.array([3, -1, 899, 0, 450, 20])
    v = logits.astype(np.float64)
    want = np.where(labels >= 0, np.log(np.exp(v).sum(1)) - v[np.arange(6), labels], 0)
    return Launch((6,), [logits, labels, loss, i32(900)], {"loss": Expect(loss, want, 1e-5)})


@case("triton/cumulative_sum", *ALL)
def cumulative_sum(rng: np.random.Generator) -> Launch:
    x, out = normal(rng, 4, 256), unset(4, 256)
    k, back = rng.integers(-(2**31), 2**31, (4, 256)).astype(np.int32), unset(4, 256, dtype=np.int32)
    reverse = k[:, ::-1].astype(np.int64).cumsum(1)[:, ::-1].astype(np.int32)
    expect = {"out": Expect(out, x.astype(np.float64).cumsum(1), 1e-5, 1e-5), "back": Expect(back, reverse)}
    return Launch((1,), [x, out, k, back], expect)


@case("triton/linear_recurrence", *ALL)
def linear_recurrence(rng: np.random.Generator) -> Launch:
    decay, value, out = rng.uniform(0.5, 1, (64, 32)).astype(np.float32), normal(rng, 64, 32), unset(64, 32)
    state, rows = np.zeros(32), []
    for d, v in zip(decay, value, strict=True):
        state = d * state + v
        rows.append(state)
    return Launch((1,), [decay, value, out], {"out": Expect(out, np.stack(rows), 1e-5, 1e-5)})


@case("triton/sort", *ALL)
def sort(rng: np.random.Generator) -> Launch:
    x, out = rng.integers(-1000, 1000, (2, 128)).astype(np.int32), unset(2, 128, dtype=np.int32)
    y, top = normal(rng, 2, 128), unset(2, 8)
    expect = {"out": Expect(out, np.sort(x, 1)), "top": Expect(top, np.sort(y, 1)[:, :-9:-1])}
    return Launch((1,), [x, out, y, top], expect)


@case("triton/histogram", *ALL)
def histogram(rng: np.random.Generator) -> Launch:
    x, out = rng.integers(0, 64, 1500).astype(np.int32), np.zeros(64, np.int32)
    return Launch((3,), [x, out, i32(1500)], {"out": Expect(out, np.bincount(x, minlength=64))})
