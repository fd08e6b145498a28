"""RTX 50 and RTX PRO 6000: matrix instructions of a warp beside the copy engine; neither wgmma nor tensor memory."""

from __future__ import annotations

from typing import Final

from tilekit.targets.chip import Target

SM_120A: Final = Target(
    name="sm_120a",
    isa="ptx",
    architectures=("sm_80", "sm_86", "sm_89", "sm_90", "sm_120", "sm_120a"),
    capabilities=frozenset(
        {
            "async_copies",
            "copy_engine",
            "dependent_launch",
            "elect",
            "float8_matrix",
            "mbarriers",
            "named_barriers",
        }
    ),
    lanes=32,
    matrix_waves=1,
    product="RTX 5090",
    multiprocessors=170,
    boost_mhz=2407,
    shared_bytes=101_376,
    registers=65_536,
    max_threads=1024,
    max_cluster=1,
    compute_capability=(12, 0),
    isa_version=(8, 7),
)
