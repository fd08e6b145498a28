"""Small kernels whose results an H200 has recorded: one instruction each, over operands that reach its corners.

A case is an entry of its family's PTX module, and arrays made from the case's name. `record.py` runs every case on a
GPU and stores what came out; `test_hardware_records.py` runs the same text on the emulator and compares.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

LANES = 256
"""Threads of an elementwise case, one element each."""

REGISTER = {
    **dict.fromkeys(("b8", "u8", "s8", "b16", "u16", "s16", "f16", "bf16", "e4m3x2", "e5m2x2"), "b16"),
    **dict.fromkeys(("b32", "u32", "s32", "f16x2", "bf16x2", "tf32", "u16x2", "s16x2"), "b32"),
    **dict.fromkeys(("b64", "u64", "s64"), "b64"),
    **{name: name for name in ("f32", "f64", "pred")},
}
"""Register class of an operand type."""

BYTES = {"b8": 1, "u8": 1, "s8": 1, "b16": 2, "b32": 4, "f32": 4, "b64": 8, "f64": 8}


@dataclass(frozen=True)
class Case:
    """One kernel: its entry's text, its inputs, and the bytes of its output.

    Attributes
    ----------
    name, family
        The case, and the module it stands in.
    entry
        PTX text of ``.visible .entry <symbol>``; parameters are the inputs' addresses and the output's.
    inputs
        Arrays, as bytes.
    output
        Bytes of the output buffer, which starts as zeros.
    block, shared_bytes
        Threads of a CTA, and its dynamic shared memory.
    cluster
        CTAs, all of one cluster.
    tolerance
        ``None`` for bit equality; else the type to compare as, and a relative and an absolute bound, either of which
        suffices.
    """

    name: str
    family: str
    entry: str
    inputs: tuple[np.ndarray[Any, Any], ...]
    output: int
    block: int = LANES
    shared_bytes: int = 0
    cluster: int = 1
    tolerance: tuple[str, float, float] | None = None

    @property
    def symbol(self) -> str:
        """The entry's name."""
        return symbol_of(self.name)


MODULES = (
    *("integers", "floats", "conversions", "warps", "memory", "matrices"),
    *("halves", "spaces", "atomics", "barriers", "mbarriers", "copies", "clusters", "products"),
)
"""Where the cases are."""


def symbol_of(name: str) -> str:
    """A PTX identifier for a case name."""
    return "case_" + "".join(c if c.isalnum() else "_" for c in name)


def module_text(cases: list[Case]) -> str:
    """The family's module."""
    head = ".version 8.6\n.target sm_90a\n.address_size 64\n.extern .shared .align 128 .b8 dynamic[];\n"
    return head + "\n".join(case.entry for case in cases)


def all_cases() -> dict[str, list[Case]]:
    """Every case, by family."""
    families: dict[str, list[Case]] = {}
    for name in MODULES:
        for case in importlib.import_module(f"tests.emulator.ptx.hardware.{name}").cases():
            families.setdefault(case.family, []).append(case)
    return families


# -- operands ---------------------------------------------------------------------------------------------------------


