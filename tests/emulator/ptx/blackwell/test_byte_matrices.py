"""ldmatrix and stmatrix of bytes and of packed narrower elements, in kernels of sm_100a."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tilekit.emulator import Device, UnsupportedInstruction


def text(instruction: str, registers: int, target: str = "sm_100a") -> str:
    """A warp loads matrices from what it copied to shared memory, and stores them transposed again."""
    names = ", ".join(f"%r{n}" for n in range(registers))
    return f""".version 8.8
.target {target}
.address_size 64
.visible .entry k(.param .u64 source, .param .u64 fragments, .param .u64 stored)
{{
  .shared .align 16 .b8 buffer[512]; .shared .align 16 .b8 back[512];
  .reg .b32 %t, %s, %o, %r<4>; .reg .b64 %p, %q, %d, %w;
  mov.u32 %t, %tid.x; mul.wide.u32 %w, %t, 16; shl.b32 %o, %t, 4;
  ld.param.u64 %p, [source]; add.u64 %p, %p, %w; mov.u32 %s, buffer; add.u32 %s, %s, %o;
  {{ .reg .b32 %v<4>; ld.global.v4.u32 {{%v0, %v1, %v2, %v3}}, [%p]; st.shared.v4.u32 [%s], {{%v0, %v1, %v2, %v3}}; }}
  bar.warp.sync -1;
  {instruction} {{{names}}}, [%s];
  ld.param.u64 %q, [fragments]; mul.wide.u32 %w, %t, {4 * registers}; add.u64 %q, %q, %w;
  {" ".join(f"st.global.u32 [%q + {4 * n}], %r{n};" for n in range(registers))}
  mov.u32 %s, back; add.u32 %s, %s, %o;
  stmatrix.sync.aligned.m16n8.x{registers}.trans.shared.b8 [%s], {{{names}}};
  bar.warp.sync -1;
  ld.param.u64 %d, [stored]; mul.wide.u32 %w, %t, {4 * registers}; add.u64 %d, %d, %w;
  mov.u32 %s, back; mul.lo.u32 %o, %t, {4 * registers}; add.u32 %s, %s, %o;
  {" ".join(f"ld.shared.u32 %r{n}, [%s + {4 * n}]; st.global.u32 [%d + {4 * n}], %r{n};" for n in range(registers))}
  ret;
}}
"""


@pytest.mark.parametrize(
    ("instruction", "registers"),
    [
        ("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8", 2),
        ("ldmatrix.sync.aligned.m16n16.x2.trans.shared::cta.b8", 4),
        ("ldmatrix.sync.aligned.m8n16.x2.shared.b8x16.b4x16_p64", 2),
        ("ldmatrix.sync.aligned.m8n16.x4.shared.b8x16.b6x16_p32", 4),
        ("ldmatrix.sync.aligned.m16n16.x2.trans.shared.b8x16.b4x16_p64", 4),
    ],
)
def test_fragments(instruction: str, registers: int, assemble: Any) -> None:
    """What ldmatrix leaves in each lane, and what stmatrix writes from there, element by element."""
    source = np.random.default_rng(2).integers(0, 256, (32, 16), np.uint8)
    fragments, back = np.zeros((32, registers, 4), np.uint8), np.zeros((8 * registers, 16), np.uint8)
    kernel = text(instruction, registers)
    assemble(kernel)
    report = Device("sm_100a").load(kernel)["k"].launch(1, 32, [source, fragments, back])
    assert report.clean, report
    bits = 4 if "b4" in instruction else 6 if "b6" in instruction else 8
    whole = [int.from_bytes(row.tobytes(), "little") for row in source]
    rows = np.array([[row >> bits * n & (1 << bits) - 1 for n in range(16)] for row in whole], np.uint8)
    for lane in range(32):
        g, t = lane // 4, lane % 4
        for r in range(registers):
            if "m16n16" in instruction:
                want = rows[16 * (r // 2) + 4 * t : 16 * (r // 2) + 4 * t + 4, g + 8 * (r % 2)]
            else:
                want = rows[8 * r + g, 4 * t : 4 * t + 4]
            assert fragments[lane, r].tolist() == want.tolist()
            got = [back[8 * r + 2 * t + p, g + 8 * h] for h in range(2) for p in range(2)]
            assert got == want.tolist()


def test_not_on_hopper() -> None:
    """sm_90a has none of them."""
    hopper = text("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8", 2, "sm_90a")
    with pytest.raises(UnsupportedInstruction, match="needs sm_100"):
        Device("sm_90a").load(hopper)
