"""Without checks, stores of a block are made together: no result and no fault may show it."""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
import pytest
from gemm_text import gemm_text
from test_gemm import run as run_gemm

from tilekit.emulator import BarrierFault, Device, MemoryFault

Check = Literal["full", "protocol", "off"]
HEAD = """
.version 8.0
.target sm_90a
.address_size 64
.visible .entry run(.param .u64 out_param) {
    .shared .align 16 .b8 tile[4096];
    .reg .b64 out, at;
    .reg .b32 lane, place, a<16>, b<16>;
    .reg .pred odd;
    ld.param.u64 out, [out_param];
    mov.u32 lane, %tid.x;
    and.b32 a0, lane, 1;
    setp.ne.u32 odd, a0, 0;
    mul.wide.u32 at, lane, 64;
    add.u64 at, at, out;
    shl.b32 place, lane, 4;
    mov.u32 a1, tile;
    add.u32 place, place, a1;
"""
TAIL = "    ret;\n}\n"
LANE = np.arange(32)


def results(body: str, check: Check) -> tuple[np.ndarray, str]:
    """What each lane stored, uint32[32, 16], and the generated code."""
    device = Device("sm_90a", check=check)
    out = device.buffer(np.zeros((32, 16), np.uint32))
    module = device.load(HEAD + body + TAIL)
    module["run"].launch(1, 32, [out])
    sources = module.program("run", aligned_warps=True, each_access=check != "off").sources
    return out.read(), "\n".join(sources.values())


def alike(body: str, calls: int) -> np.ndarray:
    """What is stored, the same with and without checks; without, by so many calls for several instructions."""
    (checked, one_by_one), (found, together) = (results(body, check) for check in ("protocol", "off"))
    assert (found == checked).all()
    assert "store_together" not in one_by_one
    assert len(re.findall(r"store_together\(w, '\w+', \d, \d, \(\d+, \d", together)) == calls
    return found


def test_arithmetic_in_between_does_not_part_them() -> None:
    """Four stores with sums between them are one call."""
    body = "".join(f"    add.u32 a2, lane, {n};\n    st.global.u32 [at + {4 * n}], a2;\n" for n in range(4))
    assert (alike(body, 1)[:, :4] == LANE[:, None] + np.arange(4)).all()


def test_a_register_that_changes_is_stored_before() -> None:
    """What a store stores is what its register was at its place in the text."""
    body = "    mov.u32 a2, lane;\n"
    body += "".join(f"    st.global.u32 [at + {4 * n}], a2;\n@odd add.u32 a2, a2, 1;\n" for n in range(4))
    assert (alike(body, 0)[:, :4] == LANE[:, None] + LANE[:, None] % 2 * np.arange(4)).all()


def test_an_address_register_may_change() -> None:
    """Addresses are those of the moment."""
    body = "".join(f"    add.u32 b{n}, lane, {n};\n" for n in range(4))
    body += "".join(f"    st.global.u32 [at], b{n};\n    add.u64 at, at, 4;\n" for n in range(4))
    assert (alike(body, 1)[:, :4] == LANE[:, None] + np.arange(4)).all()


def test_a_load_sees_them() -> None:
    """What is loaded after a store is what was stored, also by another lane."""
    body = "    st.shared.v2.u32 [place], {lane, lane};\n    st.shared.v2.u32 [place + 8], {a0, lane};\n"
    body += "    xor.b32 a3, place, 16;\n    ld.shared.v4.u32 {b0, b1, b2, b3}, [a3];\n"
    body += "    st.global.v4.u32 [at], {b0, b1, b2, b3};\n"
    neighbour = LANE ^ 1
    assert (alike(body, 1)[:, :4] == np.stack([neighbour, neighbour, neighbour & 1, neighbour], 1)).all()


def test_the_last_of_two_stores_to_a_place_wins() -> None:
    """Order matters where they overlap, of other sizes too, and where one is predicated or uniform."""
    body = "    add.u32 b0, lane, 100;\n    add.u32 b1, lane, 200;\n    mov.b32 b2, 7;\n"
    body += "    st.global.u32 [at], b0;\n    st.global.u32 [at], b1;\n"
    body += "    st.global.u32 [at + 4], b0;\n@odd st.global.u32 [at + 4], b1;\n    st.global.u32 [at + 8], b0;\n"
    body += "    st.global.u16 [at + 8], a0;\n    st.global.u32 [at + 12], b1;\n    st.global.u32 [out + 12], b2;\n"
    found = alike(body, 1)
    assert (found[:, 0] == LANE + 200).all()
    assert (found[:, 1] == np.where(LANE % 2 == 1, LANE + 200, LANE + 100)).all()
    assert (found[:, 2] == LANE % 2).all()
    assert (found[:, 3] == np.where(LANE == 0, 7, LANE + 200)).all()


def test_vectors_of_other_lengths() -> None:
    """Stores of one, two and four elements, and of other types, are each made with their like."""
    body = "".join(f"    add.u32 b{n}, lane, {n};\n" for n in range(8))
    body += "    st.global.v4.u32 [at], {b0, b1, b2, b3};\n    st.global.u32 [at + 16], b4;\n"
    body += "    st.global.u32 [at + 20], b5;\n    st.global.v2.u32 [at + 24], {b6, b7};\n"
    body += "    st.global.v2.u32 [at + 32], {b0, b1};\n    st.global.u16 [at + 40], b2;\n"
    body += "    st.global.u16 [at + 42], b3;\n    st.global.v2.u16 [at + 44], {b4, b5};\n"
    found = alike(body, 3)
    assert (found[:, :8] == LANE[:, None] + np.arange(8)).all()
    assert (found[:, 8:10] == LANE[:, None] + np.arange(2)).all()
    assert (found[:, 10] == LANE + 2 + (LANE + 3 << 16)).all()
    assert (found[:, 11] == LANE + 4 + (LANE + 5 << 16)).all()


