"""What a kernel finds when it starts: arguments, hidden arguments, the dispatch packet, preloaded registers.

A C compiler decides where it looks for each; the launch must have put it there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llvm import compiled

from tilekit.emulator import Device, LaunchError

SOURCE = Path(__file__).with_name("shapes.c")
WIDE = 0x0123_4567_89AB_CDEF


@pytest.fixture(params=["gfx942", "gfx950"])
def chip(request: pytest.FixtureRequest) -> Any:
    """Each chip."""
    return request.param


@pytest.mark.parametrize("preloaded", [0, 1, 3, 6])
@pytest.mark.parametrize("version", [4, 5, 6])
def test_what_a_compilers_kernel_reads(chip: str, version: int, preloaded: int, tmp_path: Path) -> None:
    """Shapes, arguments and dynamic LDS are what was launched, however many arguments are preloaded into registers."""
    pytest.importorskip("ziglang")
    options = ("-O2", "-mllvm", f"-amdgpu-kernarg-preload-count={preloaded}", f"-mcode-object-version={version}")
    options += (f"-DVERSION={version}",)
    image = compiled(SOURCE.read_text(), chip, tmp_path, *options)
    device = Device(chip, seed=preloaded)
    kernel = device.load(image)["shapes"]
    assert bool(kernel.field("user_sgpr_kernarg_preload_length")) == bool(preloaded)
    out = device.buffer(np.full((6, 32), 9, np.uint32), "out")
    arguments = [out, np.uint32(77), np.array([5, 6], np.uint32), np.uint64(WIDE)]
    report = kernel.launch((2, 3), (64, 2), arguments, shared_bytes=1236)
    assert report.clean, str(report)
    dispatched = [128, 6, 1]
    for group, row in enumerate(out.read().tolist()):
        assert row[3:6] == [64, 2, 1], group
        assert row[12:15] == dispatched
        assert row[17:21] == [77, 6, WIDE & 0xFFFFFFFF, WIDE >> 32]
        assert row[22] == group
        if version >= 5:
            assert row[:3] == [2, 3, 1]
            assert row[6:12] == [0] * 6
            assert row[15:17] == [3, 1236]
            assert row[21] == 0


PRELOADED = """\
k:
  v_mov_b32_e32 v1, s4
  v_lshlrev_b32_e32 v0, 2, v0
  v_mov_b32_e32 v2, s2
  v_mov_b32_e32 v3, s3
  v_add_u32_e32 v1, s5, v1
  global_store_dword v0, v1, s[2:3]
  s_endpgm
.amdhsa_kernel k
  .amdhsa_kernarg_size 24
  .amdhsa_user_sgpr_kernarg_segment_ptr 1
  .amdhsa_user_sgpr_kernarg_preload_length 4
  .amdhsa_user_sgpr_kernarg_preload_offset {offset}
  .amdhsa_user_sgpr_count 6
  .amdhsa_next_free_vgpr 4
  .amdhsa_next_free_sgpr 16
  .amdhsa_accum_offset 4
.end_amdhsa_kernel
"""


@pytest.mark.parametrize("offset", [0, 2])
def test_code_that_has_no_loads_of_preloaded_arguments(chip: str, offset: int) -> None:
    """As firmware does it, the registers hold the arguments from the offset on."""
    device = Device(chip)
    out = device.buffer(np.zeros(64, np.uint32))
    head = [np.uint64(0xDEAD)] if offset else []
    arguments = [*head, out, np.uint32(40), np.uint32(2), *([] if offset else [np.uint64(0)])]
    assert device.load(PRELOADED.format(offset=offset))["k"].launch(1, 64, arguments).clean
    assert (out.read() == 42).all()


LISTED = """\
k:
  s_endpgm
.amdhsa_kernel k
  .amdhsa_kernarg_size 32
  .amdhsa_next_free_vgpr 4
  .amdhsa_next_free_sgpr 16
  .amdhsa_accum_offset 4
.end_amdhsa_kernel
.amdgpu_metadata
amdhsa.kernels:
  - .name: k
    .symbol: k.kd
    .args:
      - .name: out
        .offset: 0
        .size: 8
        .value_kind: global_buffer
      - .name: n
        .offset: 8
        .size: 4
        .value_kind: by_value
      - .offset: 16
        .size: 4
        .value_kind: hidden_{hidden}
.end_amdgpu_metadata
"""


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], r"0 arguments for the 2 parameters of kernel 'k'(?s:.*)out \(global_buffer, 8 B\), n \(by_value, 4 B\)"),
        ([None, 1, 2], "3 arguments for the 2 parameters"),
        ([None, None], r"args\[1\]='8 bytes \(NoneType\)' is not allowed; legal: 4 bytes"),
        ([np.uint32(3), 1], r"args\[0\]='4 bytes \(uint32\)' is not allowed; legal: 8 bytes"),
        ([1.5, 1], r"args\[0\]=1.5 is not allowed(?s:.*)out is a pointer to global memory"),
        ([np.float64(2), 1], "out is a pointer to global memory"),
        ([True, 1], "out is a pointer to global memory"),
        ([None, 1 << 40], r"args\[1\]=1099511627776 is not allowed; legal: an integer of 32 bits"),
        ([None, "seven"], r"args\[1\]='str' is not allowed"),
    ],
)
def test_arguments_that_are_not_the_kernels(arguments: list[Any], says: str) -> None:
    """Number, size and kind are compared with the metadata, and the message lists what the kernel takes."""
    device = Device("gfx950")
    with pytest.raises(LaunchError, match=says):
        device.load(LISTED.format(hidden="none"))["k"].launch(1, 64, arguments)


def test_a_refused_launch_leaves_no_buffers() -> None:
    """What was uploaded for the arguments before the one that is refused is freed."""
    device = Device("gfx950")
    with pytest.raises(LaunchError, match=r"args\[1\]"):
        device.load(LISTED.format(hidden="none"))["k"].launch(1, 64, [np.zeros(4), "seven"])
    assert device.memory.allocations() == []


@pytest.mark.parametrize("hidden", ["block_count_w", "heap_v1", "queue_ptr", "something_new"])
def test_hidden_arguments_that_a_launch_has_not(hidden: str) -> None:
    """They are zero, as are those of kinds to come."""
    device = Device("gfx950")
    assert device.load(LISTED.format(hidden=hidden))["k"].launch(1, 64, [None, 1]).clean


@pytest.mark.parametrize("count", [0, 1, 5])
def test_arguments_without_a_list(count: int) -> None:
    """Without metadata only the segment's size can tell: more bytes, or too few to be padded to it, are refused."""
    text = PRELOADED.format(offset=0)
    with pytest.raises(LaunchError, match=r"24 bytes, as \.amdhsa_kernarg_size of k says"):
        Device("gfx950").load(text)["k"].launch(1, 64, [np.uint64(0)] * count)


@pytest.mark.parametrize(("grid", "axis"), [(1 << 26, "x"), ((1, 1 << 32), "y"), ((1, 1, 1 << 40), "z")])
def test_grids_that_no_packet_can_say(grid: Any, axis: str) -> None:
    """Threads along an axis are counted in 32 bits, as on a GPU."""
    kernel = Device("gfx950").load(LISTED.format(hidden="none"))["k"]
    with pytest.raises(LaunchError, match=f"workgroups along {axis}: less than 2"):
        kernel.launch(grid, 64, [None, 1])
