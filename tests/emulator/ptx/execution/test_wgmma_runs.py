"""Consecutive wgmmas on the same accumulators are executed as one: the same as one at a time, wherever operands lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tilekit.emulator import Device, MemoryFault, ProtocolError
from tilekit.emulator.ptx.matrix import wgmma_queue
from tilekit.emulator.ptx.matrix.operand_chunks import Chunks, OperandOutside, relative
from tilekit.emulator.ptx.matrix.wgmma import Operand, Wgmma, load_a, load_b, operand_extents

SWIZZLES = {None: 0, "128B": 1, "64B": 2, "32B": 3}
SPANS = {None: 16, "128B": 128, "64B": 64, "32B": 32}
IMAGE = 32 * 1024
MULTIPLY = f"    wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {{{', '.join(f'%d{r}' for r in range(16))}}}, "
BASE = 1024
"""Where dynamic shared memory begins: behind the reserved kilobyte."""


def descriptor(start: int, mode: str | None, leading: int, stride: int) -> int:
    """A matrix descriptor."""
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | SWIZZLES[mode] << 62


def anywhere(rng: np.random.Generator, rows: int) -> int:
    """A legal descriptor of a K-major operand of 32 bytes a row, somewhere in the image."""
    mode: Any = rng.choice(list(SWIZZLES))
    span = SPANS[mode]
    stride = 8 * span
    leading = 16 if mode else int(rng.choice([128, 256])) * (rows // 8)
    last = (rows - 1) % 8 * span + (rows - 1) // 8 * stride + leading * (mode is None) + 32
    return descriptor(BASE + int(rng.integers((IMAGE - last) // stride)) * stride, mode, leading, stride)


def kernel(instructions: Sequence[str], *, apart: bool) -> str:
    """A warpgroup that fills shared memory from an image, multiplies, and writes its accumulators out."""
    wait = "    wgmma.commit_group.sync.aligned;\n    wgmma.wait_group.sync.aligned 0;\n"
    multiply = (f"\n{wait}" if apart else "\n").join(instructions)
    store = "\n".join(f"    st.global.b32 [%out+{4 * r}], %d{r};" for r in range(16))
    clear = " ".join(f"mov.b32 %d{r}, 0;" for r in range(16))
    return f"""
