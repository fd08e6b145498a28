"""Tensor memory: register layouts of ld and st, copies from shared memory, shifts, allocation."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pytest
from operands import descriptor, offset, swizzle
from tensor_kernel import IMAGE_BASE, run, text

from tilekit.emulator import Deadlock, Device, LaunchReport, MemoryFault, ProtocolError, UnsupportedInstruction

SHAPES = [
    (shape, repeat, packed)
    for shape, most in (("32x32b", 32), ("16x64b", 16), ("16x128b", 8), ("16x256b", 4), ("16x32bx2", 16))
    for repeat in (1, 2, most)
    for packed in (False, True)
]


def cell(shape: str, thread: int, register: int, split: int) -> tuple[int, int]:
    """(lane, column) of a register, as the figures of the PTX ISA have it."""
    t, j = thread, register
    match shape:
        case "32x32b":
            return t, j
        case "16x64b":
            return (t >> 2) + 8 * (t & 1), 2 * j + (t >> 1 & 1)
        case "16x128b":
            return (t >> 2) + 8 * (j & 1), 4 * (j >> 1) + (t & 3)
        case "16x256b":
            return (t >> 2) + 8 * (j >> 1 & 1), 8 * (j >> 2) + 2 * (t & 3) + (j & 1)
    return t & 15, j + split * (t >> 4)


def probe(body: str, *, threads: int = 128, columns: int = 128) -> tuple[npt.NDArray[np.uint32], LaunchReport]:
    """Run a body in every warp between alloc and dealloc; %out points to the thread's 512 bytes."""
    source = f"""
.version 8.8
.target sm_100a
.address_size 64
.visible .entry probe(.param .u64 out)
.reqntid {threads}, 1, 1
{{
  .reg .pred %p<4>; .reg .b32 %r<200>, %slot, %tm, %lane, %thread, %warp; .reg .b64 %out, %wide;
  .shared .align 16 .b8 slot[16];
  mov.u32 %thread, %tid.x;
  shr.u32 %warp, %thread, 5;
  mov.u32 %slot, slot;
  setp.ne.u32 %p0, %warp, 0;
  @%p0 bra READY;
  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%slot], {columns};
READY:
  tcgen05.fence::before_thread_sync;
  bar.sync 0;
  tcgen05.fence::after_thread_sync;
  ld.shared.b32 %tm, [%slot];
  shl.b32 %lane, %warp, 21;
  add.u32 %lane, %tm, %lane;
  ld.param.u64 %out, [out];
  mul.wide.u32 %wide, %thread, 512;
  add.s64 %out, %out, %wide;
{body}
  tcgen05.fence::before_thread_sync;
  bar.sync 0;
  tcgen05.fence::after_thread_sync;
  @%p0 bra END;
  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tm, {columns};
END:
  ret;
}}
"""
    out = np.zeros((threads, 128), np.uint32)
    report = Device("sm_100a").load(source)["probe"].launch(1, threads, [out])
    return out, report


def registers(count: int, first: int = 0) -> str:
    """A register list."""
    return "{" + ", ".join(f"%r{first + j}" for j in range(count)) + "}"


FILL = "\n".join(
    f"  mad.lo.u32 %r0, %thread, 1000, {c};\n  tcgen05.st.sync.aligned.32x32b.x1.b32 [%lane+{c}], {{%r0}};"
    for c in range(64)
)


@pytest.mark.parametrize(("shape", "repeat", "packed"), SHAPES)
def test_load_layout(shape: str, repeat: int, packed: bool) -> None:
    """Each register of each thread comes from the cell that its shape's figure names."""
    count = repeat * {"16x128b": 2, "16x256b": 4}.get(shape, 1)
    split = 32 if shape == "16x32bx2" else 0
    tail = f", {split}" if split else ""
    pack = ".pack::16b" if packed else ""
    stores = "\n".join(f"  st.global.b32 [%out+{4 * j}], %r{10 + j};" for j in range(count))
    upper = 16 << 16 if shape != "32x32b" else 0
    out, report = probe(
        f"""{FILL}
  tcgen05.wait::st.sync.aligned;
  tcgen05.ld.sync.aligned.{shape}.x{repeat}{pack}.b32 {registers(count, 10)}, [%lane+{upper}]{tail};
  tcgen05.wait::ld.sync.aligned;
{stores}"""
    )
    for thread in range(128):
        for register in range(count):
            lane, column = cell(shape, thread % 32, register, 0 if packed else split)
            row = thread // 32 * 32 + lane + (upper >> 16)
            if packed:
                place = 2 * column + split * (thread % 32 >> 4)
                expected = (row * 1000 + place) & 0xFFFF | (row * 1000 + place + 1 & 0xFFFF) << 16
            else:
                expected = row * 1000 + column
            assert out[thread, register] == expected, (thread, register)
    assert report.clean, str(report)


