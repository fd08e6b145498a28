"""H100, H200."""

from __future__ import annotations

from typing import Final

from tilekit.targets.chip import Target

SM_90A: Final = Target(
    name="sm_90a",
    isa="ptx",
    architectures=("sm_80", "sm_86", "sm_89", "sm_90", "sm_90a"),
    capabilities=frozenset(
        {
            "async_copies",
            "clusters",
            "copy_engine",
            "dependent_launch",
            "elect",
            "float8_matrix",
            "mbarriers",
            "named_barriers",
            "register_reallocation",
            "warpgroup_matrix",
        }
    ),
    lanes=32,
    matrix_waves=4,
    product="H200",
    multiprocessors=132,
    boost_mhz=1980,
    shared_bytes=232_448,
    registers=65_536,
    max_threads=1024,
    max_cluster=8,
    compute_capability=(9, 0),
    whole_warps=True,
)