.version 8.2
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 smem[];
.visible .entry multiply(.param .u64 image, .param .u64 out) .maxntid 128 {{
    .reg .b32 %d<16>, %r<8>; .reg .b64 %out, %in, %wide; .reg .pred %p, %more;
    ld.param.u64 %in, [image];
    ld.param.u64 %out, [out];
    mov.u32 %r0, %tid.x;
    mul.wide.u32 %wide, %r0, 64;
    add.s64 %out, %out, %wide;
    shl.b32 %r1, %r0, 4;
    mov.u32 %r6, smem;
NEXT:
    cvt.u64.u32 %wide, %r1;
    add.s64 %wide, %in, %wide;
    ld.global.v4.b32 {{%r2, %r3, %r4, %r5}}, [%wide];
    add.u32 %r7, %r6, %r1;
    st.shared.v4.b32 [%r7], {{%r2, %r3, %r4, %r5}};
    add.u32 %r1, %r1, 2048;
    setp.lt.u32 %p, %r1, {IMAGE};
    @%p bra NEXT;
    fence.proxy.async;
    bar.sync 0;
    {clear}
    setp.eq.u32 %more, 0, 0;
    wgmma.fence.sync.aligned;
{multiply}
{wait}
{store}
    ret;
}}
"""


def values(rng: np.random.Generator, count: int) -> npt.NDArray[np.uint8]:
    """Small bf16 values."""
    small = rng.choice(np.array([-3, -2, -1, -0.5, 0, 0.5, 1, 2, 3], np.float32), count)
    return (small.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)


@pytest.mark.parametrize("seed", range(4))
def test_operands_anywhere(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six wgmmas in any order of addresses and with any layouts, as one and with a wait after each."""
    rng = np.random.default_rng(seed)
    image = values(rng, IMAGE // 2)
    instructions = [f"{MULTIPLY}{anywhere(rng, 64)}, {anywhere(rng, 32)}, %more, 1, 1, 0, 0;" for _ in range(6)]
    lengths: list[int] = []
    execute = wgmma_queue._execute_run

    def counted(group: Any, run: Sequence[Any]) -> None:
        lengths.append(len(run))
        execute(group, run)

    monkeypatch.setattr(wgmma_queue, "_execute_run", counted)
    found = []
    for apart in (False, True):
        out = np.zeros((128, 16), np.float32)
        text = kernel(instructions, apart=apart)
        Device("sm_90a").load(text)["multiply"].launch(1, 128, [image, out], shared_bytes=IMAGE)
        found.append(out)
    assert lengths == [6, 1, 1, 1, 1, 1, 1]
    np.testing.assert_array_equal(*found)
    assert found[0].any()


@pytest.mark.parametrize("seed", range(4))
def test_instructions_that_differ(seed: int) -> None:
    """Twelve wgmmas that differ in accumulators, scale-d, sign, sparsity, selector, or where A lies: the same apart."""
    rng = np.random.default_rng(seed)
    image = values(rng, IMAGE // 2)
    instructions = []
    for _ in range(12):
        kind = rng.choice(["plain", "plain", "half", "clear", "sign", "registers", "sparse"])
        a, b = anywhere(rng, 64), anywhere(rng, 32)
        first = int(rng.choice([0, 8])) if kind == "half" else 0
        d = "{" + ", ".join(f"%d{first + r}" for r in range(8 if kind == "half" else 16)) + "}"
        shape = f"m64n{16 if kind == 'half' else 32}k16.f32.bf16.bf16 {d}"
        if kind == "registers":
            text = f"{shape}, {{%a0, %a1, %a2, %a3}}, {b}, %more, 1, 1, 0;"
        elif kind == "sparse":
            wide = descriptor(BASE + 1024 * int(rng.integers(24)), "128B", 16, 1024)
            shape = shape.replace("k16", "k32")
            text = f"{shape}, {a}, {wide}, %meta, {int(rng.integers(2))}, %more, 1, 1, 0, 0;"
        else:
            scale = "%less" if kind == "clear" else "%more"
            text = f"{shape}, {a}, {b}, {scale}, {-1 if kind == 'sign' else 1}, 1, 0, 0;"
        instructions.append(f"    wgmma.mma_async.{'sp.' * (kind == 'sparse')}sync.aligned.{text}")
    found = []
    for apart in (False, True):
        out = np.zeros((128, 16), np.float32)
        text = kernel(instructions, apart=apart).replace(".reg .pred", ".reg .b32 %a<4>, %meta; .reg .pred %less,")
        fill = " ".join(f"mov.b32 %a{r}, {0x3F804000 + (r << 23):#x};" for r in range(4))
        setup = f"{fill} shr.u32 %meta, %r0, 1; and.b32 %meta, %meta, 1; mul.lo.u32 %meta, %meta, 0x55555555;"
        setup += " add.u32 %meta, %meta, 0x44444444; setp.ne.u32 %less, 0, 0;"
        text = text.replace("    wgmma.fence", f"    {setup}\n    wgmma.fence", 1)
        Device("sm_90a").load(text)["multiply"].launch(1, 128, [image, out], shared_bytes=IMAGE)
        found.append(out)
    np.testing.assert_array_equal(*found)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("operand", ["a", "b"])
def test_gathered_in_any_order(seed: int, operand: Operand) -> None:
    """What descriptors in any order read together is what each reads alone, and so are the bytes reported."""
    rng = np.random.default_rng(seed)
    shared = values(rng, 128 * 1024)
    mn_major, sparse = bool(rng.integers(2)), bool(rng.integers(2))
    op = Wgmma(8 * int(rng.integers(1, 9)), "bf16", "bf16", "f32", a_mn_major=mn_major, b_mn_major=mn_major,
               sparse=sparse)  # fmt: skip
    bits = []
    for _ in range(int(rng.integers(1, 9))):
        mode: Any = rng.choice(list(SWIZZLES))
        leading, stride = (16 * int(rng.integers(0, 64)) for _ in range(2))
        start = 16 * int(rng.integers(0, 6 * 1024))
        bits.append(descriptor(start, mode, leading, stride) | int(rng.integers(8)) << 49)
    load, axis = (load_a, 1) if operand == "a" else (load_b, 0)
    together = load(op, shared, bits)
    np.testing.assert_array_equal(together, np.concatenate([load(op, shared, [one]) for one in bits], axis=axis))
    touched = np.zeros(shared.size, np.bool_)
    for low, high in np.concatenate([operand_extents(op, operand, [one]) for one in bits]):
        touched[low:high] = True
    edges = np.flatnonzero(np.diff(np.r_[0, touched.view(np.int8), 0])).reshape(-1, 2)
    assert (edges == operand_extents(op, operand, bits)).all()


def test_the_second_half_of_a_sparse_b_does_not_wrap() -> None:
    """The half of B that a leading offset puts behind 256 KiB is outside, not at the start of shared memory."""
    op = Wgmma(8, "bf16", "bf16", "f32", sparse=True)
    bits = descriptor(1024, None, 0x3FE00, 128)
    with pytest.raises(OperandOutside):
        load_b(op, np.zeros(300 * 1024, np.uint8), [bits])
    assert int(operand_extents(op, "b", [bits]).max()) > 1 << 18


@pytest.mark.parametrize(
    ("start", "where"),
    [
        (0, r"before the first usable byte of shared memory of CTA 0 at 0x400"),
        (BASE + IMAGE, r"beyond the end of shared memory of CTA 0 at 0x8400"),
    ],
)
def test_which_of_a_run_leaves_shared_memory(start: int, where: str) -> None:
    """The fault names the wgmma of the run whose operand leaves shared memory."""
    a = descriptor(BASE, "64B", 16, 512)
    starts = (BASE, start, BASE)
    instructions = [f"{MULTIPLY}{a}, {descriptor(at, '64B', 16, 512)}, %more, 1, 1, 0, 0;" for at in starts]
    text = kernel(instructions, apart=False)
    image, out = values(np.random.default_rng(0), IMAGE // 2), np.zeros((128, 16), np.float32)
    with pytest.raises(MemoryFault, match=f"wgmma reads B from .*, {where}") as caught:
        Device("sm_90a").load(text)["multiply"].launch(1, 128, [image, out], shared_bytes=IMAGE)
    lines = [number for number, line in enumerate(text.splitlines(), 1) if "wgmma.mma_async" in line]
    assert caught.value.line == lines[1]


def test_no_table_has_a_chunk_below_its_base() -> None:
    """A negative index, which NumPy would take from the end, cannot be made."""
    with pytest.raises(ValueError, match="1 chunks below the base"):
        Chunks.of(np.array([[3, -1]]))


@pytest.mark.parametrize("seed", range(5))
def test_the_base_is_at_or_below_every_start(seed: int) -> None:
    """Starts in any order count from a multiple of 1024 at or below the lowest, and add up to what they were."""
    bits = np.random.default_rng(seed).integers(0, 1 << 63, 7).tolist()
    base, starts, rest = relative(tuple(bits))
    assert base % 1024 == 0
    assert min(starts) in range(64)
    assert [base // 16 + start | high << 14 for start, high in zip(starts, rest, strict=True)] == bits


@pytest.mark.parametrize(
    ("base", "bounds", "inside"),
    [(1024, None, True), (1024 - 16, None, True), (1024, (1056, 2048), False), (1024, (1040, 1072), True),
     (1024, (1040, 1071), False), (2048 - 48, None, True), (2048 - 32, None, False), (-16, None, False)],
)  # fmt: skip
def test_reads_stay_inside(base: int, bounds: tuple[int, int] | None, inside: bool) -> None:
    """A chunk that ends where shared memory does is read, the next one is refused, on either side."""
    shared = np.arange(2048, dtype=np.int64).astype(np.uint8)
    chunks = Chunks.of(np.array([[2, 1]]))
    if not inside:
        with pytest.raises(OperandOutside):
            chunks.read(shared, base, bounds)
        return
    expected = np.concatenate([shared[base + 32 : base + 48], shared[base + 16 : base + 32]])
    np.testing.assert_array_equal(chunks.read(shared, base, bounds).reshape(-1), expected)


@pytest.mark.parametrize("odd", ["scale-d", "A", "B"])
def test_warps_that_disagree(odd: str) -> None:
    """A wgmma is one instruction of four warps: one whose scale-d or descriptor differs is a fault that says which."""
    d = descriptor(BASE, "64B", 16, 512)
    operands = f"%odd, {d}" if odd == "A" else f"{d}, %odd"
    text = kernel([f"{MULTIPLY}{operands}, %more, 1, 1, 0, 0;"], apart=False)
    choose = f"mov.b64 %odd, {d}; setp.ne.u32 %p, %r5, 2; @!%p add.s64 %odd, %odd, 2;"
    if odd == "scale-d":
        choose = f"mov.b64 %odd, {d}; setp.ne.u32 %more, %r5, 2;"
    text = text.replace("setp.eq.u32 %more, 0, 0;", f"setp.eq.u32 %more, 0, 0; shr.u32 %r5, %r0, 5; {choose}")
    text = text.replace(".reg .pred", ".reg .b64 %odd; .reg .pred")
    image, out = values(np.random.default_rng(0), IMAGE // 2), np.zeros((128, 16), np.float32)
    message = "disagree on scale-d" if odd == "scale-d" else "issue different wgmmas"
    with pytest.raises(ProtocolError, match=message):
        Device("sm_90a").load(text)["multiply"].launch(1, 128, [image, out], shared_bytes=IMAGE)