def test_matrices() -> None:
    """``stmatrix`` puts the same rows into the same places."""
    body = "".join(f"    mul.lo.u32 b{n}, lane, {n + 3};\n" for n in range(8))
    body += "    stmatrix.sync.aligned.m8n8.x4.shared.b16 [place], {b0, b1, b2, b3};\n    add.u32 a4, place, 512;\n"
    body += "    stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [a4], {b4, b5, b6, b7};\n    add.u32 a5, a4, 512;\n"
    body += "    stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [a5], {b0, b2, b4, b6};\n    add.u32 a6, a5, 512;\n"
    body += "    stmatrix.sync.aligned.m8n8.x2.shared.b16 [a6], {b5, b1};\n    bar.warp.sync -1;\n"
    body += "".join(
        f"    ld.shared.v4.u32 {{b0, b1, b2, b3}}, [place + {512 * n}];\n"
        f"    st.global.v4.u32 [at + {16 * n}], {{b0, b1, b2, b3}};\n"
        for n in range(4)
    )
    (checked, _), (found, text) = (results(body, check) for check in ("protocol", "off"))
    assert (found == checked).all()
    assert found.any(axis=0).all()
    assert len(re.findall(r"store_matrices\(w, 4, True, \(\d+, \d+", text)) == 1


@pytest.mark.parametrize(
    ("bad", "error", "words"),
    [
        ("st.global.u32 [at + 2], b1;", MemoryFault, "must be a multiple of 4"),
        ("st.global.u32 [at + 65536], b1;", MemoryFault, "bytes past its end"),
        ("st.shared.u32 [place + 4096], b1;", MemoryFault, "out of bounds"),
        ("st.shared.u32 [place + 3584], b1;", BarrierFault, "overwritten"),
    ],
)
def test_a_fault_names_the_same_instruction(bad: str, error: type[Exception], words: str) -> None:
    """A store that may not be made is reported as with checks, and those before it have been made."""
    space = "shared" if "shared" in bad else "global"
    first = "place" if space == "shared" else "at"
    body = "    mov.u32 b3, tile;\n    mbarrier.init.shared::cta.b64 [b3 + 3592], 1;\n" if "3584" in bad else ""
    body = body and body.replace("    mbarrier", "    setp.eq.u32 odd, lane, 0;\n@odd mbarrier")
    body += f"    add.u32 b1, lane, 5;\n    st.{space}.u32 [{first}], b1;\n    {bad}\n"
    messages = []
    for check in ("full", "off"):
        with pytest.raises(error, match=words) as caught:
            results(body, check)  # type: ignore[arg-type]
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


MOVES = """
  .reg .f32 %e<8>; .reg .pred %q;
  setp.lt.u32 %q, %lane, 32;
  mov.f32 %e0, %d0; mov.b32 %e1, %d1;
  @%q add.f32 %d0, %d0, %d0; @%q add.f32 %d1, %e1, %d1;
  mov.f32 %e2, %e0; mov.f32 %e0, %e1; mov.f32 %e1, %e2;
  st.global.v2.f32 [%out+0], {%e1, %e0};
  st.global.v2.f32 [%out8+0], {%d0, %d1};
"""


@pytest.mark.parametrize("check", ["full", "off"])
def test_a_copy_of_an_accumulator_keeps_its_value(check: Check) -> None:
    """The register moved to has what the accumulator had, though that changes, and what is moved on in turn has it."""
    first, second = "st.global.v2.f32 [%out+0], {%d0, %d1};\n", "st.global.v2.f32 [%out8+0], {%d2, %d3};\n"
    text = gemm_text()
    assert first + second in text
    found, exact, _ = run_gemm(text.replace(first + second, MOVES), 64, 64, 128, check=check)
    rows = np.arange(64) // 8 % 2 == 0
    assert (found[rows, :8] == exact[rows, :8]).all()
    assert (found[~rows, :8] == 2 * exact[rows, :8]).all()
    assert (found[:, 8:] == exact[:, 8:]).all()


@pytest.mark.parametrize("check", ["full", "off"])
@pytest.mark.parametrize("before", [True, False])
def test_a_copy_outlives_the_next_product(before: bool, check: Check) -> None:
    """Copied before the last wgmma, or behind the one ahead of it, an accumulator's value is that of the sum so far."""
    text = gemm_text().replace("  .reg .f32 %d<", "  .reg .f32 %e<8>;\n  mov.f32 %e0, 0f00000000;\n  .reg .f32 %d<", 1)
    if before:
        text = text.replace("  wgmma.fence.sync.aligned;", "  mov.f32 %e1, %d0; wgmma.fence.sync.aligned;", 1)
    else:
        wait = "  wgmma.wait_group.sync.aligned 0;"
        text = text.replace(wait, f"{wait} mov.f32 %e1, %e0; mov.f32 %e0, %d0;", 1)
    text = text.replace("st.global.v2.f32 [%out+0], {%d0, %d1};", "st.global.v2.f32 [%out+0], {%e1, %d1};")
    found, exact, _ = run_gemm(text, 64, 64, 128, check=check)
    rows = np.arange(64) // 8 % 2 == 0
    assert (found[rows, 1:8:2] == exact[rows, 1:8:2]).all()
    random = np.random.default_rng(7)
    a, b = (random.integers(-3, 4, (64, 128)).astype(np.float32)[:, :64] for _ in range(2))
    assert (found[rows, :8:2] == (a @ b.T)[rows, :8:2]).all()