@pytest.mark.sampled(one_in=3)
@pytest.mark.parametrize(("shape", "repeat", "packed"), SHAPES)
def test_store_layout(shape: str, repeat: int, packed: bool) -> None:
    """A store writes the cells that the load of the same shape reads, and no others."""
    count = repeat * {"16x128b": 2, "16x256b": 4}.get(shape, 1)
    split = 32 if shape == "16x32bx2" else 0
    unpack = ".unpack::16b" if packed else ""
    values = "\n".join(f"  mad.lo.u32 %r{10 + j}, %thread, 256, {70000 * j};" for j in range(count))
    dump = "\n".join(
        f"  tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r0}}, [%lane+{c}];\n  tcgen05.wait::ld.sync.aligned;\n"
        f"  st.global.b32 [%out+{4 * c}], %r0;"
        for c in range(64)
    )
    zero = "\n".join(f"  tcgen05.st.sync.aligned.32x32b.x1.b32 [%lane+{c}], {{%r0}};" for c in range(64))
    out, report = probe(
        f"""  mov.u32 %r0, 0;
{zero}
{values}
  tcgen05.wait::st.sync.aligned;
  tcgen05.st.sync.aligned.{shape}.x{repeat}{unpack}.b32 [%lane]{f", {split}" if split else ""}, {registers(count, 10)};
  tcgen05.wait::st.sync.aligned;
{dump}"""
    )
    expected = np.zeros((128, 64), np.uint32)
    for thread in range(128):
        for register in range(count):
            value = thread * 256 + 70000 * register
            lane, column = cell(shape, thread % 32, register, 0 if packed else split)
            row = thread // 32 * 32 + lane
            if packed:
                place = 2 * column + split * (thread % 32 >> 4)
                expected[row, place : place + 2] = value & 0xFFFF, value >> 16
            else:
                expected[row, column] = value
    np.testing.assert_array_equal(out[:, :64], expected)
    assert report.clean, str(report)


# -- cp and shift ----------------------------------------------------------------------------------------------------

