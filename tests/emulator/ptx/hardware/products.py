"""Matrix instructions on random and on special values, with every operand's way in: the rounding is the hardware's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from tests.emulator.ptx.hardware.cases import Case, generator, threads_case

_TYPES: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "f64": np.float64,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "s8": np.int8,
    "u8": np.uint8,
    "f32": np.float32,
    "s32": np.int32,
}
_SWIZZLES = {"none": 0, "128B": 1, "64B": 2, "32B": 3}


def cases() -> Iterator[Case]:
    """Every case of products and of matrices in registers."""
    yield from _mma_cases()
    yield from _wgmma_cases()
    for index in range(3):
        for count in (1, 2, 4):
            yield _ldmatrix(count, ".trans" if index == 2 else "", index)
        yield _stmatrix((1, 2, 4)[index], ".trans" if index == 1 else "")
    yield _movmatrix()


def _mma_cases() -> Iterator[Case]:
    for values in ("wide", "special"):
        for t, k, c in (("f16", 8, "f32"), ("f16", 16, "f32"), ("f16", 8, "f16"), ("f16", 16, "f16"),
                        ("bf16", 8, "f32"), ("bf16", 16, "f32"), ("tf32", 4, "f32"), ("tf32", 8, "f32")):  # fmt: skip
            yield _mma(16, k, t, t, c, values)
        for a in ("e4m3", "e5m2"):
            for b in ("e4m3", "e5m2"):
                yield _mma(16, 32, a, b, "f32", values)
    for a in ("s8", "u8"):
        for b in ("s8", "u8"):
            for k in (16, 32):
                yield _mma(16, k, a, b, "s32", "wide")
            yield _mma(16, 32, a, b, "s32", "wide", saturate=True)
            yield _mma(8, 16, a, b, "s32", "wide")
    for m, k in ((8, 4), (16, 4), (16, 8), (16, 16)):
        yield _mma(m, k, "f64", "f64", "f64", "wide")


def _wgmma_cases() -> Iterator[Case]:
    for n in (16, 40, 96, 136, 256):
        yield _wgmma(n, "bf16", "bf16", "f32", "wide")
    for c in ("f32", "f16"):
        for values in ("wide", "special"):
            for a in ("e4m3", "e5m2"):
                for b in ("e4m3", "e5m2"):
                    yield _wgmma(32, a, b, c, values)
            yield _wgmma(32, "f16", "f16", c, values)
    for values in ("wide", "special"):
        yield _wgmma(32, "tf32", "tf32", "f32", values)
        yield _wgmma(32, "bf16", "bf16", "f32", values)
    for a in ("s8", "u8"):
        for b in ("s8", "u8"):
            yield _wgmma(32, a, b, "s32", "wide")
            yield _wgmma(32, a, b, "s32", "wide", tail=".satfinite")
    for t in ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8"):
        yield _wgmma(24, t, t, "s32" if t[1:] == "8" else "f32", "wide", registers=True)
    yield _wgmma(24, "f16", "f16", "f16", "wide", registers=True)
    for t in ("bf16", "tf32", "e5m2"):
        for swizzle in ("32B", "64B", "128B"):
            yield _wgmma(64, t, t, "f32", "wide", swizzle=swizzle)
    for majors in ((0, 1), (1, 0), (1, 1)):
        for swizzle in _SWIZZLES:
            yield _wgmma(64, "f16", "f16", "f32", "wide", swizzle=swizzle, majors=majors)
    yield _wgmma(64, "bf16", "bf16", "f32", "wide", swizzle="128B", majors=(0, 1), registers=True)
    for signs in ((-1, 1), (1, -1), (-1, -1)):
        for t in ("bf16", "tf32", "e4m3"):
            yield _wgmma(16, t, t, "f32", "wide", signs=signs)
    for t, c in (("bf16", "f32"), ("f16", "f16"), ("e4m3", "f32"), ("s8", "s32")):
        yield _wgmma(16, t, t, c, "wide", scale=0)
        yield _wgmma(16, t, t, c, "wide", steps=4)
        yield _wgmma(16, t, t, c, "wide", steps=3, scale=0)


def _values(t: str, count: int, kind: str, name: str) -> np.ndarray[Any, Any]:
    """Values whose exponents differ much; ``special``: a fifth of them tiny, and a few zeros, infinities and NaNs."""
    random = generator(name)
    dtype = _TYPES[t]
    if t in ("s8", "u8"):
        return random.integers(0, 256, count, dtype=np.uint8)
    if t == "s32":
        return random.integers(-(2**31), 2**31, count, dtype=np.int64).astype(np.int32)
    spread = {"e4m3": 2, "f16": 3, "e5m2": 4}.get(t, 6)
    wide = random.normal(size=count) * 2.0 ** random.integers(-spread, spread + 1, count)
    values = wide.astype(dtype)
    if kind == "special":
        bits = values.view(f"u{values.itemsize}")
        few = random.random(count) < 0.2
        values[few] = (values[few].astype(np.float64) * float(ml_dtypes.finfo(dtype).smallest_normal)).astype(dtype)
        some = random.random(count) < 0.004
        special = _SPECIAL[t if t != "tf32" else "f32"]
        bits[some] = random.choice(np.array(special, bits.dtype), int(some.sum()))
    return values


_SPECIAL = {
    "f16": [0, 0x8000, 0x7C00, 0xFC00, 0x7E00, 0x7C01, 0xFE12, 0x7BFF],
    "bf16": [0, 0x8000, 0x7F80, 0xFF80, 0x7FC0, 0x7F81, 0xFFC5, 0x7F7F],
    "f32": [0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0xFFC01234, 0x7F7FFFFF],
    "e4m3": [0, 0x80, 0x7F, 0xFF, 0x7E, 0xFE],
    "e5m2": [0, 0x80, 0x7C, 0xFC, 0x7D, 0xFF, 0x7B],
}


def _mma(m: int, k: int, a: str, b: str, c: str, values: str, *, saturate: bool = False) -> Case:
    """mma.sync on fragments as they lie in registers; four warps, each with operands of its own."""
    label = f"mma.m{m}n8k{k}.{c}.{a}.{b} {values}{' saturated' if saturate else ''}"
    wide = "b64" if c == "f64" else "b32"
    element, word = np.dtype(_TYPES[a]).itemsize, 8 if c == "f64" else 4
    counts = {"a": m * k * element // 32 // word, "b": 8 * k * element // 32 // word}
    counts["c"] = m * 8 // 64 if c == "f16" else m * 8 // 32
    kinds = {"a": wide, "b": wide, "c": c if c in ("f32", "f64") else "b32"}
    if c == "f64":
        kinds = dict.fromkeys(kinds, "f64")
    body = []
    lists = {}
    for name, words in counts.items():
        body.append(f".reg .{kinds[name]} {', '.join(f'{name}{i}' for i in range(words))};")
        body += [f"ld.global.{kinds[name]} {name}{i}, [at_{name} + {word * i}];" for i in range(words)]
        lists[name] = "{" + ", ".join(f"{name}{i}" for i in range(words)) + "}"
    shape = f"mma.sync.aligned.m{m}n8k{k}.row.col{'.satfinite' if saturate else ''}.{c}.{a}.{b}.{c}"
    body.append(f"{shape} {lists['c']}, {lists['a']}, {lists['b']}, {lists['c']};")
    body += [f"st.global.{kinds['c']} [out + {word * i}], c{i};" for i in range(counts["c"])]
    warps = 4
    inputs = {
        "a": _values(a, warps * m * k, values, label + "a").view(np.uint8),
        "b": _values(b, warps * 8 * k, values, label + "b").view(np.uint8),
        "c": _values(c, warps * m * 8, values, label + "c").view(np.uint8),
    }
    return threads_case("product", label, body, word * counts["c"], inputs, block=32 * warps)


def _stage(size: int, threads: int) -> list[str]:
    """Copy each thread's part of input a to shared memory, 16 bytes a turn, then order it before the async proxy."""
    return [
        f".reg .b32 to; .reg .b32 q0, q1, q2, q3; mad.lo.u32 to, tid, {size // threads}, s;",
        *(
            f"ld.global.v4.b32 {{q0, q1, q2, q3}}, [at_a + {i}]; st.shared.v4.b32 [to + {i}], {{q0, q1, q2, q3}};"
            for i in range(0, size // threads, 16)
        ),
        "fence.proxy.async.shared::cta; bar.sync 0;",
    ]


def _wgmma(
    n: int,
    a: str,
    b: str,
    c: str,
    values: str,
    *,
    registers: bool = False,
    swizzle: str = "none",
    majors: tuple[int, int] = (0, 0),
    signs: tuple[int, int] = (1, 1),
    scale: int = 1,
    steps: int = 1,
    tail: str = "",
) -> Case:
    """One instruction, or several that accumulate, on shared memory full of values: any descriptor reads some of them.

    A starts at 0 and B at 16 KiB; leading and stride offsets are those of a tile of 64 rows.
    """
    parts = [f"wgmma {a}.{b} n{n} {c} {values}", f"swizzle {swizzle} majors {majors} signs {signs} scale-d {scale}"]
    label = " ".join(parts) + (" A in registers" if registers else "") + (f" {steps} steps" if steps > 1 else "") + tail
    size = np.dtype(_TYPES[a]).itemsize
    k = 32 // size
    words = n // 2 if c != "f16" else n // 4
    register = "f32" if c == "f32" else "b32"
    accumulators = [f"c{i}" for i in range(words)]
    listed = "{" + ", ".join(accumulators) + "}"
    rows = {"none": 128, "32B": 256, "64B": 512, "128B": 1024}[swizzle]
    leading, stride = (1024, 128) if swizzle == "none" else (2048 if 1 in majors else 16, rows)
    low = (leading >> 4) << 16
    high = stride >> 4 | _SWIZZLES[swizzle] << 30
    shared = 65536
    body = [
        *_stage(shared, 128),
        f".reg .{register} {', '.join(accumulators)}; .reg .b32 lo, r0, r1, r2, r3; .reg .b64 da, db; .reg .pred p, q;",
        *(f"ld.global.{register} {name}, [at_c + {4 * i}];" for i, name in enumerate(accumulators)),
        *(f"ld.global.b32 r{i}, [at_a + {4 * i}];" for i in range(4)),
        f"setp.ne.u32 p, {scale}, 0; setp.eq.u32 q, 0, 0; wgmma.fence.sync.aligned;",
    ]
    constants = "" if c == "s32" else f", {signs[0]}, {signs[1]}"
    if size == 2:
        constants += f", {majors[1]}" if registers else f", {majors[0]}, {majors[1]}"
    for step in range(steps):
        start = {name: (base + 32 * step) >> 4 for name, base in (("da", 0), ("db", 16384))}
        for name, offset in start.items():
            body.append(
                f"shr.u32 lo, s, 4; and.b32 lo, lo, 0x3fff; add.u32 lo, lo, {offset}; or.b32 lo, lo, {low}; "
                f"mov.b64 {name}, {{lo, {high}}};"
            )
        source = "{r0, r1, r2, r3}" if registers else "da"
        body.append(
            f"wgmma.mma_async.sync.aligned.m64n{n}k{k}{tail}.{c}.{a}.{b} {listed}, {source}, db, "
            f"{'p' if step == 0 else 'q'}{constants};"
        )
    body += [
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
        *(f"st.global.{register} [out + {4 * i}], {name};" for i, name in enumerate(accumulators)),
    ]
    half = shared // 4 // size
    operands = np.concatenate(
        [
            _values(a, half, values, label + "a").view(np.uint8),
            _values(b, 3 * half, values, label + "b").view(np.uint8),
        ]
    )
    start_values = _values(c, 128 * words * (2 if c == "f16" else 1), values, label + "c").view(np.uint8)
    inputs = {"a": operands, "c": start_values}
    return threads_case("product", label, body, 4 * words, inputs, block=128, shared_bytes=shared)


def _ldmatrix(count: int, trans: str, variant: int) -> Case:
    """Rows in any order and more than once; the addresses of lanes beyond the matrices' rows do not count."""
    label = f"ldmatrix.x{count}{trans} of shuffled rows {variant}"
    data = generator(label).integers(0, 256, 512, dtype=np.uint8)
    order = generator(label + "order").integers(0, 32, 32, dtype=np.uint32)
    names = [f"r{i}" for i in range(count)]
    body = [
        *_stage(512, 32),
        f".reg .b32 row, {', '.join(names)};",
        "ld.global.b32 row, [at_b]; mad.lo.u32 row, row, 16, s;",
        f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{', '.join(names)}}}, [row];",
        *(f"st.global.b32 [out + {4 * i}], {name};" for i, name in enumerate(names)),
    ]
    inputs = {"a": data, "b": order}
    return threads_case("product", label, body, 4 * count, inputs, block=32, shared_bytes=512)


