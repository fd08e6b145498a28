"""wgmma.mma_async.sp and products of bits: against element-by-element readings of the layouts, and in a kernel."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from test_wgmma_unit import DTYPES, accumulator, descriptor, element_address, elements, shared_memory

from tilekit.emulator import Device, ProtocolError
from tilekit.emulator.ptx.matrix.wgmma import Wgmma, load_a, load_b, multiply_accumulate, operand_extents
from tilekit.emulator.ptx.matrix.wgmma_sparse import with_zeros

PAIRS = [(i, j) for i in range(4) for j in range(i + 1, 4)]
FORMS = [
    ("f16", "f32"),
    ("bf16", "f32"),
    ("f16", "f16"),
    ("tf32", "f32"),
    ("e4m3", "f32"),
    ("s8", "s32"),
    ("u8", "s32"),
]


def metadata(dtype: str, k: int, selector: int, seed: int) -> tuple[Any, Any]:
    """Random metadata for the four warps, and for each row which of its k places each stored element takes."""
    random = np.random.default_rng(seed)
    chunk = 2 if dtype == "tf32" else 4
    chunks = k // chunk
    lanes = chunks // 4
    words = np.full((4, 32), 0xFFFFFFFF, np.uint32)  # wrong where no lane should look
    places = []
    for row in range(64):
        warp, half, g = row // 16, row // 8 % 2, row % 8
        where = []
        for c in range(chunks):
            i, j = ((0, 1), (2, 3))[random.integers(2)] if dtype == "tf32" else PAIRS[random.integers(6)]
            where += [2 * c + i // 2] if dtype == "tf32" else [4 * c + i, 4 * c + j]
            narrow = dtype in ("e4m3", "s8", "u8")
            lane = 4 * g + selector * lanes + (c // 8 * 2 + half if narrow else c // 4)
            bit = 4 * (c % 8) if narrow else 4 * (c % 4) + 16 * half
            words[warp, lane] &= np.uint32(~(15 << bit) & 0xFFFFFFFF)
            words[warp, lane] |= np.uint32((i | j << 2) << bit)
        places.append(where)
    return words, places


@pytest.mark.parametrize(("dtype", "d_type"), FORMS)
@pytest.mark.parametrize("swizzle", ["128B", "64B", "32B", None])
def test_sparse_products(dtype: str, d_type: str, swizzle: Any) -> None:
    """A's stored elements go where each warp's metadata says, and B is twice as deep."""
    op = Wgmma(16, dtype, dtype, d_type, sparse=True)
    shared = shared_memory(dtype, 8)
    stride = {"128B": 1024, "64B": 512, "32B": 256, None: 256}[swizzle]
    leading = {"32B": 8192, None: 128}.get(swizzle, 16)
    a_bits, b_bits = descriptor(2048, leading, stride, swizzle), descriptor(32768, leading, stride, swizzle)
    stored = elements(shared, a_bits, False, 64, dtype)
    size = 32 // stored.shape[1]
    b = np.empty((16, op.k))
    beyond = {"32B": leading, None: 2 * leading}.get(swizzle)  # where the second half of k is not 32 bytes further
    for n, k in product(range(16), range(op.k)):
        far = beyond is not None and k >= op.stored_k
        bits = descriptor(32768 + beyond, leading, stride, swizzle) if far else b_bits
        address = element_address(bits, False, n, k - op.stored_k if far else k, size)
        b[n, k] = float(shared[address : address + size].view(DTYPES[dtype])[0])
    for selector in range(1 if dtype in ("e4m3", "s8", "u8") else 2):
        words, places = metadata(dtype, op.k, selector, 11 + selector)
        whole = np.zeros((64, op.k))
        for row in range(64):
            whole[row, places[row]] = stored[row]
        a = with_zeros(op, load_a(op, shared, [a_bits]), words[None], selector)
        result = multiply_accumulate(op, a, load_b(op, shared, [b_bits]), None)
        np.testing.assert_array_equal(accumulator(result, d_type, 16), whole @ b.T)


def test_transposed_b_of_a_sparse_product() -> None:
    """An MN-major B of 16-bit elements goes on for 32 k, as that of two dense instructions would."""
    sparse, dense = (Wgmma(64, "bf16", "bf16", "f32", b_mn_major=True, sparse=kind) for kind in (True, False))
    shared = shared_memory("bf16", 9)
    for swizzle, leading, stride in (("128B", 8192, 1024), ("64B", 4096, 512), (None, 2048, 128)):
        first = descriptor(16384, leading, stride, swizzle)
        second = descriptor(16384 + 2 * (stride if swizzle else leading), leading, stride, swizzle)
        np.testing.assert_array_equal(load_b(sparse, shared, [first]), load_b(dense, shared, [first, second]))
        extents = [operand_extents(op, "b", d) for op, d in ((sparse, [first]), (dense, [first, second]))]
        np.testing.assert_array_equal(*extents)


def test_products_of_bits() -> None:
    """b1 counts the ones of an and, 256 bits deep."""
    op = Wgmma(24, "b1", "b1", "s32")
    shared = np.random.default_rng(3).integers(0, 256, 65536, np.uint8)
    a_bits, b_bits = descriptor(2048, 16, 1024, "128B"), descriptor(32768, 16, 1024, "128B")
    result = multiply_accumulate(op, load_a(op, shared, [a_bits]), load_b(op, shared, [b_bits]), None)

    def rows(bits: int, count: int) -> Any:
        found = np.empty((count, 32), np.uint8)
        for row, byte in product(range(count), range(32)):
            found[row, byte] = shared[element_address(bits, False, row, byte, 1)]
        return np.unpackbits(found, axis=1).astype(np.int64)

    np.testing.assert_array_equal(accumulator(result, "s32", 24), rows(a_bits, 64) @ rows(b_bits, 24).T)


def kernel(instruction: str, meta: str) -> str:
    """A warpgroup multiplies A in shared memory (bf16, 64x16 stored) with B (8x32)."""
    return f""".version 8.2
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 m, .param .u64 out)
{{
  .shared .align 1024 .b8 tile[2560];
  .reg .b32 %t, %s, %o, %m, %v; .reg .f32 %d<4>; .reg .b64 %p, %w, %da, %db, %x; .reg .pred %q;
  mov.u32 %t, %tid.x; mov.u32 %s, tile;
  ld.param.u64 %p, [a]; mul.wide.u32 %w, %t, 16; add.u64 %p, %p, %w; shl.b32 %o, %t, 4; add.u32 %o, %s, %o;
  {{ .reg .b32 %r<4>; ld.global.v4.u32 {{%r0, %r1, %r2, %r3}}, [%p]; st.shared.v4.u32 [%o], {{%r0, %r1, %r2, %r3}}; }}
  ld.param.u64 %p, [b]; mul.wide.u32 %w, %t, 4; add.u64 %p, %p, %w; shl.b32 %o, %t, 2; add.u32 %o, %s, %o;
  ld.global.u32 %v, [%p]; st.shared.u32 [%o + 2048], %v;
  ld.param.u64 %p, [m]; add.u64 %p, %p, %w; ld.global.u32 %m, [%p];
  fence.proxy.async.shared::cta; bar.sync 0;
  shr.u32 %o, %s, 4; cvt.u64.u32 %da, %o; or.b64 %da, %da, {1 << 16 | (256 // 16) << 32 | 3 << 62};
  add.u32 %o, %s, 2048; shr.u32 %o, %o, 4; cvt.u64.u32 %db, %o;
  or.b64 %db, %db, {1 << 16 | (512 // 16) << 32 | 2 << 62};
  wgmma.fence.sync.aligned;
  {instruction} {{%d0, %d1, %d2, %d3}}, %da, %db, {meta} 0, 1, 1, 0, 0;
  wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;
  ld.param.u64 %p, [out]; mul.wide.u32 %w, %t, 16; add.u64 %p, %p, %w;
  st.global.v4.f32 [%p], {{%d0, %d1, %d2, %d3}};
  ret;
}}
"""


SPARSE = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.bf16.bf16"


def test_in_a_kernel(assemble: Any) -> None:
    """The instruction with metadata in registers; metadata that names an element twice is a fault."""
    text = kernel(SPARSE, "%m, 1,")
    assemble(text)
    op = Wgmma(8, "bf16", "bf16", "f32", sparse=True)
    tile = shared_memory("bf16", 4, 4096)
    words, places = metadata("bf16", op.k, 1, 12)
    out = np.zeros((128, 4), np.float32)
    Device("sm_90a").load(text)["k"].launch(1, 128, [tile[:2048], tile[2048:2560], words, out])
    image = np.zeros(4096, np.uint8)
    image[:2560] = tile[:2560]
    stored = elements(image, descriptor(0, 16, 256, "32B"), False, 64, "bf16")
    whole = np.zeros((64, 32))
    for row in range(64):
        whole[row, places[row]] = stored[row]
    bits = descriptor(2048, 16, 512, "64B")
    halves = [elements(image, bits, False, 8, "bf16"), elements(image, bits + 2, False, 8, "bf16")]
    want = whole @ np.concatenate(halves, axis=1).T
    got = accumulator(np.ascontiguousarray(out.T).view(np.uint32), "f32", 8)
    np.testing.assert_array_equal(got, want)
    with pytest.raises(ProtocolError, match="must be two different indices"):
        Device("sm_90a").load(text)["k"].launch(1, 128, [tile[:2048], tile[2048:2560], np.zeros(128, np.uint32), out])


def test_other_forms_assemble(assemble: Any) -> None:
    """ptxas takes the spellings that the emulator knows."""
    for name, tail in (("tf32", "%m, 0, 0, 1, 1"), ("s8", "%m, 0, 0")):
        k, d = (16, "f32") if name == "tf32" else (64, "s32")
        text = kernel(f"wgmma.mma_async.sp.sync.aligned.m64n8k{k}.{d}.{name}.{name}", "%m, 0,")
        text = text.replace("%m, 0, 0, 1, 1, 0, 0", tail)
        assemble(text if d == "f32" else text.replace(".reg .f32 %d<4>", ".reg .b32 %d<4>"))
        Device("sm_90a").load(text)
    bits = kernel("wgmma.mma_async.sync.aligned.m64n8k256.s32.b1.b1.and.popc", "").replace(" 0, 1, 1, 0, 0;", " 0;")
    assemble(bits.replace(".reg .f32 %d<4>", ".reg .b32 %d<4>"))
    Device("sm_90a").load(bits)