def operand(kind: str, name: str, position: int, count: int = LANES) -> np.ndarray[Any, Any]:
    """Operands of a type: every pair of its corner values first, then random bits, the same on every machine."""
    random = np.random.default_rng(zlib.crc32(f"{name}/{position}".encode()))
    corners = CORNERS.get(kind)
    width = {"b8": 1, "u8": 1, "s8": 1}.get(kind, BYTES[REGISTER[kind]] if kind != "pred" else 4)
    dtype = np.dtype(f"u{width}")
    bits = (
        random.integers(0, 1 << (8 * width), count, dtype=np.uint64).astype(dtype)
        if width < 8
        else random.integers(0, np.iinfo(np.uint64).max, count, dtype=np.uint64, endpoint=True)
    )
    if kind in MODERATE:
        half = random.random(count) < 0.5
        bits = np.where(half, MODERATE[kind](random, count), bits).astype(dtype)
    if corners is not None:
        table = np.array(corners, dtype=np.uint64).astype(dtype)
        # Operand 0 runs through the corners fast and operand 1 slowly, so that every pair of corners meets.
        index = np.arange(count) // len(table) ** position % len(table)
        paired = min(count * 3 // 4, len(table) ** 2)
        bits[:paired] = table[index[:paired]]
    return bits


def _f32(values: Any) -> np.ndarray[Any, Any]:
    return np.asarray(values, np.float32).view(np.uint32)


MODERATE = {
    "f32": lambda r, n: _f32(r.normal(size=n) * 4),
    "tf32": lambda r, n: _f32(r.normal(size=n) * 4),
    "f64": lambda r, n: (r.normal(size=n) * 4).view(np.uint64),
    "f16": lambda r, n: (r.normal(size=n) * 4).astype(np.float16).view(np.uint16),
    "bf16": lambda r, n: (_f32(r.normal(size=n) * 4) >> 16).astype(np.uint16),
    "f16x2": lambda r, n: (r.normal(size=2 * n) * 4).astype(np.float16).view(np.uint32),
    "bf16x2": lambda r, n: (_f32(r.normal(size=2 * n) * 4) >> 16).astype(np.uint16).view(np.uint32),
}
"""Values of ordinary size, for half of the random operands."""

_F32 = [0x00000000, 0x80000000, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0x00000001,
        0x007FFFFF, 0x00800000, 0x7F7FFFFF, 0x4B000000, 0x4EFFFFFF]  # fmt: skip
_F16 = [0x0000, 0x8000, 0x3C00, 0xBC00, 0x7C00, 0xFC00, 0x7E00, 0x7C01, 0x0001, 0x03FF, 0x0400, 0x7BFF, 0x6400, 0x3555]
_BF16 = [0x0000, 0x8000, 0x3F80, 0xBF80, 0x7F80, 0xFF80, 0x7FC0, 0x7F81, 0x0001, 0x007F, 0x0080, 0x7F7F, 0x4B00, 0x3EAB]
_F64 = [0x0, 1 << 63, 0x3FF0 << 48, 0xBFF0 << 48, 0x7FF0 << 48, 0xFFF0 << 48, 0x7FF8 << 48, (0x7FF0 << 48) + 1, 1,
        (1 << 52) - 1, 1 << 52, 0x7FEFFFFFFFFFFFFF, 0x4330 << 48, 0x41DFFFFFFFC00000]  # fmt: skip
_INT = [0, 1, 2, 3, 7, 31, 32, 33, 63, 64]


def _signed(width: int) -> list[int]:
    top = 1 << (width - 1)
    return [*_INT, top - 1, top, top + 1, (1 << width) - 1, (1 << width) - 2]


CORNERS: dict[str, list[int]] = {
    **{f"{k}16": _signed(16) for k in "bus"},
    **{f"{k}32": _signed(32) for k in "bus"},
    **{f"{k}64": _signed(64) for k in "bus"},
    "f32": _F32,
    "tf32": _F32,
    "f16": _F16,
    "bf16": _BF16,
    "f64": _F64,
    "f16x2": [a | b << 16 for a, b in zip(_F16, reversed(_F16), strict=True)],
    "bf16x2": [a | b << 16 for a, b in zip(_BF16, reversed(_BF16), strict=True)],
}

# -- kernels ----------------------------------------------------------------------------------------------------------


def threads_case(
    family: str,
    label: str,
    body: Sequence[str],
    out_bytes: int,
    inputs: Mapping[str, np.ndarray[Any, Any]] | None = None,
    *,
    block: int = LANES,
    cluster: int = 1,
    shared_bytes: int = 0,
    before: str = "",
) -> Case:
    """A case whose threads have equal parts of every input and of the output.

    The body finds its thread's number in the grid in ``t`` (``%tid.x`` in ``tid``), the address of its part of input
    ``a`` in ``at_a``, of its part of the output in ``out``, and the CTA's dynamic shared memory in ``s``. `before` is
    text ahead of the entry, such as a module variable.
    """
    name = f"{family}: {label}"
    arrays = inputs or {}
    threads = block * cluster
    lines = [
        ".reg .b32 t, tid, cta, s; .reg .b64 out; mov.u32 tid, %tid.x; mov.u32 cta, %ctaid.x; mov.u32 s, dynamic;",
        f"mad.lo.u32 t, cta, {block}, tid; ld.param.u64 out, [d_out]; mad.wide.u32 out, t, {out_bytes}, out;",
    ]
    for key, array in arrays.items():
        each, rest = divmod(array.nbytes, threads)
        assert rest == 0, f"{name}: {array.nbytes} bytes of {key} for {threads} threads"
        lines.append(
            f".reg .b64 at_{key}; ld.param.u64 at_{key}, [{key}_in]; mad.wide.u32 at_{key}, t, {each}, at_{key};"
        )
    text = before + entry(name, "".join(arrays), [*lines, *body, "ret;"], block)
    return Case(
        name,
        family,
        text,
        tuple(arrays.values()),
        out_bytes * threads,
        block=block,
        shared_bytes=shared_bytes,
        cluster=cluster,
    )


def generator(name: str) -> np.random.Generator:
    """Random numbers of a case, the same on every machine."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def elementwise(
    family: str,
    instruction: str,
    out: str,
    *ins: str,
    immediates: str = "",
    tolerance: tuple[str, float, float] | None = None,
    before: str = "",
    label: str = "",
    clean: Any = None,
) -> Case:
    """A case that applies ``instruction d, a, b, c<immediates>;`` to each thread's operands.

    `instruction` may hold ``{d}``, ``{a}``, ``{b}``, ``{c}`` for other shapes; `before` is text ahead of it; `clean`
    maps the operand arrays to legal ones (no zero divisors, say).
    """
    name = (label or instruction.split("{")[0].strip()) + (f" {immediates}" if immediates else "")
    names = "abc"[: len(ins)]
    text = instruction
    if "{d}" not in text:
        text = f"{instruction} {{d}}, {', '.join('{' + n + '}' for n in names)}{immediates};"
    body = [f".reg .b64 base_{n}, at_{n};" for n in (*names, "d")] + [".reg .b32 t;", "mov.u32 t, %tid.x;"]
    for n, kind in zip(names, ins, strict=True):
        stored = _stored(kind)
        body += [
            f".reg .{REGISTER[kind] if kind != 'pred' else 'b32'} {n}_raw;",
            f"ld.param.u64 base_{n}, [{n}_in];",
            f"mad.wide.u32 at_{n}, t, {BYTES[stored]}, base_{n};",
            f"ld.global.{stored} {n}_raw, [at_{n}];",
        ]
        if kind == "pred":
            body += [f".reg .pred {n};", f"setp.lt.u32 {n}, {n}_raw, 0x80000000;"]
        else:
            body += [f".reg .{REGISTER[kind]} {n};", f"mov.{REGISTER[kind]} {n}, {n}_raw;"]
    body += [f".reg .{REGISTER[out]} d;"]
    if before:
        body.append(before)
    body.append(text.format(d="d", a="a", b="b", c="c") if "{" in text else text)
    if out == "pred":
        body += [".reg .b32 flag;", "selp.u32 flag, 1, 0, d;"]
    stored = "b32" if out == "pred" else _stored(out)
    body += [
        "ld.param.u64 base_d, [d_out];",
        f"mad.wide.u32 at_d, t, {BYTES[stored]}, base_d;",
        f"st.global.{stored} [at_d], {'flag' if out == 'pred' else 'd'};",
        "ret;",
    ]
    full = f"{family}: {name} {out} {' '.join(ins)}"
    arrays = tuple(operand(kind, full, i) for i, kind in enumerate(ins))
    if clean is not None:
        arrays = tuple(clean(*arrays))
    return Case(full, family, entry(full, names, body), arrays, LANES * BYTES[stored], tolerance=tolerance)


def entry(name: str, inputs: str, body: list[str], threads: int = LANES) -> str:
    """The text of a kernel whose parameters are named after its inputs."""
    parameters = ", ".join([*(f".param .u64 {n}_in" for n in inputs), ".param .u64 d_out"])
    lines = "\n".join(f"    {line}" for line in body)
    return f".visible .entry {symbol_of(name)}({parameters})\n.maxntid {threads}, 1, 1\n{{\n{lines}\n}}\n"


def _stored(kind: str) -> str:
    if kind in ("b8", "u8", "s8"):
        return kind
    return REGISTER[kind] if kind != "pred" else "b32"


def nonzero(*arrays: np.ndarray[Any, Any]) -> Iterator[np.ndarray[Any, Any]]:
    """Replace zeros of the second operand by three: division by zero is unspecified."""
    first, second = arrays
    yield first
    yield np.where(second == 0, 3, second).astype(second.dtype)
