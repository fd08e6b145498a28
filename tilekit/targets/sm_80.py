"""A100: matrix instructions of a warp, copies that threads start."""

from __future__ import annotations

from typing import Final

from tilekit.targets.chip import Target

SM_80: Final = Target(
    name="sm_80",
    isa="ptx",
    architectures=("sm_80",),
    capabilities=frozenset({"async_copies", "mbarriers", "named_barriers"}),
    lanes=32,
    matrix_waves=1,
    product="A100",
    multiprocessors=108,
    boost_mhz=1410,
    shared_bytes=166_912,
    registers=65_536,
    max_threads=1024,
    max_cluster=1,
    compute_capability=(8, 0),
)
