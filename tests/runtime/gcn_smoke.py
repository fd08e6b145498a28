"""Small kernels for AMD chips that use what larger ones are made of, with their inputs and what must come out.

Every kernel of `SMOKE` is run as text, as a code object, and through HIP's runtime: another one is one more line there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.runtime.gcn_kernels import module

Array = np.ndarray[Any, Any]
CHIPS = ("gfx942", "gfx950")


@dataclass(frozen=True)
class Inputs:
    """Arguments in order (arrays, and NumPy scalars), the grid in workgroups, and what the last array becomes."""

    arguments: list[Any]
    grid: tuple[int, int, int]
    expected: Array

    @property
    def out(self) -> Array:
        """The array that the kernel writes."""
        found: Array = [value for value in self.arguments if isinstance(value, np.ndarray)][-1]
        return found


@dataclass(frozen=True)
class Smoke:
    """A kernel: its name, its text for a chip, threads of a workgroup, and how its inputs are drawn."""

    name: str
    text: Callable[[str], str]
    threads: int
    draw: Callable[[np.random.Generator], Inputs]

    def __str__(self) -> str:
        return self.name


def _arguments(*sizes: int) -> str:
    """The list of arguments of these sizes in the metadata: pointers have 8 bytes."""
    lines, at = ["    .args:"], 0
    for size in sizes:
        kind = "global_buffer, .address_space: global" if size == 8 else "by_value"
        lines.append(f"      - {{.offset: {at}, .size: {size}, .value_kind: {kind}}}")
        at += size
    return "\n".join(lines) + "\n"


ADD = """\
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_load_dwordx2 s[8:9], s[0:1], 0x10
  s_load_dword s10, s[0:1], 0x18
  s_lshl_b32 s11, s2, 8
  v_add_u32_e32 v1, s11, v0
  s_waitcnt lgkmcnt(0)
  v_cmp_gt_u32_e32 vcc, s10, v1
  s_and_saveexec_b64 s[12:13], vcc
  s_cbranch_execz .Lend
  v_lshlrev_b32_e32 v1, 2, v1
  global_load_dword v2, v1, s[4:5]
  global_load_dword v3, v1, s[6:7]
  s_waitcnt vmcnt(0)
  v_add_f32_e32 v2, v2, v3
  global_store_dword v1, v2, s[8:9]
.Lend:
"""


def _add(rng: np.random.Generator) -> Inputs:
    count = int(rng.integers(1, 2000))
    x, y = rng.standard_normal((2, count), np.float32)
    return Inputs([x, y, np.zeros(count, np.float32), np.uint32(count)], (-(-count // 256), 1, 1), x + y)


def _tile_text(chip: str) -> str:
    """Multiply 32x8 by 8x32 in one matrix instruction: four elements a lane of each, sixteen of the result."""
    stores = "".join(
        f"  global_store_dword v3, v{8 + r}, s[8:9] offset:{128 * (8 * (r // 4) + r % 4)}\n" for r in range(16)
    )
    body = f"""\
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_load_dwordx2 s[8:9], s[0:1], 0x10
  v_and_b32_e32 v1, 31, v0
  v_lshrrev_b32_e32 v2, 5, v0
  v_lshlrev_b32_e32 v3, 4, v1
  v_lshl_add_u32 v3, v2, 3, v3
  s_waitcnt lgkmcnt(0)
  global_load_dwordx2 v[4:5], v3, s[4:5]
  global_load_dwordx2 v[6:7], v3, s[6:7]
  v_lshlrev_b32_e32 v3, 2, v1
  v_lshl_add_u32 v3, v2, 9, v3
  s_waitcnt vmcnt(0)
  v_mfma_f32_32x32x8_f16 v[8:23], v[4:5], v[6:7], 0
  s_nop 15
  s_nop 7
{stores}"""
    return module(body, chip=chip, name="tile", kernarg=24, vgprs=24, accum=24, arguments=_arguments(8, 8, 8))


def _tile(rng: np.random.Generator) -> Inputs:
    a, b = rng.integers(-4, 5, (2, 32, 8)).astype(np.float16)  # b by columns
    return Inputs([a, b, np.zeros((32, 32), np.float32)], (1, 1, 1), a.astype(np.float32) @ b.astype(np.float32).T)


DOUBLE_BUFFER = """\
  s_load_dwordx4 s[4:7], s[0:1], 0x0
  s_load_dword s8, s[0:1], 0x10
  v_lshlrev_b32_e32 v1, 2, v0
  v_mov_b32_e32 v5, v1
  v_xor_b32_e32 v2, 64, v0
  v_lshlrev_b32_e32 v2, 2, v2
  v_lshrrev_b32_e32 v3, 6, v0
  s_nop 0
  v_readfirstlane_b32 s9, v3
  s_lshl_b32 s9, s9, 8
  s_mov_b32 m0, s9
  s_mov_b32 s10, 0
  s_waitcnt lgkmcnt(0)
  global_load_lds_dword v1, s[4:5]
.Lloop:
  s_waitcnt vmcnt(0)
  s_barrier
  s_sub_u32 s8, s8, 1
  s_xor_b32 s11, s10, 0x200
  s_cmp_eq_u32 s8, 0
  s_cbranch_scc1 .Lread
  v_add_u32_e32 v1, 0x200, v1
  s_add_u32 s12, s9, s11
  s_mov_b32 m0, s12
  s_nop 0
  global_load_lds_dword v1, s[4:5]
.Lread:
  v_add_u32_e32 v4, s10, v2
  ds_read_b32 v6, v4
  s_waitcnt lgkmcnt(0)
  v_add_f32_e32 v6, v6, v6
  global_store_dword v5, v6, s[6:7]
  v_add_u32_e32 v5, 0x200, v5
  s_mov_b32 s10, s11
  s_cmp_lg_u32 s8, 0
  s_cbranch_scc1 .Lloop
"""
"""Two waves load tiles to LDS, the next one while each doubles what the other loaded of this one."""


def _double_buffer(rng: np.random.Generator) -> Inputs:
    tiles = int(rng.integers(1, 9))
    x = rng.standard_normal((tiles, 2, 64), np.float32)
    return Inputs([x, np.zeros_like(x), np.uint32(tiles)], (1, 1, 1), 2 * x[:, ::-1])


SMOKE = [
    Smoke("add", lambda chip: module(ADD, chip=chip, name="add", kernarg=28, threads=256, sgprs=16,
                                     arguments=_arguments(8, 8, 8, 4)), 256, _add),
    Smoke("tile", _tile_text, 64, _tile),
    Smoke("double_buffer", lambda chip: module(DOUBLE_BUFFER, chip=chip, name="double_buffer", kernarg=20, lds=1024,
                                               threads=128, arguments=_arguments(8, 8, 4)), 128, _double_buffer),
]  # fmt: skip