COPIES = {
    "128x256b": (128, 2, lambda lane: lane),
    "128x128b": (128, 1, lambda lane: lane),
    "64x128b.warpx2::02_13": (64, 1, lambda lane: lane % 64),
    "64x128b.warpx2::01_23": (64, 1, lambda lane: lane % 32 + lane // 64 * 32),
    "32x128b.warpx4": (32, 1, lambda lane: lane % 32),
}


@pytest.mark.parametrize("shape", COPIES)
@pytest.mark.parametrize("mode", [None, "32B", "128B"])
@pytest.mark.parametrize("group", [1, 2])
def test_copy(shape: str, mode: str | None, group: int) -> None:
    """Rows of shared memory reach the lanes of their shape, in each CTA from its own memory."""
    rows, chunks, source = COPIES[shape]
    rng = np.random.default_rng(rows)
    data = rng.integers(0, 256, (group, rows, 16 * chunks)).astype(np.uint8)
    leading, stride = (128 * 16, 128) if mode is None else (16, 8 * {"32B": 32, "128B": 128}[mode])
    images = []
    for rank in range(group):
        image = np.zeros(16384, np.uint8)
        for row in range(rows):
            for byte in range(16 * chunks):
                linear = IMAGE_BASE + offset(row, byte, mode, leading, stride)
                image[swizzle(linear, mode) - IMAGE_BASE] = data[rank, row, byte]
        images.append(image)
    body = f"""  cvt.u64.u32 %wide, %im; shr.u64 %wide, %wide, 4;
  mov.u64 %da, {descriptor(0, mode, leading, stride):#x}; add.s64 %da, %da, %wide;
  tcgen05.cp.cta_group::{group}.{shape} [%tm], %da;"""
    cells, report = run(body, images, columns=8, fill=np.zeros((group, 128, 8), np.uint32))
    words = data.view(np.uint32)
    for rank in range(group):
        expected = np.stack([words[rank, source(lane)] for lane in range(128)])
        np.testing.assert_array_equal(cells[rank][:, : 4 * chunks], expected)
    assert report.clean, str(report)


def test_copy_of_four_rows() -> None:
    """4x256b puts one row into each quarter of the lanes."""
    data = np.arange(4 * 32, dtype=np.uint8).reshape(4, 32)
    image = np.zeros(4096, np.uint8)
    for row in range(4):
        image[row * 16 : row * 16 + 16], image[2048 + row * 16 : 2048 + row * 16 + 16] = data[row, :16], data[row, 16:]
    body = f"""  cvt.u64.u32 %wide, %im; shr.u64 %wide, %wide, 4;
  mov.u64 %da, {descriptor(0, None, 2048, 128):#x}; add.s64 %da, %da, %wide;
  add.u32 %r40, %tm, {5 << 16}; tcgen05.cp.cta_group::1.4x256b [%r40], %da;"""
    cells, _ = run(body, [image], columns=8, fill=np.zeros((1, 128, 8), np.uint32))
    expected = np.zeros((128, 8), np.uint32)
    expected[5::32] = data.view(np.uint32)
    np.testing.assert_array_equal(cells[0], expected)


@pytest.mark.parametrize(("suffix", "bits", "shift"), [("b4x16_p64", 4, 2), ("b6x16_p32", 6, 0)])
def test_copy_decompresses(suffix: str, bits: int, shift: int) -> None:
    """Sixteen packed elements become sixteen bytes: e2m1 in bits 5:2, 6-bit types in bits 5:0."""
    elements = np.random.default_rng(bits).integers(0, 1 << bits, (128, 16))
    image = np.zeros(128 * 16, np.uint8)
    for row in range(128):
        packed = sum(int(e) << bits * i for i, e in enumerate(elements[row]))
        image[row * 16 : row * 16 + 2 * bits] = np.frombuffer(packed.to_bytes(2 * bits, "little"), np.uint8)
    body = f"""  cvt.u64.u32 %wide, %im; shr.u64 %wide, %wide, 4;
  mov.u64 %da, {descriptor(0, None, 16, 128):#x}; add.s64 %da, %da, %wide;
  tcgen05.cp.cta_group::1.128x128b.b8x16.{suffix} [%tm], %da;"""
    cells, _ = run(body, [image], columns=8, fill=np.zeros((1, 128, 8), np.uint32))
    np.testing.assert_array_equal(cells[0, :, :4].copy().view(np.uint8), elements << shift)


def test_shift() -> None:
    """Every lane takes the eight columns of the next one, from the addressed lane on; the last keeps its own."""
    fill = np.arange(128 * 16, dtype=np.uint32).reshape(1, 128, 16)
    body = f"  add.u32 %r40, %tm, {32 << 16}; tcgen05.shift.cta_group::1.down [%r40];"
    cells, _ = run(body, [np.zeros(16, np.uint8)], fill=fill, columns=16)
    expected = fill[0].copy()
    expected[32:127, :8] = fill[0, 33:, :8]
    np.testing.assert_array_equal(cells[0], expected)


# -- allocation ------------------------------------------------------------------------------------------------------

ALLOC = "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%slot], {};\n  ld.shared.b32 %r{}, [%slot];"
DEALLOC = "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r{}, {};"


def alone(body: str) -> npt.NDArray[np.uint32]:
    """Run a body in the only warp, beside the frame's own allocation of 128 columns."""
    return probe(body, threads=32)[0]


def test_places() -> None:
    """Allocations take the first free multiple of their size, and freed columns are used again."""
    out = alone(
        "\n".join(
            [
                *(ALLOC.format(64, j) for j in (1, 2)),
                ALLOC.format(32, 3),
                DEALLOC.format(1, 64),
                ALLOC.format(32, 4),
                *(f"st.global.b32 [%out+{4 * j}], %r{j};" for j in range(1, 5)),
                DEALLOC.format(2, 64),
                DEALLOC.format(3, 32),
                DEALLOC.format(4, 32),
            ]
        )
    )
    assert out[0, 1:5].tolist() == [128, 192, 256, 128]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (ALLOC.format(64, 1), "ends with tensor memory allocated: 64 at column 128"),
        (ALLOC.format(64, 1) + DEALLOC.format(1, 32), "32 columns at 0x80, where 64 were allocated"),
        (ALLOC.format(64, 1) + DEALLOC.format(1, 64) * 2, "0x80, which was freed before"),
        ("mov.u32 %r1, 32;" + DEALLOC.format(1, 32), "no allocation's"),
        (ALLOC.format(32, 1) + ALLOC.format(64, 2), "64 columns after one of 32"),
        ("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" + ALLOC.format(32, 1), "given up its permit"),
        ("mov.u32 %r9, 96;" + ALLOC.format("%r9", 1), "alloc of 96 columns.*nearest legal: (64|128)"),
    ],
)
def test_allocation_rules(body: str, message: str) -> None:
    """Leaks, wrong sizes, double frees, growing requests and lost permits are errors that say so."""
    with pytest.raises(ProtocolError) as caught:
        alone(body)
    assert re.search(message, str(caught.value), re.DOTALL), str(caught.value)