def _stmatrix(count: int, trans: str) -> Case:
    label = f"stmatrix.x{count}{trans} to shuffled rows"
    data = generator(label).integers(0, 256, 128 * count, dtype=np.uint8)
    order = generator(label + "order").permutation(32).astype(np.uint32)
    names = ", ".join(f"r{i}" for i in range(count))
    body = [
        f".reg .b32 row, w, mine, {names}; ld.global.b32 row, [at_b]; mad.lo.u32 row, row, 16, s;",
        *(f"ld.global.b32 r{i}, [at_a + {4 * i}];" for i in range(count)),
        "mad.lo.u32 mine, tid, 16, s; mov.b32 w, 0x5a5a5a5a;",
        *(f"st.shared.b32 [mine + {4 * i}], w;" for i in range(4)),
        f"bar.sync 0; stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [row], {{{names}}}; bar.sync 0;",
        *(f"ld.shared.b32 w, [mine + {4 * i}]; st.global.b32 [out + {4 * i}], w;" for i in range(4)),
    ]
    return threads_case("product", label, body, 16, {"a": data, "b": order}, block=32, shared_bytes=512)


def _movmatrix() -> Case:
    data = generator("movmatrix").integers(0, 256, 1024, dtype=np.uint8).view(np.uint32)
    body = [
        ".reg .b32 v; ld.global.b32 v, [at_a]; movmatrix.sync.aligned.m8n8.trans.b16 v, v; st.global.b32 [out], v;",
    ]
    return threads_case("product", "movmatrix", body, 4, {"a": data})
