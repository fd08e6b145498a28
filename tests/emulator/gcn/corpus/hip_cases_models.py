"""Cases of ``hip_models.py``."""

from __future__ import annotations

from typing import Any

import numpy as np
from corpus_case import Array, Expect, Launch, bf16, e5m2, f32, i32, normal, unset, whole
from hip_cases import draws, f16
from hip_cases_numbers import philox_words

f64 = np.float64
LOG2E = 1.4426950408889634


def _weights(q: Array, k: Array, scale: float, window: int = 0) -> tuple[Array, Array]:
    """Causal softmax, and the binary logarithm of its sums."""
    length = q.shape[1]
    s = np.einsum("hid,hjd->hij", q.astype(f64), k.astype(f64)) * scale
    far = np.arange(length)[:, None] - np.arange(length)[None, :]
    s = np.where((far >= 0) & ((far < window) if window else True), s, -np.inf)
    top = s.max(2, keepdims=True)
    p = np.exp2(s - top)
    total = p.sum(2, keepdims=True)
    return p / total, (top + np.log2(total))[..., 0]


def _attention(
    rng: np.random.Generator, dtype: Any, out: Any, length: int, width: int, heads: int, group: int, rows: int,
    window: int = 0, near: float = 2e-2,
) -> Launch:  # fmt: skip
    q = normal(rng, heads, length, width, dtype=dtype)
    k, v = (normal(rng, heads // group, length, width, dtype=dtype) for _ in range(2))
    o, norms = unset(heads, length, width, dtype=out), unset(heads, length)
    scale = LOG2E / np.sqrt(width)
    p, norm = _weights(q, k.repeat(group, 0), scale, window)
    want = p @ v.repeat(group, 0).astype(f64)
    return Launch((-(-length // rows), heads), [q, k, v, o, norms, i32(length), f32(scale)], {
        "out": Expect(o, want, near, near), "norms": Expect(norms, norm, 1e-3, 1e-3),
    })  # fmt: skip


@draws("amd_attention_gqa")
def attention_gqa(rng: np.random.Generator) -> Launch:
    return _attention(rng, bf16, bf16, 100, 64, 4, 4, 64)


@draws("amd_attention_window")
def attention_window(rng: np.random.Generator) -> Launch:
    return _attention(rng, f16, f16, 120, 32, 2, 2, 32, window=40, near=5e-3)


@draws("amd_attention_8_warps")
def attention_8_warps(rng: np.random.Generator) -> Launch:
    return _attention(rng, bf16, bf16, 160, 128, 1, 1, 128)


@draws("amd_attention_fp8")
def attention_fp8(rng: np.random.Generator) -> Launch:
    return _attention(rng, e5m2, bf16, 96, 64, 2, 2, 64, near=0.25)


@draws("amd_attention_dkv")
def attention_dkv(rng: np.random.Generator) -> Launch:
    heads, group, length, width = 4, 2, 80, 32
    q, do = (normal(rng, heads, length, width, dtype=bf16) for _ in range(2))
    k, v = (normal(rng, heads // group, length, width, dtype=bf16) for _ in range(2))
    scale = 1 / np.sqrt(width)
    ks, vs, qs, gs = (x.astype(f64) for x in (k.repeat(group, 0), v.repeat(group, 0), q, do))
    p, norm = _weights(qs, ks, scale * LOG2E)
    delta = ((p @ vs) * gs).sum(2)
    ds = p * (gs @ vs.transpose(0, 2, 1) - delta[..., None]) * scale
    gk = (ds.transpose(0, 2, 1) @ qs).reshape(heads // group, group, length, width).sum(1)
    gv = (p.transpose(0, 2, 1) @ gs).reshape(heads // group, group, length, width).sum(1)
    dk, dv = unset(heads // group, length, width), unset(heads // group, length, width)
    args = [q, k, v, do, norm.astype(f32), delta.astype(f32), dk, dv, i32(length), f32(scale)]
    return Launch((3, heads // group), args, {"dk": Expect(dk, gk, 3e-2, 6e-2), "dv": Expect(dv, gv, 3e-2, 6e-2)})


@draws("amd_decode_split")
def decode_split(rng: np.random.Generator) -> Launch:
    sequences, heads, width, page, most = 3, 16, 64, 16, 8
    lengths = np.array([100, 33, 5], np.int32)
    pages = rng.permutation(sequences * most).reshape(sequences, most).astype(np.int32)
    q = normal(rng, sequences, heads, width, dtype=bf16)
    k, v = (normal(rng, sequences * most, page, width, dtype=bf16) for _ in range(2))
    partial, norms = unset(sequences, 2, heads, width), unset(sequences, 2, heads)
    scale = LOG2E / 8
    want, sums = np.zeros((sequences, 2, heads, width)), np.full((sequences, 2, heads), -1e30)
    for n, length in enumerate(lengths):
        each = (length + 63) // 64 * 32
        keys, values = (x[pages[n]].reshape(-1, width)[:length].astype(f64) for x in (k, v))
        for part in range(2):
            here = slice(part * each, min(length, (part + 1) * each))
            if len(keys[here]):
                s = q[n].astype(f64) @ keys[here].T * scale
                top = s.max(1, keepdims=True)
                p = np.exp2(s - top)
                want[n, part] = p @ values[here] / p.sum(1, keepdims=True)
                sums[n, part] = top[:, 0] + np.log2(p.sum(1))
    args = [q, k, v, pages, lengths, partial, norms, i32(most), f32(scale)]
    return Launch((sequences, 2), args, {
        "partial": Expect(partial, want, 2e-2, 2e-2), "norms": Expect(norms, sums, 1e-3, 1e-3),
    })  # fmt: skip


@draws("amd_decode_merge")
def decode_merge(rng: np.random.Generator) -> Launch:
    partial, norms, out = normal(rng, 2, 2, 16, 64), normal(rng, 2, 2, 16) * f32(4), unset(2, 16, 64, dtype=bf16)
    weight = np.exp2(norms.astype(f64))[..., None]
    return Launch((2, 16), [partial, norms, out], {
        "out": Expect(out, (partial * weight).sum(1) / weight.sum(1), 1e-2, 1e-2),
    })  # fmt: skip


def _rotary(rng: np.random.Generator, half: int, *, interleaved: bool) -> Launch:
    tokens, q_heads, k_heads = 5, 3, 2
    q, k = normal(rng, tokens, q_heads, 2 * half, dtype=bf16), normal(rng, tokens, k_heads, 2 * half, dtype=bf16)
    angles, positions = normal(rng, 20, half) * f32(20), rng.integers(0, 20, tokens).astype(np.int32)
    turn = np.exp(1j * angles.astype(f64)[positions])[:, None, :]

    def turned(x: Array) -> Array:
        wide = x.astype(f64)
        pair = (wide[..., ::2], wide[..., 1::2]) if interleaved else (wide[..., :half], wide[..., half:])
        found = (pair[0] + 1j * pair[1]) * turn
        parts = [found.real, found.imag]
        return np.stack(parts, -1).reshape(x.shape) if interleaved else np.concatenate(parts, -1)

    return Launch((tokens, q_heads + k_heads), [q, k, angles, positions, i32(q_heads), i32(k_heads)], {
        "q": Expect(q, turned(q), 1e-2, 1e-2), "k": Expect(k, turned(k), 1e-2, 1e-2),
    })  # fmt: skip


@draws("amd_rotary_both")
def rotary_both(rng: np.random.Generator) -> Launch:
    return _rotary(rng, 32, interleaved=False)


@draws("amd_rotary_interleaved")
def rotary_interleaved(rng: np.random.Generator) -> Launch:
    return _rotary(rng, 16, interleaved=True)


@draws("amd_rms_norm_backward")
def rms_norm_backward(rng: np.random.Generator) -> Launch:
    rows, columns = 7, 200
    x, w, dy = normal(rng, rows, columns), normal(rng, columns), normal(rng, rows, columns)
    dx, dw = unset(rows, columns), np.zeros(columns, f32)
    a, g = x.astype(f64), dy.astype(f64)
    r = 1 / np.sqrt((a * a).mean(1, keepdims=True) + 1e-5)
    want = r * (g * w - a * (g * w * a).mean(1, keepdims=True) * r * r)
    return Launch((rows,), [x, w, dy, dx, dw, i32(columns), f32(1e-5)], {
        "dx": Expect(dx, want, 1e-4, 1e-4), "dw": Expect(dw, (g * a * r).sum(0), 1e-4, 1e-4),
    })  # fmt: skip


@draws("amd_selective_scan")
def selective_scan(rng: np.random.Generator) -> Launch:
    length = 12
    x, dt = normal(rng, 2, length, 32), abs(normal(rng, 2, length, 32)) * f32(0.5)
    a, b, c = -abs(normal(rng, 32, 16)), normal(rng, 2, length, 16), normal(rng, 2, length, 16)
    y, want, state = unset(2, length, 32), np.zeros((2, length, 32)), np.zeros((2, 32, 16))
    for t in range(length):
        step = dt[:, t, :, None].astype(f64)
        state = state * np.exp(step * a) + step * x[:, t, :, None] * b[:, t, None, :]
        want[:, t] = (state * c[:, t, None, :]).sum(2)
    return Launch((2,), [x, dt, a, b, c, y, i32(length)], {"y": Expect(y, want, 1e-4, 1e-4)})


@draws("amd_mixture_routing")
def mixture_routing(rng: np.random.Generator) -> Launch:
    tokens = 75
    logits, chosen, weights = normal(rng, tokens, 16), unset(tokens, 2, dtype=np.int32), unset(tokens, 2)
    counts = np.zeros(16, np.int32)
    p = np.exp(logits.astype(f64))
    p /= p.sum(1, keepdims=True)
    order = np.argsort(-p, 1)[:, :2]
    return Launch((3,), [logits, chosen, weights, counts, i32(tokens)], {
        "chosen": Expect(chosen, order), "weights": Expect(weights, np.take_along_axis(p, order, 1), 1e-5, 1e-6),
        "counts": Expect(counts, np.bincount(order.reshape(-1), minlength=16)),
    })  # fmt: skip


@draws("amd_dropout_residual")
def dropout_residual(rng: np.random.Generator) -> Launch:
    rows, columns, p, seed = 4, 180, 0.3, 77
    x, residual = normal(rng, rows, columns, dtype=bf16), normal(rng, rows, columns, dtype=bf16)
    out, norms = unset(rows, columns, dtype=bf16), unset(rows)
    signed = philox_words(seed, np.arange(rows * columns))[0].view(np.int32).astype(np.int64)
    uniform = np.where(signed < 0, -signed - 1, signed) * 4.6566127342e-10
    kept = np.where(uniform.reshape(rows, columns) > p, x.astype(f64) / (1 - p), 0) + residual.astype(f64)
    return Launch((rows,), [x, residual, out, norms, i32(columns), f32(p), i32(seed)], {
        "out": Expect(out, kept, 1e-2, 1e-2), "norms": Expect(norms, np.sqrt((kept**2).sum(1)), 1e-5),
    })  # fmt: skip


@draws("amd_quantize_mx")
def quantize_mx(rng: np.random.Generator) -> Launch:
    x = (whole(rng, 16, 128, most=1000) * f32(2) ** rng.integers(-20, 20, (16, 1))).astype(f32)
    out, scales = unset(16, 128, dtype=e5m2), unset(16, 4, dtype=np.uint8)
    power = np.maximum((abs(x.reshape(16, 4, 32)).max(2).view(np.int32) >> 23 & 255) - 14, 1)
    scaled = x.reshape(16, 4, 32) / (2.0 ** (power - 127))[..., None]
    return Launch((2,), [x, out, scales, i32(128)], {
        "out": Expect(out, scaled.astype(e5m2).reshape(16, 128)), "scales": Expect(scales, power),
    })  # fmt: skip
