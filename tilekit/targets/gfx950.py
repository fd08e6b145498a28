"""MI350X, MI355X."""

from __future__ import annotations

from typing import Final

from tilekit.emulator.gcn.chips import CHIPS
from tilekit.targets.chip import Target

GFX950: Final = Target(
    name="gfx950",
    isa="gcn",
    architectures=("gfx9", "gfx942", "gfx950"),
    capabilities=frozenset(
        {"deep_matrix", "loads_to_lds", "scaled_matrix", "transposed_lds_reads", "wide_loads_to_lds"}
    ),
    lanes=64,
    matrix_waves=1,
    product="MI355X",
    multiprocessors=CHIPS["gfx950"].units,
    boost_mhz=2400,
    shared_bytes=CHIPS["gfx950"].lds_bytes,
    registers=4 * 512 * 64,
    thread_registers=512,
    max_threads=1024,
    max_cluster=1,
    compute_capability=(9, 5),
    dies=8,
    named_barriers=1,
    transposed_bits=(8, 16),
)
