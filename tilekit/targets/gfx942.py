"""MI300X, MI325X."""

from __future__ import annotations

from typing import Final

from tilekit.emulator.gcn.chips import CHIPS
from tilekit.targets.chip import Target

GFX942: Final = Target(
    name="gfx942",
    isa="gcn",
    architectures=("gfx9", "gfx942"),
    capabilities=frozenset({"fnuz_floats", "loads_to_lds", "xf32_matrix"}),
    lanes=64,
    matrix_waves=1,
    product="MI300X",
    multiprocessors=CHIPS["gfx942"].units,
    boost_mhz=2100,
    shared_bytes=CHIPS["gfx942"].lds_bytes,
    registers=4 * 512 * 64,
    thread_registers=512,
    max_threads=1024,
    max_cluster=1,
    compute_capability=(9, 4),
    dies=8,
    named_barriers=1,
    transposed_bits=(8, 16),
)
