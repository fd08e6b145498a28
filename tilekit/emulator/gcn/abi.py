"""What a launch passes to a kernel: its arguments' segment, hidden arguments in it, and the dispatch packet.

Hidden arguments are those that a kernel's metadata lists with a ``hidden_`` kind (LLVM's user guide for AMDGPU, kernel
argument metadata of code objects V3 to V5). Sizes are as the guide has them; the number of dimensions is always 3, and
the last workgroup is never partial, as HIP counts its grids in workgroups of three dimensions.
"""

from __future__ import annotations

import struct
from typing import Final

from tilekit.emulator.core.dimensions import Dim3

__all__ = ["MOST_WORK_ITEMS", "dispatch_packet", "hidden_argument", "is_hidden", "unlisted_fit"]

_SLOT: Final = 16
"""What hand-written kernels pad arguments and segments to."""

MOST_WORK_ITEMS: Final = 2**32 - 1
"""Threads of a grid along one axis: the dispatch packet has 32 bits for them."""
_DIMENSIONS: Final = 3
_KERNEL_DISPATCH: Final = 2  # HSA_PACKET_TYPE_KERNEL_DISPATCH
_PACKET: Final = struct.Struct("<6H5IQQQQ")
"""hsa_kernel_dispatch_packet_t of the HSA runtime's manual."""


def is_hidden(kind: str) -> bool:
    """Whether an argument of this ``.value_kind`` is filled in by the launch, and not passed."""
    return kind.startswith("hidden_")


def hidden_argument(kind: str, grid: Dim3, block: Dim3, dynamic_lds: int) -> int:
    """Return the value of a hidden argument.

    Parameters
    ----------
    kind
        Its ``.value_kind``.
    grid, block
        Workgroups, and threads of one.
    dynamic_lds
        Bytes of LDS that the launch adds to the kernel's own.

    Returns
    -------
    int
        0 for what only a runtime has (buffers of printf and hostcall, heap, queues), and for kinds not known.
    """
    values = {"hidden_grid_dims": _DIMENSIONS, "hidden_dynamic_lds_size": dynamic_lds}
    for axis, workgroups, size in zip("xyz", grid, block, strict=True):
        values |= {f"hidden_block_count_{axis}": workgroups, f"hidden_group_size_{axis}": size}
    return values.get(kind, 0)


def unlisted_fit(given: int, size: int) -> bool:
    """Whether so many bytes of arguments are those of a segment whose metadata lists none: it may be padded."""
    return given <= size <= -(-given // _SLOT) * _SLOT


def dispatch_packet(grid: Dim3, block: Dim3, scratch_bytes: int, lds_bytes: int, arguments: int) -> bytes:
    """Return the packet that the dispatch pointer of a kernel points to; its grid counts threads.

    Parameters
    ----------
    grid, block
        Workgroups, and threads of one.
    scratch_bytes, lds_bytes
        Of a thread, and of a workgroup.
    arguments
        Address of the kernarg segment.
    """
    threads = [groups * size for groups, size in zip(grid, block, strict=True)]
    return _PACKET.pack(
        _KERNEL_DISPATCH, _DIMENSIONS, *block, 0, *threads, scratch_bytes, lds_bytes, 0, arguments, 0, 0
    )
