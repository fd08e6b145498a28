"""B200."""

from __future__ import annotations

from typing import Final

from tilekit.targets.chip import Target

SM_100A: Final = Target(
    name="sm_100a",
    isa="ptx",
    architectures=("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_100a"),
    capabilities=frozenset(
        {
            "async_copies",
            "cluster_launch_control",
            "clusters",
            "copy_engine",
            "dependent_launch",
            "elect",
            "float8_matrix",
            "mbarriers",
            "named_barriers",
            "register_reallocation",
            "tensor_memory",
        }
    ),
    lanes=32,
    matrix_waves=4,
    product="B200",
    multiprocessors=148,
    boost_mhz=1850,
    shared_bytes=232_448,
    registers=65_536,
    max_threads=1024,
    max_cluster=8,
    compute_capability=(10, 0),
    tensor_columns=512,
    isa_version=(8, 6),
    transposed_bits=(8, 16, 32),
)
