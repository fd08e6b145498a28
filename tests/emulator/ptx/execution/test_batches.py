"""Like instructions of a block computed together: no order of reads and writes may show."""

from __future__ import annotations

import numpy as np
import pytest

from tilekit.emulator import Device

HEAD = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry run(.param .u64 out_param, .param .u32 some_param) {
    .reg .b64 out, at, wide<8>;
    .reg .b32 lane, some, a<8>, b<8>, packed<16>;
    .reg .f32 x<16>, y<16>;
    .reg .pred odd, on;
    ld.param.u64 out, [out_param];
    ld.param.u32 some, [some_param];
    mov.u32 lane, %tid.x;
    and.b32 a0, lane, 1;
    setp.ne.u32 odd, a0, 0;
    setp.ne.u32 on, some, 0;
    mul.wide.u32 at, lane, 64;
    add.u64 at, at, out;
    cvt.rn.f32.u32 x0, lane;
"""
TAIL = "    ret;\n}\n"


def results(body: str, some: int = 1) -> tuple[np.ndarray, str]:
    """What each lane stored, float32[32, 16], and the text of the block that did."""
    device = Device("sm_90a")
    out = device.buffer(np.full((32, 16), -1.0, np.float32))
    module = device.load(HEAD + body + TAIL)
    module["run"].launch(1, 32, [out, np.uint32(some)])
    sources = module.program("run", aligned_warps=True).sources
    return out.read(), "\n".join(sources.values())


LANE = np.arange(32, dtype=np.float32)


def test_like_instructions_are_computed_in_one_call() -> None:
    """Eight sums that are not read in between are one call, each with its own operands."""
    sums = "".join(f"    add.f32 x{n}, x0, 0F{np.float32(n).view(np.uint32):08X};\n" for n in range(1, 9))
    stores = "".join(f"    st.global.f32 [at + {4 * n}], x{n};\n" for n in range(1, 9))
    found, text = results(sums + stores)
    assert (found[:, 1:9] == LANE[:, None] + np.arange(1, 9)).all()
    assert "clean(array((" in text


def test_a_source_overwritten_meanwhile_is_read_before() -> None:
    """What was put off reads its operands as they were, though they change before it is needed."""
    sums = "".join(f"    add.f32 y{n}, x0, 0F3F800000;\n    mul.f32 x0, x0, 0F40000000;\n" for n in range(5))
    stores = "".join(f"    st.global.f32 [at + {4 * n}], y{n};\n" for n in range(5))
    found, _ = results(sums + stores)
    assert (found[:, :5] == LANE[:, None] * 2.0 ** np.arange(5) + 1).all()


def test_a_result_overwritten_under_a_predicate_keeps_the_other_lanes() -> None:
    """A write of some lanes to a result that was put off leaves the rest as computed."""
    body = "".join(f"    add.f32 y{n}, x0, 0F3F800000;\n" for n in range(5))
    body += "@odd mov.f32 y3, 0F00000000;\n@!on mov.f32 y4, 0F00000000;\n    add.f32 y2, y2, y3;\n"
    found, _ = results(body + "".join(f"    st.global.f32 [at + {4 * n}], y{n};\n" for n in range(5)))
    odd = LANE % 2 == 1
    assert (found[:, 3] == np.where(odd, 0, LANE + 1)).all()
    assert (found[:, 2] == LANE + 1 + found[:, 3]).all()
    assert (found[:, 4] == LANE + 1).all()


@pytest.mark.parametrize("some", [0, 1])
def test_results_survive_the_end_of_a_block(some: int) -> None:
    """What a later block reads is computed before the branch, whichever way it goes."""
    body = "".join(f"    fma.rn.f32 y{n}, x0, x0, x0;\n    ex2.approx.ftz.f32 y{n + 8}, x0;\n" for n in range(5))
    body += "@on bra over;\n    add.f32 y1, y1, y1;\nover:\n"
    found, _ = results(
        body + "".join(f"    st.global.f32 [at + {4 * n}], y{n + 8 * (n > 2)};\n" for n in range(5)), some
    )
    assert (found[:, 0] == LANE * LANE + LANE).all()
    assert (found[:, 1] == (LANE * LANE + LANE) * (1 if some else 2)).all()
    assert (found[:, 3] == 2.0**LANE).all()


def test_in_part_of_a_warp() -> None:
    """Lanes that a branch left out keep what they had."""
    body = "".join(f"    mov.f32 y{n}, 0FC0000000;\n" for n in range(6)) + "@odd bra over;\n"
    body += "".join(f"    add.f32 y{n}, x0, x0;\n" for n in range(6)) + "over:\n"
    found, _ = results(body + "".join(f"    st.global.f32 [at + {4 * n}], y{n};\n" for n in range(6)))
    assert (found[:, :6] == np.where(LANE % 2 == 1, -2, 2 * LANE)[:, None]).all()


def test_packed_and_unpacked() -> None:
    """Parts that are packed and taken apart again are what they were, also when a part has changed since."""
    body = "".join(f"    add.u32 a{n}, lane, {n};\n" for n in range(4))
    body += "    mov.b64 wide0, {a0, a1};\n    mov.b64 wide1, {a2, a3};\n    mov.b64 {b0, b1}, wide0;\n"
    body += "    add.u32 a2, a2, 100;\n    mov.b64 {b2, b3}, wide1;\n    mov.b64 wide2, {b3, b2};\n"
    body += "    st.global.v2.b32 [at], {b0, b1};\n    st.global.v2.b32 [at + 8], {b2, b3};\n"
    body += "    st.global.b64 [at + 16], wide2;\n    st.global.b32 [at + 24], a2;\n"
    found, _ = results(body)
    lane = np.arange(32)
    expected = np.stack([lane, lane + 1, lane + 2, lane + 3, lane + 3, lane + 2, lane + 102], 1)
    assert (found[:, :7].view(np.uint32) == expected).all()
