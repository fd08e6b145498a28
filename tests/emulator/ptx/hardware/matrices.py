"""Matrix instructions on small integers, where every order of summation is exact, and on some random values."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from tests.emulator.ptx.hardware.cases import Case, entry

_TYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "f64": np.float64,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "s8": np.int8, "u8": np.uint8,
}  # fmt: skip
_ACCUMULATOR: dict[str, Any] = {"f32": np.float32, "f16": np.float16, "s32": np.int32, "f64": np.float64}


def cases() -> Iterator[Case]:
    """Every matrix case."""
    for t, k, c in (("f16", 8, "f32"), ("f16", 16, "f32"), ("f16", 16, "f16"), ("bf16", 8, "f32"),
                    ("bf16", 16, "f32"), ("tf32", 4, "f32"), ("tf32", 8, "f32"), ("s8", 16, "s32"),
                    ("s8", 32, "s32"), ("u8", 32, "s32")):  # fmt: skip
        yield _mma(t, t, k, c, "integers")
    yield _mma("s8", "u8", 32, "s32", "integers")
    yield _mma("s8", "s8", 32, "s32", "extremes", saturate=True)
    yield _mma64()
    for t, k in (("f16", 16), ("bf16", 16), ("tf32", 8)):
        yield _mma(t, t, k, "f32", "random")
    for count in (1, 2, 4):
        for trans in ("", ".trans"):
            yield _ldmatrix(count, trans)
            yield _stmatrix(count, trans)
    for n in (8, 24, 64, 128):
        for t in ("f16", "bf16"):
            yield _wgmma(n, t, t, "f32", "integers")
    for a, b in (("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e5m2")):
        yield _wgmma(32, a, b, "f32", "integers")
    yield _wgmma(32, "f16", "f16", "f16", "integers")
    yield _wgmma(32, "e4m3", "e4m3", "f16", "integers")
    yield _wgmma(32, "tf32", "tf32", "f32", "integers")
    yield _wgmma(32, "s8", "s8", "s32", "integers")
    yield _wgmma(32, "u8", "s8", "s32", "integers")
    for majors in ((0, 1), (1, 0), (1, 1)):
        yield _wgmma(64, "bf16", "bf16", "f32", "integers", majors=majors)
    for signs in ((-1, 1), (1, -1), (-1, -1)):
        yield _wgmma(16, "f16", "f16", "f32", "integers", signs=signs)
    yield _wgmma(16, "f16", "f16", "f32", "integers", accumulate=False)
    yield _wgmma(64, "bf16", "bf16", "f32", "random")


def _values(t: Any, shape: tuple[int, ...], kind: str, name: str) -> np.ndarray[Any, Any]:
    random = np.random.default_rng(zlib.crc32(name.encode()))
    dtype = _TYPES.get(t) or _ACCUMULATOR[t]
    if kind == "random":
        return random.normal(size=shape).astype(dtype)
    if kind == "extremes":
        return random.choice(np.array([-128, 127], np.int8), size=shape)
    low = 0 if t == "u8" else -3
    return random.integers(low, 4, size=shape).astype(dtype)


def _mma(a: str, b: str, k: int, c: str, kind: str, *, saturate: bool = False) -> Case:
    """m16n8: registers are loaded and stored as they lie, so that the fragment layout is part of what is compared."""
    name = f"matrix: mma.m16n8k{k}.{c}.{a}.{b} {kind}{' saturated' if saturate else ''}"
    element = np.dtype(_TYPES[a]).itemsize
    a_words, b_words = 16 * k * element // 128, 8 * k * element // 128
    c_words = 4 if c != "f16" else 2
    float_c = c == "f32"
    names = {"a": a_words, "b": b_words, "c": c_words}
    body = [".reg .b32 t; .reg .b64 base, at; mov.u32 t, %tid.x;"]
    for n, words in names.items():
        register = "f32" if n == "c" and float_c else "b32"
        body.append(f".reg .{register} {', '.join(f'{n}{i}' for i in range(words))};")
        body.append(f"ld.param.u64 base, [{n}_in]; mad.wide.u32 at, t, {4 * words}, base;")
        body += [f"ld.global.{register} {n}{i}, [at+{4 * i}];" for i in range(words)]
    lists = {n: "{" + ", ".join(f"{n}{i}" for i in range(words)) + "}" for n, words in names.items()}
    shape = "row.col" + (".satfinite" if saturate else "")
    body.append(
        f"mma.sync.aligned.m16n8k{k}.{shape}.{c}.{a}.{b}.{c} {lists['c']}, {lists['a']}, {lists['b']}, {lists['c']};"
    )
    register = "f32" if float_c else "b32"
    body.append(f"ld.param.u64 base, [d_out]; mad.wide.u32 at, t, {4 * c_words}, base;")
    body += [f"st.global.{register} [at+{4 * i}], c{i};" for i in range(c_words)]
    body.append("ret;")
    arrays = (
        _values(a, (16 * k,), kind, name + "a").view(np.uint8),
        _values(b, (8 * k,), kind, name + "b").view(np.uint8),
        _values(c, (128,), "integers" if kind == "extremes" else kind, name + "c").view(np.uint8),
    )
    return Case(name, "matrix", entry(name, "abc", body, 32), arrays, 128 * c_words, block=32)


def _mma64() -> Case:
    name = "matrix: mma.m8n8k4.f64 integers"
    body = [
        ".reg .b32 t; .reg .b64 base, at; .reg .f64 a, b, c0, c1; mov.u32 t, %tid.x;",
        "ld.param.u64 base, [a_in]; mad.wide.u32 at, t, 8, base; ld.global.f64 a, [at];",
        "ld.param.u64 base, [b_in]; mad.wide.u32 at, t, 8, base; ld.global.f64 b, [at];",
        "ld.param.u64 base, [c_in]; mad.wide.u32 at, t, 16, base; ld.global.v2.f64 {c0, c1}, [at];",
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {c0, c1}, {a}, {b}, {c0, c1};",
        "ld.param.u64 base, [d_out]; mad.wide.u32 at, t, 16, base; st.global.v2.f64 [at], {c0, c1}; ret;",
    ]
    arrays = tuple(_values("f64", (n,), "integers", name + str(n)).view(np.uint8) for n in (32, 33, 64))
    return Case(name, "matrix", entry(name, "abc", body, 32), arrays, 512, block=32)


def _staging(bytes_: int, threads: int) -> list[str]:
    """Copy input a to shared memory, 16 bytes a thread and turn."""
    return [
        ".reg .b32 t, i, s; .reg .b64 base, at; .reg .b32 q0, q1, q2, q3; .reg .pred more;",
        "mov.u32 t, %tid.x; mul.lo.u32 i, t, 16; ld.param.u64 base, [a_in]; mov.u32 s, dynamic;",
        "{ .reg .b32 to; .reg .b64 wide;",
        "copy: cvt.u64.u32 wide, i; add.u64 at, base, wide; ld.global.v4.b32 {q0, q1, q2, q3}, [at];",
        "add.u32 to, s, i; st.shared.v4.b32 [to], {q0, q1, q2, q3};",
        f"add.u32 i, i, {16 * threads}; setp.lt.u32 more, i, {bytes_}; @more bra copy; }}",
        "bar.sync 0;",
    ]


def _ldmatrix(count: int, trans: str) -> Case:
    name = f"matrix: ldmatrix.x{count}{trans}"
    registers = [f"r{i}" for i in range(count)]
    body = [
        *_staging(512, 32),
        f".reg .b32 row, {', '.join(registers)}; mad.lo.u32 row, t, 16, s;",
        f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{', '.join(registers)}}}, [row];",
        f"ld.param.u64 base, [d_out]; mad.wide.u32 at, t, {4 * count}, base;",
        *(f"st.global.b32 [at+{4 * i}], {r};" for i, r in enumerate(registers)),
        "ret;",
    ]
    data = np.arange(256, dtype=np.uint16).view(np.uint8)
    return Case(name, "matrix", entry(name, "a", body, 32), (data,), 128 * count, block=32, shared_bytes=512)


def _stmatrix(count: int, trans: str) -> Case:
    name = f"matrix: stmatrix.x{count}{trans}"
    registers = [f"r{i}" for i in range(count)]
    body = [
        ".reg .b32 t, s, row; .reg .b64 base, at; mov.u32 t, %tid.x; mov.u32 s, dynamic; mad.lo.u32 row, t, 16, s;",
        f".reg .b32 {', '.join(registers)}; ld.param.u64 base, [a_in]; mad.wide.u32 at, t, {4 * count}, base;",
        *(f"ld.global.b32 {r}, [at+{4 * i}];" for i, r in enumerate(registers)),
        f"stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [row], {{{', '.join(registers)}}};",
        "bar.sync 0; .reg .b32 word; ld.param.u64 base, [d_out];",
        *(
            f"mad.lo.u32 row, t, 4, s; ld.shared.b32 word, [row+{128 * i}]; "
            f"mad.wide.u32 at, t, 4, base; st.global.b32 [at+{128 * i}], word;"
            for i in range(count)
        ),
        "ret;",
    ]
    data = np.arange(64 * count, dtype=np.uint16).view(np.uint8)
    return Case(name, "matrix", entry(name, "a", body, 32), (data,), 128 * count, block=32, shared_bytes=512)


def _wgmma(
    n: int,
    a: str,
    b: str,
    c: str,
    kind: str,
    *,
    majors: tuple[int, int] = (0, 0),
    signs: tuple[int, int] = (1, 1),
    accumulate: bool = True,
) -> Case:
    """m64nNk(32 bytes) from unswizzled core matrices: 8 rows of 16 bytes, 128 bytes each."""
    text = f"{a}.{b} n{n} {c} {kind} majors {majors} signs {signs}{'' if accumulate else ' overwriting'}"
    name = f"matrix: wgmma {text}"
    size = np.dtype(_TYPES[a]).itemsize
    k = 32 // size
    words = n // 2 if c != "f16" else n // 4
    register = "f32" if c == "f32" else "b32"
    accumulators = [f"c{i}" for i in range(words)]
    a_bytes, b_bytes = 64 * 32, n * 32
    # Core matrices of 8 rows by 16 bytes lie along M or N first, then along K. K-major, the leading offset is the step
    # along K; MN-major it is the step between groups of eight k: the same number (PTX ISA, canonical layouts without
    # swizzle).
    low, high = {}, {}
    for name_, extent in (("a", 64), ("b", n)):
        low[name_] = (extent // 8 * 128 >> 4) << 16
        high[name_] = 128 >> 4
    body = [*_staging(a_bytes + b_bytes, 128), "fence.proxy.async.shared::cta; bar.sync 0;"]
    body += [
        f".reg .{register} {', '.join(accumulators)}; ld.param.u64 base, [c_in]; mad.wide.u32 at, t, {4 * words}, base;"
    ]
    body += [f"ld.global.{register} {r}, [at+{4 * i}];" for i, r in enumerate(accumulators)]
    body += [
        ".reg .b32 lo, hi; .reg .b64 da, db; .reg .pred p;",
        f"and.b32 lo, s, 0x3ffff; shr.u32 lo, lo, 4; or.b32 lo, lo, {low['a']}; mov.b32 hi, {high['a']}; "
        "mov.b64 da, {lo, hi};",
        f"add.u32 lo, s, {a_bytes}; and.b32 lo, lo, 0x3ffff; shr.u32 lo, lo, 4; or.b32 lo, lo, {low['b']}; "
        f"mov.b32 hi, {high['b']};",
        f"mov.b64 db, {{lo, hi}}; setp.ne.u32 p, {1 if accumulate else 0}, 0;",
        "wgmma.fence.sync.aligned;",
    ]
    tail = {2: f", p, {signs[0]}, {signs[1]}, {majors[0]}, {majors[1]}", 4: f", p, {signs[0]}, {signs[1]}"}.get(size)
    if tail is None:
        tail = ", p" if c == "s32" else f", p, {signs[0]}, {signs[1]}"
    body += [
        f"wgmma.mma_async.sync.aligned.m64n{n}k{k}.{c}.{a}.{b} {{{', '.join(accumulators)}}}, da, db{tail};",
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
        f"ld.param.u64 base, [d_out]; mad.wide.u32 at, t, {4 * words}, base;",
        *(f"st.global.{register} [at+{4 * i}], {r};" for i, r in enumerate(accumulators)),
        "ret;",
    ]
    operands = np.concatenate(
        [_values(a, (64 * k,), kind, name + "a").view(np.uint8), _values(b, (n * k,), kind, name + "b").view(np.uint8)]
    )
    start = _values(c, (128 * words * (2 if c == "f16" else 1),), kind, name + "c").view(np.uint8)
    return Case(
        name,
        "matrix",
        entry(name, "ac", body, 128),
        (operands, start),
        512 * words,
        block=128,
        shared_bytes=a_bytes + b_bytes,
    )
