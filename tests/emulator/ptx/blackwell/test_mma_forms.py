"""The variants of tcgen05.mma: A in tensor memory, .ws, disabled lanes, scale-input-d, .ashift, sparse A."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from operands import codes, descriptor, offset, place
from tensor_kernel import IMAGE_BASE, run

from tilekit.emulator import ProtocolError, UnsupportedInstruction

VALUES = np.array([-4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4], np.float32)
START = "  cvt.u64.u32 %wide, %im; shr.u64 %wide, %wide, 4;"


def draw(rows: int, depth: int, seed: int = 0) -> npt.NDArray[np.float32]:
    """Small values, exact in every format."""
    return np.random.default_rng(seed).choice(VALUES, (rows, depth))


def shared_operand(
    register: str, values: npt.NDArray[np.float32], kind: str, start: int, image: npt.NDArray[np.uint8]
) -> str:
    """Lay a K-major operand out under the 64-byte swizzle; returns the instructions that make its descriptor."""
    size = 2 if kind in ("f16", "bf16") else 4 if kind == "tf32" else 1
    place(image, IMAGE_BASE, start, values, kind, lambda r, k: offset(r, k * size, "64B", 0, 512), "64B")
    return f"  mov.u64 {register}, {descriptor(start, '64B', 16, 512):#x}; add.s64 {register}, {register}, %wide;"


def idesc(m: int, n: int, *, a: int = 1, b: int = 1, d: int = 1, sparse: int = 0) -> int:
    """An instruction descriptor, bf16 unless told."""
    return sparse << 2 | d << 4 | a << 7 | b << 10 | n // 8 << 17 | m // 16 << 24


def product(a: npt.NDArray[np.float32], b: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """A times B transposed."""
    return (a.astype(np.float64) @ b.T.astype(np.float64)).astype(np.float32)


@pytest.mark.parametrize("group", [1, 2])
def test_a_in_tensor_memory(group: int) -> None:
    """A's row m lies in the lane of D's row m, 32 bytes of K in eight columns."""
    m, n = 128 * group, 32
    a, b = draw(m, 32), draw(n, 32, 1)
    fill = np.zeros((group, 128, 64), np.uint32)
    fill[:, :, 48:64] = codes(a, "bf16").reshape(group, 128, 64).view(np.uint32)
    images = []
    body: list[str] = []
    for rank in range(group):
        image = np.zeros(8192, np.uint8)
        body = [START, "  add.u32 %r40, %tm, 48; add.u32 %r41, %tm, 56;"]
        for step, at in enumerate(("%r40", "%r41")):
            part = b[rank * n // group :][: n // group, 16 * step :][:, :16]
            body.append(shared_operand("%db", part, "bf16", 4096 * step, image))
            body.append(f"  tcgen05.mma.cta_group::{group}.kind::f16 [%tm], [{at}], %db, {idesc(m, n):#x}, {step};")
        images.append(image)
    cells, report = run("\n".join(body), images, fill=fill, columns=64)
    np.testing.assert_array_equal(cells.view(np.float32).reshape(m, 64)[:, :n], product(a, b))
    assert report.clean, str(report)


@pytest.mark.parametrize(("kind", "shift"), [("e2m1", 2), ("e3m2", 0)])
def test_narrow_a_in_tensor_memory(kind: str, shift: int) -> None:
    """4-bit elements of A in tensor memory are bits 5:2 of their byte, 6-bit ones bits 5:0."""
    a, b = draw(128, 32), draw(16, 32, 1)
    fill = np.zeros((1, 128, 64), np.uint32)
    fill[0, :, 48:56] = (codes(a, kind)[..., 0] << shift).astype(np.uint8).view(np.uint32)
    image = np.zeros(4096, np.uint8)
    body = [START, "  add.u32 %r40, %tm, 48;", shared_operand("%db", b, "e4m3", 0, image)]
    bits = idesc(128, 16, a={"e2m1": 5, "e3m2": 4}[kind], b=0)
    body.append(f"  tcgen05.mma.cta_group::1.kind::f8f6f4 [%tm], [%r40], %db, {bits:#x}, 0;")
    cells, _ = run("\n".join(body), [image], fill=fill)
    np.testing.assert_array_equal(cells[0, :, :16].view(np.float32), product(a, b))


def test_a_shifted() -> None:
    """With .ashift row m of D uses the next row of A, the last row its own."""
    a, b = draw(128, 16), draw(16, 16, 1)
    fill = np.zeros((1, 128, 64), np.uint32)
    fill[0, :, 48:56] = codes(a, "bf16").reshape(128, 32).view(np.uint32)
    image = np.zeros(4096, np.uint8)
    body = [START, "  add.u32 %r40, %tm, 48;", shared_operand("%db", b, "bf16", 0, image)]
    body.append(f"  tcgen05.mma.cta_group::1.kind::f16.ashift [%tm], [%r40], %db, {idesc(128, 16):#x}, 0;")
    cells, _ = run("\n".join(body), [image], fill=fill)
    np.testing.assert_array_equal(cells[0, :, :16].view(np.float32), product(np.concatenate([a[1:], a[-1:]]), b))


@pytest.mark.parametrize(("m", "parts"), [(32, 4), (64, 2), (128, 1)])
def test_weight_stationary(m: int, parts: int) -> None:
    """Under .ws the columns of D are split over the lanes that a small M leaves free."""
    n = 64
    a, b = draw(m, 16), draw(n, 16, 1)
    image = np.zeros(16384, np.uint8)
    body = [START, shared_operand("%da", a, "bf16", 0, image), shared_operand("%db", b, "bf16", 8192, image)]
    body.append(f"  tcgen05.mma.ws.cta_group::1.kind::f16 [%tm], %da, %db, {idesc(m, n):#x}, 0;")
    cells, report = run("\n".join(body), [image], columns=n // parts)
    values = cells[0].view(np.float32).reshape(parts, m, n // parts)
    np.testing.assert_array_equal(np.concatenate(list(values), axis=1), product(a, b))
    assert report.clean, str(report)


def test_zero_columns() -> None:
    """The zero-column mask of .ws: two used, three zeroed columns in turn, from the second of them on."""
    m, n = 128, 64
    a, b = draw(m, 16), draw(n, 16, 1)
    image = np.zeros(16384, np.uint8)
    mask = 1 | 1 << 39 | (3 - 1) << 40 | (2 - 1) << 48
    body = [START, shared_operand("%da", a, "bf16", 0, image), shared_operand("%db", b, "bf16", 8192, image)]
    body.append(f"  mov.u64 %dc, {mask:#x};")
    body.append(f"  tcgen05.mma.ws.cta_group::1.kind::f16 [%tm], %da, %db, {idesc(m, n):#x}, 0, %dc;")
    cells, _ = run("\n".join(body), [image], columns=n)
    kept = np.array([(j + 1) % 5 < 2 for j in range(n)])
    np.testing.assert_array_equal(cells[0].view(np.float32), product(a, np.where(kept[:, None], b, 0)))


def test_disabled_lanes() -> None:
    """A set bit of the mask keeps its lane of D as it was."""
    a, b = draw(128, 16), draw(16, 16, 1)
    image = np.zeros(16384, np.uint8)
    fill = np.full((1, 128, 16), 7, np.uint32)
    words = (0xF, 0, 0x80000000, 0xAAAAAAAA)
    body = [START, shared_operand("%da", a, "bf16", 0, image), shared_operand("%db", b, "bf16", 8192, image)]
    body += [f"  mov.u32 %r{40 + i}, {word:#x};" for i, word in enumerate(words)]
    body.append(
        f"  tcgen05.mma.cta_group::1.kind::f16 [%tm], %da, %db, {idesc(128, 16):#x}, {{%r40, %r41, %r42, %r43}}, 0;"
    )
    cells, _ = run("\n".join(body), [image], fill=fill, columns=16)
    disabled = np.array([words[lane // 32] >> lane % 32 & 1 for lane in range(128)], bool)
    expected = product(a, b).view(np.uint32)
    np.testing.assert_array_equal(cells[0], np.where(disabled[:, None], np.uint32(7), expected))


def test_scaled_accumulator() -> None:
    """scale-input-d divides what D held by a power of two."""
    a, b = draw(128, 16), draw(16, 16, 1)
    held = draw(128, 16, 2)
    image = np.zeros(16384, np.uint8)
    body = [START, shared_operand("%da", a, "bf16", 0, image), shared_operand("%db", b, "bf16", 8192, image)]
    body.append(f"  tcgen05.mma.cta_group::1.kind::f16 [%tm], %da, %db, {idesc(128, 16):#x}, 1, 3;")
    cells, _ = run("\n".join(body), [image], fill=held.view(np.uint32)[None], columns=16)
    np.testing.assert_array_equal(cells[0].view(np.float32), product(a, b) + held / 8)


def test_integer_saturation() -> None:
    """Integer sums wrap, or stop at the limits with the saturate bit."""
    a, b = np.full((128, 32), 127, np.float32), np.full((16, 32), 127, np.float32)
    image = np.zeros(16384, np.uint8)
    fill = np.full((1, 128, 16), 2**31 - 100, np.uint32)
    start = [START, shared_operand("%da", a, "s8", 0, image), shared_operand("%db", b, "s8", 8192, image)]
    total = 2**31 - 100 + 32 * 127 * 127
    for saturate, expected in ((0, total - 2**32), (8, 2**31 - 1)):
        bits = idesc(128, 16, d=2) | saturate
        body = [*start, f"  tcgen05.mma.cta_group::1.kind::i8 [%tm], %da, %db, {bits:#x}, 1;"]
        cells, _ = run("\n".join(body), [image], fill=fill, columns=16)
        assert (cells.view(np.int32) == expected).all()


# -- sparse A --------------------------------------------------------------------------------------------------------

PATTERNS = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]


def sparse_a(kind: str, depth: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.uint32]]:
    """Dense A with its structural zeros, its stored half, and two columns of metadata."""
    rng = np.random.default_rng(depth)
    dense, stored = np.zeros((128, depth), np.float32), np.zeros((128, depth // 2), np.float32)
    metadata = np.zeros((128, 2), np.uint32)
    for m in range(128):
        for k in range(0, depth, 2 if kind == "tf32" else 4):
            values = rng.choice([-2.0, -1, 1, 2, 3], 2)
            if kind == "tf32":
                which = int(rng.integers(2))
                dense[m, k + which] = stored[m, k // 2] = values[0]
                index = 0b1110 if which else 0b0100
                lane, bit = m % 8 + 8 * (k // 8) + 16 * (m // 16), 2 * (k % 8) + 16 * (m // 8 % 2)
            else:
                first, second = PATTERNS[int(rng.integers(6))]
                dense[m, k + first], dense[m, k + second] = values
                stored[m, k // 2 : k // 2 + 2] = values
                index = first | second << 2
                lane, bit = m % 8 + 8 * (k // 16) + 16 * (m // 16), k % 16 + 16 * (m // 8 % 2)
                if kind == "e4m3":
                    lane, bit = m, k
            metadata[lane, bit // 32] |= np.uint32(index << bit % 32)
    return dense, stored, metadata


@pytest.mark.parametrize(
    ("kind", "name", "code", "depth"), [("bf16", "f16", 1, 32), ("tf32", "tf32", 2, 16), ("e4m3", "f8f6f4", 0, 64)]
)
def test_sparse_a(kind: str, name: str, code: int, depth: int) -> None:
    """Half of A with its metadata multiplies like the dense matrix it stands for."""
    n = 16
    dense, stored, metadata = sparse_a(kind, depth)
    b = draw(n, depth, 1)
    fill = np.zeros((1, 128, 64), np.uint32)
    fill[0, :, 40:42] = metadata
    image = np.zeros(16384, np.uint8)
    body = [START, "  add.u32 %r40, %tm, 40;"]
    body += [shared_operand("%da", stored, kind, 0, image), shared_operand("%db", b, kind, 8192, image)]
    bits = idesc(128, n, a=code, b=code, sparse=1)
    body.append(f"  tcgen05.mma.sp.cta_group::1.kind::{name} [%tm], %da, %db, [%r40], {bits:#x}, 0;")
    cells, report = run("\n".join(body), [image], fill=fill)
    np.testing.assert_array_equal(cells[0, :, :n].view(np.float32), product(dense, b))
    assert report.clean, str(report)


def test_illegal_metadata() -> None:
    """A pair of positions in the wrong order is named."""
    image = np.zeros(16384, np.uint8)
    fill = np.full((1, 128, 64), 0x11111111, np.uint32)
    body = [START, "  add.u32 %r40, %tm, 40;"]
    body += [
        shared_operand("%da", draw(128, 16), "bf16", 0, image),
        shared_operand("%db", draw(16, 32), "bf16", 8192, image),
    ]
    body.append(f"  tcgen05.mma.sp.cta_group::1.kind::f16 [%tm], %da, %db, [%r40], {idesc(128, 16, sparse=1):#x}, 0;")
    with pytest.raises(ProtocolError, match="metadata 0001"):
        run("\n".join(body), [image], fill=fill)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("tcgen05.mma.cta_group::1.kind::f8f6f4 [%tm], %da, %db, 0, 1, 3;", "scale-input-d"),
        ("tcgen05.mma.cta_group::1.kind::f16.ashift [%tm], %da, %db, 0, 1;", "ashift"),
        ("tcgen05.mma.cta_group::1.kind::f16 [%tm], %da, %db, 0, {%r0, %r1}, 1;", "disabled lanes"),
        ("tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale [%tm], %da, %db, 0, [%r0], [%r1], 1;", "scale size"),
        ("tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block16 [%tm], %da, %db, 0, [%r0], [%r1], 1;", "legal"),
        ("tcgen05.mma.ws.cta_group::2.kind::f16 [%tm], %da, %db, 0, 1;", "cta_group::2"),
        ("tcgen05.mma.cta_group::1.kind::f16 [8], %da, %db, 0, 1;", "a constant is no address"),
    ],
)
def test_what_ptxas_refuses(line: str, message: str) -> None:
    """Forms that the assembler rejects are rejected here too, by name."""
    with pytest.raises(UnsupportedInstruction, match=message):
        run("  " + line, [np.zeros(16, np.uint8)])