def test_bad_constant() -> None:
    """A constant that is no legal number of columns is refused before it runs."""
    with pytest.raises(UnsupportedInstruction, match="96 columns"):
        alone(ALLOC.format(96, 1))


def test_full_memory_blocks() -> None:
    """An allocation that does not fit waits, and the deadlock report says for what."""
    source = text("", allocated=128)
    twice = source.replace(
        "ALLOCATED:\n",
        "".join("  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%slot], 128;\n" for _ in range(4))
        + "ALLOCATED:\n",
        1,
    )
    arrays = [np.zeros((1, 16), np.uint8), np.zeros(8192, np.uint32), np.zeros(8192, np.uint32), np.uint32(16)]
    with pytest.raises(Deadlock, match="128 free columns of tensor memory, of which 512 of 512"):
        Device("sm_100a").load(twice)["probe"].launch(1, 128, arrays, shared_bytes=2048)


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        ("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r1}, [%lane];", MemoryFault, "nothing was ever written"),
        (
            "add.u32 %r0, %tm, 0x200000; tcgen05.st.sync.aligned.32x32b.x1.b32 [%r0], {%r1};",
            ProtocolError,
            "lanes are 0 to 31",
        ),
        ("tcgen05.st.sync.aligned.32x32b.x1.b32 [%lane+0x100000], {%r1};", ProtocolError, "lane 16 of its warp"),
        ("tcgen05.st.sync.aligned.16x64b.x1.b32 [%lane+0x80000], {%r1};", ProtocolError, "legal: 0 or 16"),
        ("tcgen05.st.sync.aligned.32x32b.x2.b32 [%lane+127], {%r1, %r2};", MemoryFault, "column 128 is not allocated"),
        ("tcgen05.st.sync.aligned.32x32b.x2.b32 [%lane+511], {%r1, %r2};", MemoryFault, "512 columns"),
    ],
)
def test_access_rights(body: str, error: type[Exception], message: str) -> None:
    """Accesses outside the allocation, the warp's lanes, or to memory that no thread wrote are faults."""
    with pytest.raises(error, match=message):
        probe(body)


def test_use_after_free() -> None:
    """Columns that have been given back are out of reach."""
    free = ALLOC.format(32, 1) + DEALLOC.format(1, 32)
    with pytest.raises(MemoryFault, match="column 128 has been deallocated"):
        alone(free + "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r1], {%r2};")


def test_registers_before_the_wait() -> None:
    """Using a register of a load before tcgen05.wait::ld is an error in text that keeps to the fences."""
    body = """  tcgen05.st.sync.aligned.32x32b.x1.b32 [%lane], {%r2};
  tcgen05.wait::st.sync.aligned;
  tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r1}, [%lane];
  st.global.b32 [%out], %r1;
  tcgen05.wait::ld.sync.aligned;"""
    with pytest.raises(ProtocolError, match=r"before tcgen05.wait::ld"):
        probe(body)


def test_registers_copied_before_another_load() -> None:
    """What a register was moved to keeps its value when another load fills the register again."""
    out, report = probe("""
  add.u32 %r3, %thread, 1000;
  tcgen05.st.sync.aligned.32x32b.x2.b32 [%lane], {%thread, %r3};
  tcgen05.wait::st.sync.aligned;
  setp.ge.u32 %p1, %tm, 0;
  tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r1}, [%lane];
  tcgen05.wait::ld.sync.aligned;
  mov.u32 %r2, %r1;
  @%p1 tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r1}, [%lane+1];
  tcgen05.wait::ld.sync.aligned;
  st.global.b32 [%out], %r2;
  st.global.b32 [%out+4], %r1;
""")
    assert report.clean
    assert (out[:, 0] == np.arange(128)).all()
    assert (out[:, 1] == np.arange(128) + 1000).all()
