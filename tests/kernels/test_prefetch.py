"""What is brought into L2 while the kernel ahead ends: the boxes of b that are loaded first, and nothing else."""

from __future__ import annotations

import re

import ml_dtypes
import numpy as np
import pytest

import tilekit
from tilekit.arrays import view_of
from tilekit.emulator import Device, TensorMap
from tilekit.kernels.launch_call import Addresses
from tilekit.kernels.matmul.kernel import trace
from tilekit.kernels.matmul.sm_90a.config import MatmulConfig
from tilekit.kernels.matmul.spec import MatmulSpec
from tilekit.kernels.problem import MatmulCall, output_matrix, read_problem
from tilekit.runtime.parameters import pack
from tilekit.targets import SM_90A

Corner = tuple[int, int, int]
"""CTA, and coordinates of a box."""

PREFETCH = re.compile(r"cp\.async\.bulk\.prefetch\.tensor\.2d\.L2\.global \[(\w+), {(\w+), (\w+)}\]")
LOAD = re.compile(r"cp\.async\.bulk\.tensor\.2d\.shared\S+ \[\w+\], \[(\w+), {(\w+), (\w+)}\]")


def corners(matmul: tilekit.MatmulKernel, pattern: re.Pattern[str], operand: str, k: int = 192) -> list[Corner]:
    """The boxes of one operand that instructions of a kind are given, in one cluster's first tile."""
    device = Device("sm_90a", seed=0)
    spec, config = matmul.spec, matmul.config
    extents = [extent * count for extent, count in zip(config.tile, config.cluster, strict=True)]
    arrays = [device.buffer(np.zeros((extent, k), ml_dtypes.bfloat16)) for extent in extents]
    out = device.buffer(np.zeros(extents[::-1] if config.swap_ab else extents, ml_dtypes.bfloat16))
    a, b = arrays[::-1] if config.swap_ab else arrays
    views = view_of(a.read()), view_of(b.read().T), view_of(out.read())
    call = MatmulCall(read_problem(*views[:2]), output_matrix(views[2]))
    made = matmul.launch_of(call, Addresses(a=a.address, b=b.address, out=out.address), 1, _no_scratch)
    launch = {
        "grid": made.grid,
        "block": matmul.text.threads,
        "params": pack(made.parameters, TensorMap.encode).data,
        "shared_bytes": matmul.launch_bytes,
    }
    assert spec == MatmulSpec()
    kernel = device.load(matmul.ptx)[matmul.name]
    found: list[Corner] = []
    for number, line in enumerate(matmul.ptx.splitlines(), 1):
        match = pattern.search(line)
        if match is None or match[1] != f"{operand}_map":
            continue
        with kernel.debug(**launch, stop=f"line={number}") as session:
            while session.stopped:
                mask = session.warp.fragment.mask
                lane = 0 if mask is None else np.flatnonzero(mask)[0]  # the whole warp knows what its elected lane asks
                x, y = (int(o) if o.isdecimal() else int(session.register(o)[lane]) for o in match.groups()[1:])
                found.append((session.where.cta, x, y))
                session.resume(f"line={number}")
    return found


@pytest.mark.parametrize("prefetch", [1, 2])
@pytest.mark.parametrize(
    "config",
    [
        MatmulConfig(tile=(64, 64), cluster=(1, 1), consumers=1, stages=2),
        MatmulConfig(tile=(64, 64), cluster=(2, 1), consumers=1, stages=3),
        MatmulConfig(tile=(64, 32), cluster=(1, 1), consumers=1, stages=2, swap_ab=True),
    ],
    ids=str,
)
def test_the_first_blocks_of_b_are_brought_into_l2(config: MatmulConfig, prefetch: int) -> None:
    """Each CTA asks for its own part of the k-blocks that it loads first; in a cluster no two ask for the same."""
    matmul = tilekit.compile(MatmulSpec(), "sm_90a", config.changed(prefetch=prefetch))
    operand = "a" if config.swap_ab else "b"
    brought, loaded = corners(matmul, PREFETCH, operand), corners(matmul, LOAD, operand)
    assert len(set(brought)) == len(brought) > 0
    assert set(brought) == {corner for corner in loaded if corner[1] < 64 * prefetch}
    assert not corners(matmul, PREFETCH, "b" if config.swap_ab else "a")


def test_blocks_behind_the_end_of_k_are_not_brought() -> None:
    """Of four k-blocks that would be brought, those are that K has."""
    config = MatmulConfig(tile=(64, 64), cluster=(1, 1), consumers=1, prefetch=4)
    matmul = tilekit.compile(MatmulSpec(), "sm_90a", config)
    for k, blocks in ((64, 1), (72, 2), (192, 3), (512, 4)):
        assert [corner[1] for corner in corners(matmul, PREFETCH, "b", k)] == [64 * block for block in range(blocks)]


def test_it_happens_before_the_kernel_ahead_is_complete() -> None:
    """In the machine code too, the prefetches stand before griddepcontrol.wait, one for each k-block."""
    matmul = tilekit.compile(MatmulSpec(), "sm_90a", MatmulConfig(prefetch=5))
    before, _, behind = matmul.isa.partition("ACQBULK")
    assert (before.count("UTMAPF"), behind.count("UTMAPF")) == (5, 0)
    assert behind


def test_without_it_there_is_no_trace_of_it() -> None:
    """A kernel that brings nothing is the kernel that knows nothing of it."""
    assert "prefetch.tensor." not in trace(MatmulSpec(), MatmulConfig(), SM_90A).assembly


def _no_scratch(name: str, size: int) -> int:
    raise AssertionError(f"this kernel asks for {size} bytes for its {name}")
