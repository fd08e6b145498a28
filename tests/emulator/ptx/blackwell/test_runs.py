"""Consecutive tcgen05.mma on one accumulator are executed as one: the same as one at a time, wherever operands lie.

A commit between two instructions keeps them apart, so each body runs twice: without commits, and with one after each
instruction. Operands are whatever the image holds where a descriptor drawn at random says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from operands import SPANS, codes, descriptor, offset, place
from tensor_kernel import IMAGE_BASE, run, text

from tilekit.emulator import MemoryFault
from tilekit.emulator.ptx.matrix.tcgen05_descriptors import OperandLayout, gather, operand_extents
from tilekit.emulator.ptx.matrix.tensor_mma import Mma

VALUES = np.array([-4, -3, -2, -1.5, -1, -0.5, 0, 0.5, 1, 1.5, 2, 3, 4], np.float32)
IMAGE = 32 * 1024
LEGAL_METADATA = np.array([0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b0110, 0b1110], np.uint32)
START = "  cvt.u64.u32 %wide, %im; shr.u64 %wide, %wide, 4;"
COMMIT = "  tcgen05.commit.cta_group::{0}.mbarrier::arrive::one.shared::cluster.b64 [%r60];"


@pytest.fixture
def lengths(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many instructions each execution had."""
    found: list[int] = []
    execute = Mma.execute

    def counted(self: Mma, issues: Sequence[Mma]) -> None:
        found.append(len(issues))
        execute(self, issues)

    monkeypatch.setattr(Mma, "execute", counted)
    return found


def apart(instructions: Sequence[str], group: int) -> str:
    """The same instructions with a commit after each, on a barrier of their own."""
    barrier = f"  add.u32 %r60, %s, 8; mbarrier.init.shared::cta.b64 [%r60], {len(instructions)};"
    return "\n".join([barrier, *(f"{text}\n{COMMIT.format(group)}" for text in instructions)])


def both_ways(
    instructions: Sequence[str], images: list[npt.NDArray[np.uint8]], lengths: list[int], **how: Any
) -> npt.NDArray[np.uint32]:
    """Tensor memory after the instructions as one, which must be that after one at a time."""
    together, _ = run("\n".join(instructions), images, **how)
    assert lengths == [len(instructions)]
    lengths.clear()
    single, _ = run(apart(instructions, len(images)), images, **how)
    assert lengths == [1] * len(instructions)
    np.testing.assert_array_equal(together, single)
    return together


