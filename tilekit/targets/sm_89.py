"""RTX 40, L4 and L40: what sm_86 has, and a matrix instruction of 8-bit floats."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tilekit.targets.chip import Target
from tilekit.targets.sm_86 import SM_86

SM_89: Final[Target] = replace(
    SM_86,
    name="sm_89",
    architectures=("sm_80", "sm_86", "sm_89"),
    capabilities=SM_86.capabilities | {"float8_matrix"},
    product="RTX 4090",
    multiprocessors=128,
    boost_mhz=2520,
    compute_capability=(8, 9),
    isa_version=(8, 4),
)
