"""RTX 30 and A40: what sm_80 has, with less shared memory and fewer warps."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tilekit.targets.chip import Target
from tilekit.targets.sm_80 import SM_80

SM_86: Final[Target] = replace(
    SM_80,
    name="sm_86",
    architectures=("sm_80", "sm_86"),
    product="RTX 3090",
    multiprocessors=82,
    boost_mhz=1695,
    shared_bytes=101_376,
    compute_capability=(8, 6),
)