def k_major(rng: np.random.Generator, rows: int, limit: int = IMAGE) -> int:
    """A legal descriptor of a K-major operand of 32 bytes a row, somewhere in the image."""
    mode: Any = rng.choice([None, "32B", "64B", "128B"])
    span = SPANS[mode]
    stride = 128 if mode is None else 8 * span
    leading = 16 if mode else int(rng.choice([128, 256])) * (rows // 8)
    last = offset(rows - 1, 31, mode, leading, stride)
    unit = 16 if mode is None else stride
    start = int(rng.integers((limit - last) // unit)) * unit
    return descriptor(start, mode, leading, stride)


def instruction(form: str, group: int, n: int, a: str, b: int, enable: int, more: str = "") -> str:
    """One tcgen05.mma in bf16 with A as text and B as a descriptor from the image's start."""
    m = 128 * group
    bits = 1 << 4 | 1 << 7 | 1 << 10 | n // 8 << 17 | m // 16 << 24 | (".sp" in form) << 2
    load = f"  mov.u64 %db, {b:#x}; add.s64 %db, %db, %wide;"
    return f"{load}\n  tcgen05.mma{form}.cta_group::{group}.kind::f16 [%tm], {a}, %db, {more}{bits:#x}, {enable};"


def image_of(rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Small bf16 values everywhere."""
    return codes(rng.choice(VALUES, (IMAGE // 2, 1)), "bf16").reshape(-1)


@pytest.mark.parametrize("group", [1, 2])
def test_a_ring_that_wraps(group: int, lengths: list[int]) -> None:
    """Stages 2, 3, 0 and 1 of a ring, with no commit between: the product of what each stage holds."""
    rng = np.random.default_rng(group)
    m, n = 128 * group, 32
    a, b = rng.choice(VALUES, (m, 64)), rng.choice(VALUES, (n, 64))
    images, body = [], [START]
    for rank in range(group):
        image = np.zeros(4 * 16384, np.uint8)
        body = [START]
        for step, stage in enumerate((2, 3, 0, 1)):
            ks = slice(16 * step, 16 * step + 16)
            for start, part in (
                (16384 * stage, a[128 * rank :][:128, ks]),
                (16384 * stage + 8192, b[n // group * rank :][: n // group, ks]),
            ):
                place(image, IMAGE_BASE, start, part, "bf16", lambda r, k: offset(r, 2 * k, "64B", 0, 512), "64B")
            body.append(f"  mov.u64 %da, {descriptor(16384 * stage, '64B', 16, 512):#x}; add.s64 %da, %da, %wide;")
            at = descriptor(16384 * stage + 8192, "64B", 16, 512)
            body.append(instruction("", group, n, "%da", at, int(step > 0)))
        images.append(image)
    cells, report = run("\n".join(body), images, columns=n)
    assert lengths == [4]
    np.testing.assert_array_equal(cells.view(np.float32).reshape(m, n), a.astype(np.float64) @ b.T.astype(np.float64))
    assert report.clean, str(report)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("group", [1, 2])
def test_operands_anywhere(group: int, seed: int, lengths: list[int]) -> None:
    """A and B in shared memory, six instructions in any order of addresses and with any layouts."""
    rng = np.random.default_rng(seed)
    body = [START]
    for step in range(6):
        a, b = k_major(rng, 128), k_major(rng, 64 // group)
        load = f"  mov.u64 %da, {a:#x}; add.s64 %da, %da, %wide;\n"
        text = load + instruction("", group, 64, "%da", b, int(step > 0))
        body.append(text)
    both_ways([body[0] + "\n" + body[1], *body[2:]], [image_of(rng) for _ in range(group)], lengths, columns=64)


def tensor_memory_steps(
    rng: np.random.Generator, group: int, columns: Sequence[int]
) -> tuple[list[str], npt.NDArray[np.uint32], list[npt.NDArray[np.uint8]]]:
    """Instructions with A in tensor memory at the given columns, what tensor memory holds before, and the images."""
    values = rng.choice(VALUES, (group * 128 * 256, 1))
    fill = np.ascontiguousarray(codes(values, "bf16").reshape(group, 128, -1)).view(np.uint32)
    body = []
    for step, column in enumerate(columns):
        at = f"  add.u32 %r40, %tm, {column};\n"
        body.append(at + instruction("", group, 32, "[%r40]", k_major(rng, 32 // group), int(step > 0)))
    return [START + "\n" + body[0], *body[1:]], fill, [image_of(rng) for _ in range(group)]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("group", [1, 2])
def test_a_in_tensor_memory_anywhere(group: int, seed: int, lengths: list[int]) -> None:
    """A in tensor memory, in columns in any order."""
    rng = np.random.default_rng(seed)
    instructions, fill, images = tensor_memory_steps(rng, group, rng.integers(32, 120, 5).tolist())
    both_ways(instructions, images, lengths, columns=32, fill=fill)


def test_a_in_the_columns_of_d(lengths: list[int]) -> None:
    """An instruction whose A is what the one before has written does not join it."""
    instructions, fill, images = tensor_memory_steps(np.random.default_rng(0), 1, [90, 61, 26, 40, 8])
    together, _ = run("\n".join(instructions), images, columns=32, fill=fill)
    assert lengths == [2, 2, 1]
    single, _ = run(apart(instructions, 1), images, columns=32, fill=fill)
    np.testing.assert_array_equal(together, single)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("group", [1, 2])
def test_scales_anywhere(group: int, seed: int, lengths: list[int]) -> None:
    """Block-scaled operands in any order of addresses, and scales in any columns."""
    rng = np.random.default_rng(seed)
    n, m = 32, 128 * group
    quarter = rng.integers(125, 130, (group, 32, 64, 4)).astype(np.uint8).view(np.uint32)[..., 0]
    fill = np.tile(quarter, (1, 4, 1))
    body = []
    for step in range(4):
        a, b = k_major(rng, 128), k_major(rng, n // group)
        bits = n // 8 << 17 | 1 << 23 | m // 16 << 24 | step << 29 | step << 4
        body.append(
            f"  mov.u64 %da, {a:#x}; add.s64 %da, %da, %wide; mov.u64 %db, {b:#x}; add.s64 %db, %db, %wide;\n"
            f"  add.u32 %r40, %tm, {int(rng.integers(40, 60))}; add.u32 %r41, %tm, {int(rng.integers(40, 60))};\n"
            f"  tcgen05.mma.cta_group::{group}.kind::mxf8f6f4.block_scale [%tm], %da, %db, {bits:#x}, [%r40], [%r41], "
            f"{int(step > 0)};"
        )
    images = [codes(rng.choice(VALUES, (IMAGE, 1)), "e4m3").reshape(-1) for _ in range(group)]
    both_ways([START + "\n" + body[0], *body[1:]], images, lengths, columns=n, fill=fill)


@pytest.mark.parametrize("seed", range(2))
def test_sparse_anywhere(seed: int, lengths: list[int]) -> None:
    """Sparse A, its metadata in any columns, and B of 64 bytes a row in any order of addresses."""
    rng = np.random.default_rng(seed)
    nibbles = rng.choice(LEGAL_METADATA, (1, 128, 64, 8))
    fill = (nibbles << (4 * np.arange(8, dtype=np.uint32))).sum(-1).astype(np.uint32)
    body = []
    for step in range(4):
        a = k_major(rng, 128)
        b = descriptor(int(rng.integers(24)) * 1024, "128B", 16, 1024)
        meta = f"  mov.u64 %da, {a:#x}; add.s64 %da, %da, %wide; add.u32 %r40, %tm, {int(rng.integers(40, 60))};\n"
        body.append(meta + instruction(".sp", 1, 32, "%da", b, int(step > 0), "[%r40], "))
    both_ways([START + "\n" + body[0], *body[1:]], [image_of(rng)], lengths, columns=32, fill=fill)


@pytest.mark.parametrize("seed", range(2))
def test_weight_stationary_anywhere(seed: int, lengths: list[int]) -> None:
    """The .ws form in any order of addresses."""
    rng = np.random.default_rng(seed)
    body = []
    for step in range(4):
        load = f"  mov.u64 %da, {k_major(rng, 128):#x}; add.s64 %da, %da, %wide;\n"
        body.append(load + instruction(".ws", 1, 64, "%da", k_major(rng, 64), int(step > 0)))
    both_ways([START + "\n" + body[0], *body[1:]], [image_of(rng)], lengths, columns=64)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("weight_stationary", [False, True])
def test_instructions_that_differ(weight_stationary: bool, seed: int, lengths: list[int]) -> None:
    """Instructions that differ in D, shape, sign, disabled or zeroed places, scale of D, or where A lies."""
    rng = np.random.default_rng(seed)
    fill = rng.integers(-4, 5, (1, 128, 96)).astype(np.float32).view(np.uint32)
    fill[:, :, 64:] = codes(rng.choice(VALUES, (128 * 64, 1)), "bf16").reshape(1, 128, -1).view(np.uint32)
    body = [START]
    odds = ("d", "shape", "sign", "places", "scale", "enable", "a")
    for change in rng.permutation([["none", odd] for odd in odds]).flat:
        n = 64 if weight_stationary else 16 if change == "shape" else 32
        bits = 1 << 4 | 1 << 7 | 1 << 10 | int(change == "sign") << 13 | n // 8 << 17 | 8 << 24
        column = 32 if change == "d" and not weight_stationary else 0
        a = "[%r41]" if change == "a" else "%da"
        masks = last = ""
        if change == "places" and weight_stationary:
            last = ", %dc"
        elif change == "places":
            masks = "{0, 0xFF00, 0, 0xFFFFFFFF}, "
        elif change == "scale" and not weight_stationary:
            last = ", 1"
        zero_columns = 1 | 1 << 39 | 2 << 40 | 1 << 48
        body.append(
            f"  mov.u64 %da, {k_major(rng, 128):#x}; add.s64 %da, %da, %wide; mov.u64 %dc, {zero_columns:#x};\n"
            f"  mov.u64 %db, {k_major(rng, n):#x}; add.s64 %db, %db, %wide;\n"
            f"  add.u32 %r40, %tm, {column}; add.u32 %r41, %tm, {int(rng.integers(64, 88))};\n"
            f"  tcgen05.mma{'.ws' if weight_stationary else ''}.cta_group::1.kind::f16 [%r40], {a}, %db, {bits:#x}, "
            f"{masks}{int(change != 'enable')}{last};"
        )
    images = [image_of(rng)]
    instructions = [body[0] + "\n" + body[1], *body[2:]]
    together, _ = run("\n".join(instructions), images, columns=64, fill=fill)
    assert sum(lengths) == 14
    assert len(lengths) > 1
    lengths.clear()
    single, _ = run(apart(instructions, 1), images, columns=64, fill=fill)
    assert lengths == [1] * 14
    np.testing.assert_array_equal(together, single)


def test_disabled_lanes_are_not_read(lengths: list[int]) -> None:
    """Onto D whose disabled lanes were never written: together and one at a time."""
    rng = np.random.default_rng(0)
    body = [START]
    for step in range(3):
        load = f"  mov.u64 %da, {k_major(rng, 128):#x}; add.s64 %da, %da, %wide;\n"
        text = instruction("", 1, 32, "%da", k_major(rng, 32), step)
        head, _, tail = text.rpartition(f", {step};")
        body.append(f"{load}{head}, {{0, 0, 0, 0xFFFFFFFF}}, {int(step > 0)};{tail}")
    fill = np.zeros((1, 128, 8), np.uint32)
    how: dict[str, Any] = {"columns": 8, "fill": fill}
    both_ways([body[0] + "\n" + body[1], *body[2:]], [image_of(rng)], lengths, **how)


@pytest.mark.parametrize(
    ("start", "where"),
    [
        (IMAGE, r"from 0x8800\.\.0xa800, beyond the end of shared memory of CTA 0 at 0x8800"),
        (-2048, r"from 0x0\.\.0x2000, before the first usable byte of shared memory of CTA 0 at 0x400"),
    ],
    ids=["end", "reserved"],
)
def test_which_of_a_run_leaves_shared_memory(start: int, where: str) -> None:
    """The fault names the instruction of the run whose operand leaves shared memory, and its descriptor."""
    good = descriptor(0, "64B", 16, 512)
    body = [START]
    for step, bits in enumerate((good, good + start // 16, good)):
        body.append(f"  mov.u64 %da, {bits:#x}; add.s64 %da, %da, %wide;")
        body.append(instruction("", 1, 32, "%da", good, int(step > 0)))
    with pytest.raises(MemoryFault, match=f"tcgen05.mma reads A {where}") as caught:
        run("\n".join(body), [np.zeros(IMAGE, np.uint8)], columns=32)
    lines = text("\n".join(body), columns=32).splitlines()
    mmas = [number for number, line in enumerate(lines, 1) if "tcgen05.mma" in line]
    assert caught.value.line == mmas[1]
    assert caught.value.table.startswith(f"descriptor of A {good + (start + IMAGE_BASE) // 16:#018x}: start ")


@pytest.mark.parametrize("seed", range(40))
def test_gathered_in_any_order(seed: int) -> None:
    """What descriptors in any order read together is what each reads alone, and so are the bytes reported."""
    rng = np.random.default_rng(seed)
    shared = rng.integers(0, 256, 200 * 1024, dtype=np.uint8)
    rows = 8 * int(rng.integers(1, 17))
    mn_major = bool(rng.integers(2))
    layout = (
        OperandLayout(True, rows, int(rng.choice([8, 16, 32])), int(rng.choice([1, 2, 4]))) if mn_major
        else OperandLayout(False, rows, int(rng.choice([1, 2, 4])), first_row=int(rng.integers(64)))
    )  # fmt: skip
    bits = []
    for _ in range(int(rng.integers(1, 9))):
        mode: Any = rng.choice([None, "128B_atom_32B", "128B", "64B", "32B"])
        leading, stride = (16 * int(rng.integers(0, 64)) for _ in range(2))
        start = 16 * int(rng.integers(0, 6 * 1024))
        bits.append(descriptor(start, mode, leading, stride) | int(rng.integers(8)) << 49)
    together = gather(shared, layout, bits)
    axis = 0 if mn_major else 1
    np.testing.assert_array_equal(together, np.concatenate([gather(shared, layout, [one]) for one in bits], axis=axis))
    touched = np.zeros(shared.size, np.bool_)
    for low, high in np.concatenate([operand_extents(layout, [one]) for one in bits]):
        touched[low:high] = True
    reported = operand_extents(layout, bits)
    assert (np.flatnonzero(np.diff(np.r_[0, touched.view(np.int8), 0])).reshape(-1, 2) == reported).all()
